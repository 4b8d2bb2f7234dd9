//! Faults of members (E3).

use wow_store_api::{
    Heartbeat, Leases as _, Member, MemberId, MemoryStore, Result, SubscriptionName, Timestamp,
};

use super::{Mutant, mutant::at_another_time, mutants};

mutants! { MemberFault in "member":
    /// Members are listed in the order they announced themselves, the last one first.
    ListedInAnotherOrder => [
        "member::members_are_listed_by_id",
        "member::members_survive_reopen",
    ],
    /// All groups share their members.
    GroupsShareMembers => [
        "member::members_are_listed_by_id",
        "member::leaving_says_whether_it_was_there",
    ],
    /// At most two members are seen.
    SeesTwoAtMost => [
        "member::members_are_listed_by_id",
        "member::join_moves_only_what_it_must",
    ],
    /// A heartbeat makes a member join anew.
    JoinsWithEveryHeartbeat => ["member::heartbeats_keep_the_day_of_joining"],
    /// A member that was gone has joined when it first did.
    NeverJoinsAnew => [
        "member::member_is_gone_at_the_very_instant",
        "member::member_that_comes_back_joins_anew",
    ],
    /// A heartbeat never makes a member's time shorter.
    HeartbeatNeverShortens => ["member::dead_members_partitions_move"],
    /// A member is alive for a millisecond after its end.
    EndsLate => [
        "member::member_is_gone_at_the_very_instant",
        "member::member_that_comes_back_joins_anew",
        "member::dead_members_partitions_move",
    ],
    /// A member is gone a millisecond before its end.
    EndsEarly => ["member::member_is_gone_at_the_very_instant"],
    /// Members stay until they are swept up, which never happens.
    NeverGone => [
        "member::member_is_gone_at_the_very_instant",
        "member::member_that_comes_back_joins_anew",
        "member::dead_members_partitions_move",
    ],
    /// Leaving says that the member was there, whether it was or not.
    LeaveSaysYes => ["member::leaving_says_whether_it_was_there"],
    /// Leaving a group that is not the member's own takes it out of all.
    LeavingLeavesAll => ["member::leaving_says_whether_it_was_there"],
    /// A member that leaves stays until its time is over.
    LeaveDoesNothing => [
        "member::leaving_says_whether_it_was_there",
        "member::join_moves_only_what_it_must",
    ],
    /// Opened again, the store knows of no member.
    ForgetsAtReopen => ["member::members_survive_reopen"],
}

/// Longer than any case lets pass.
const LONG_AGO: i64 = 1_000_000_000;

impl Mutant {
    fn member_store(&self) -> &MemoryStore {
        match self.reopened() > 0 && self.is(MemberFault::ForgetsAtReopen) {
            true => self.spare(),
            false => self.store(),
        }
    }

    fn member_group(&self, group: &SubscriptionName) -> SubscriptionName {
        match group != "mailer" && self.is(MemberFault::GroupsShareMembers) {
            true => SubscriptionName::new("mailer").expect("a valid name"),
            false => group.clone(),
        }
    }

    /// What [`wow_store_api::Leases::heartbeat`] does.
    pub(super) async fn beat(&self, mut heartbeat: Heartbeat) -> Result<Member> {
        heartbeat.ttl = self.faulty_ttl(heartbeat.ttl);
        let group = heartbeat.group.clone();
        heartbeat.group = self.member_group(&group);
        let store = self.member_store();
        let members = store.members(&heartbeat.group).await?;
        if let Some(known) = members.iter().find(|member| member.member == heartbeat.member) {
            if self.is(MemberFault::JoinsWithEveryHeartbeat) {
                store.leave(&heartbeat.group, &heartbeat.member).await?;
            }
            let left = known.expires_at.saturating_since(self.time().await);
            if heartbeat.ttl < left && self.is(MemberFault::HeartbeatNeverShortens) {
                heartbeat.ttl = left;
            }
        }
        let name = format!("{} joined {group}", heartbeat.member);
        let member = Member { group, ..store.heartbeat(heartbeat).await? };
        match self.shared().get::<Timestamp>(&name) {
            Some(first) if first < member.joined_at && self.is(MemberFault::NeverJoinsAnew) => {
                Ok(Member { joined_at: first, ..member })
            }
            Some(_) => Ok(member),
            None => {
                self.shared().put(name, member.joined_at);
                Ok(member)
            }
        }
    }

    /// What [`wow_store_api::Leases::members`] does.
    pub(super) async fn list_members(&self, group: &SubscriptionName) -> Result<Vec<Member>> {
        let asked = self.member_group(group);
        let store = self.member_store();
        let mut members = store.members(&asked).await?;
        for (fault, beside) in
            [(MemberFault::EndsLate, -1), (MemberFault::EndsEarly, 1), (MemberFault::NeverGone, -LONG_AGO)]
        {
            let seen = at_another_time(beside, store.members(&asked)).await?;
            if seen != members && self.is(fault) {
                members = seen;
            }
        }
        if members.len() > 1 && self.is(MemberFault::ListedInAnotherOrder) {
            members.reverse();
        }
        if members.len() > 2 && self.is(MemberFault::SeesTwoAtMost) {
            members.truncate(2);
        }
        Ok(members.into_iter().map(|member| Member { group: group.clone(), ..member }).collect())
    }

    /// What [`wow_store_api::Leases::leave`] does with the member.
    pub(super) async fn member_leaves(&self, group: &SubscriptionName, member: &MemberId) -> Result<bool> {
        let group = self.member_group(group);
        let store = self.member_store();
        let was_there = store.members(&group).await?.iter().any(|it| it.member == *member);
        if was_there && self.is(MemberFault::LeaveDoesNothing) {
            return Ok(true);
        }
        if !was_there && self.is(MemberFault::LeavingLeavesAll) {
            store.leave(&SubscriptionName::new("mailer")?, member).await?;
        }
        let left = store.leave(&group, member).await?;
        Ok(left || self.is(MemberFault::LeaveSaysYes))
    }
}
