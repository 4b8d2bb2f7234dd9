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
    /// What it runs.
    pub run: CaseFn,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name).field("guarantees", &self.guarantees).finish()
    }
}

/// Lists the cases of a topic: `topic! { "log": append_is_atomic [L1], expires_at_the_instant [E1] sets_clock }`
/// for functions `async fn append_is_atomic(env: Env)` of the same module.
macro_rules! topic {
    ($topic:literal: $($case:ident [$($guarantee:ident),+] $($clock:ident)?),+ $(,)?) => {
        /// The cases of this topic.
        pub(crate) const CASES: &[$crate::case::Case] = &[
            $($crate::case::Case {
                name: concat!($topic, "::", stringify!($case)),
                guarantees: &[$(stringify!($guarantee)),+],
                sets_clock: $crate::case::topic!(@clock $($clock)?),
                run: |env| Box::pin($case(env)),
            }),+
        ];
    };
    (@clock sets_clock) => { true };
    (@clock) => { false };
}
pub(crate) use topic;
