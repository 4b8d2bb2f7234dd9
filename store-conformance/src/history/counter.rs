//! Numbers that only rise: the versions of an aggregate, the positions of a partition.

/// Somebody saw a counter at this value.
#[derive(Debug, Clone)]
pub(super) struct Look {
    pub(super) begun: u64,
    pub(super) ended: u64,
    pub(super) value: u64,
    pub(super) who: String,
}

/// Checks that nobody saw a counter go back, or ahead of what anybody had begun. `begun` tells of each value, from 1,
/// when somebody first began to make it; `known` when somebody was told that it is at least so far.
pub(super) fn check(name: &str, begun: &[u64], known: &[(u64, u64)], looks: &[Look]) -> Vec<String> {
    // By the time of its end: the highest value known by then.
    let mut known: Vec<(u64, u64)> =
        known.iter().copied().chain(looks.iter().map(|look| (look.ended, look.value))).collect();
    known.sort_unstable();
    let mut highest = 0;
    for (_, value) in &mut known {
        highest = highest.max(*value);
        *value = highest;
    }
    let mut latest = 0;
    let all_begun: Vec<u64> = begun
        .iter()
        .map(|begun| {
            latest = latest.max(*begun);
            latest
        })
        .collect();
    let mut problems = Vec::new();
    for look in looks {
        let before = known.partition_point(|(ended, _)| *ended < look.begun);
        let lower = before.checked_sub(1).map_or(0, |last| known[last].1);
        if look.value < lower {
            problems.push(format!("{name} went back: {} saw {}, after it was {lower}", look.who, look.value));
        }
        let Some(last) = look.value.checked_sub(1) else { continue };
        let all_begun = usize::try_from(last).ok().and_then(|last| all_begun.get(last));
        match all_begun {
            None => problems.push(format!("{name} was never {}, as {} saw it", look.value, look.who)),
            Some(begun) if *begun >= look.ended => {
                problems
                    .push(format!("{name} was seen at {} by {} before that was begun", look.value, look.who));
            }
            Some(_) => {}
        }
    }
    problems
}
