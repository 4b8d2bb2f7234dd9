//! Cases as data.

use std::{fmt, future::Future, pin::Pin};

use crate::env::Env;

/// What a case runs. It panics where the store breaks the contract.
pub type CaseFn = fn(Env) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// One behaviour of a store.
#[derive(Clone, Copy)]
pub struct Case {
    /// `<topic>::<what holds>`, e.g. `log::append_rejects_stale_expected_version`. Stable: exceptions name it.
    pub name: &'static str,
    /// The numbered guarantees that it checks.
    pub guarantees: &'static [&'static str],
    /// Whether it can only be run where the test sets the store's clock.
    pub sets_clock: bool,
    /// Whether it takes much longer than others. It is run against every store, but of the wrong stores only against
    /// those that name it.
    pub is_heavy: bool,
    /// What it runs.
    pub run: CaseFn,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("guarantees", &self.guarantees).finish()
    }
}

/// Lists the cases of a topic: `topic! { "log": append_is_atomic [L1], expires_at_the_instant [E1] sets_clock,
/// holds_many [L1] is_heavy }` for functions `async fn append_is_atomic(env: Env)` of the same module.
macro_rules! topic {
    ($topic:literal: $($case:ident [$($guarantee:ident),+] $($flag:ident)?),+ $(,)?) => {
        /// The cases of this topic.
        pub(crate) const CASES: &[$crate::case::Case] = &[
            $($crate::case::Case {
                name: concat!($topic, "::", stringify!($case)),
                guarantees: &[$(stringify!($guarantee)),+],
                sets_clock: $crate::case::topic!(@sets_clock $($flag)?),
                is_heavy: $crate::case::topic!(@is_heavy $($flag)?),
                run: |env| Box::pin($case(env)),
            }),+
        ];
    };
    (@sets_clock sets_clock) => { true };
    (@sets_clock is_heavy) => { false };
    (@sets_clock) => { false };
    (@is_heavy is_heavy) => { true };
    (@is_heavy sets_clock) => { false };
    (@is_heavy) => { false };
}
pub(crate) use topic;
