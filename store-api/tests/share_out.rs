//! Sharing out partitions (E3), on many made-up groups: complete, even, with as few moves as possible, and the same
//! for everybody who sees the same.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::{BTreeMap, BTreeSet};

use wow_store_api::{MemberId, share_out};

/// Numbers that look random and are the same every time (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from(self.0 % u64::from(limit)).unwrap()
    }
}

fn member(n: u32) -> MemberId {
    MemberId::new(format!("m{n}")).unwrap()
}

/// A group: how many partitions, who is there, and who has what, members that are gone among them.
fn group(numbers: &mut Numbers) -> (u32, Vec<MemberId>, BTreeMap<u32, MemberId>) {
    let partitions = numbers.below(70);
    let members: Vec<MemberId> = (0..numbers.below(9)).map(|_| member(numbers.below(12))).collect();
    let mut owners = BTreeMap::new();
    for index in 0..partitions {
        if numbers.below(4) > 0 {
            owners.insert(index, member(numbers.below(12)));
        }
    }
    (partitions, members, owners)
}

#[test]
fn every_partition_has_one_owner_and_shares_are_even() {
    let mut numbers = Numbers(7);
    for _ in 0..5_000 {
        let (partitions, members, owners) = group(&mut numbers);
        let shares = share_out(partitions, &members, &owners);
        let there: BTreeSet<&MemberId> = members.iter().collect();
        assert_eq!(
            shares.keys().collect::<BTreeSet<_>>(),
            there,
            "every member has a share, and nobody else"
        );
        if there.is_empty() {
            continue;
        }
        let mut shared: Vec<u32> = shares.values().flatten().copied().collect();
        shared.sort_unstable();
        assert_eq!(shared, (0..partitions).collect::<Vec<_>>(), "every partition is somebody's, once");
        let sizes = shares.values().map(Vec::len);
        let (least, most) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
        assert!(most - least <= 1, "counts differ by at most one");
        assert!(shares.values().all(|share| share.is_sorted()), "each share is in order");
    }
}

#[test]
fn as_few_as_possible_move() {
    let mut numbers = Numbers(11);
    for _ in 0..5_000 {
        let (partitions, members, owners) = group(&mut numbers);
        let shares = share_out(partitions, &members, &owners);
        if shares.is_empty() {
            continue;
        }
        let kept =
            |member: &MemberId| shares[member].iter().filter(|it| owners.get(it) == Some(member)).count();
        let kept: usize = shares.keys().map(kept).sum();
        // Everybody keeps an even share of what it has, and so many may keep one more.
        let all = usize::try_from(partitions).unwrap();
        let (base, extra) = (all / shares.len(), all % shares.len());
        let owned = |member: &MemberId| owners.values().filter(|owner| *owner == member).count();
        let even: usize = shares.keys().map(|member| owned(member).min(base)).sum();
        let more = shares.keys().filter(|member| owned(member) > base).count().min(extra);
        assert_eq!(kept, even + more, "nobody gives away more than it must");
        assert!(shares.len() > all || base > 0, "a share is empty only if there are too few");
    }
}

#[test]
fn it_depends_on_nothing_else() {
    let mut numbers = Numbers(13);
    for _ in 0..2_000 {
        let (partitions, mut members, owners) = group(&mut numbers);
        let shares = share_out(partitions, &members, &owners);
        members.reverse();
        members.extend(members.clone());
        assert_eq!(share_out(partitions, &members, &owners), shares, "the order of the list does not count");
        // Once it is so, it stays so.
        let settled: BTreeMap<u32, MemberId> = shares
            .iter()
            .flat_map(|(member, share)| share.iter().map(move |index| (*index, member.clone())))
            .collect();
        assert_eq!(share_out(partitions, &members, &settled), shares, "nothing moves without a reason");
    }
}
