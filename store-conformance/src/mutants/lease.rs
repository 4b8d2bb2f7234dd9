//! Faults of leases and members (E1 to E3).

use std::time::Duration;

use async_trait::async_trait;
use wow_store_api::{
    AcquireLease, ContextName, Heartbeat, Lease, LeaseAcquired, LeaseRenewed, LeaseToken, Leases, Member,
    MemberId, Result, SubscriptionName,
};

use super::{Mutant, mutants};

mutants! { LeaseFault in "lease": }

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Leases for Mutant {
    async fn acquire_lease(&self, request: AcquireLease) -> Result<LeaseAcquired> {
        self.store().acquire_lease(request).await
    }

    async fn renew_leases(&self, tokens: &[LeaseToken], ttl: Duration) -> Result<Vec<LeaseRenewed>> {
        self.store().renew_leases(tokens, ttl).await
    }

    async fn release_lease(&self, token: &LeaseToken) -> Result<bool> {
        self.store().release_lease(token).await
    }

    async fn leases(&self, group: &SubscriptionName, context: &ContextName) -> Result<Vec<Lease>> {
        self.store().leases(group, context).await
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<Member> {
        self.store().heartbeat(heartbeat).await
    }

    async fn members(&self, group: &SubscriptionName) -> Result<Vec<Member>> {
        self.store().members(group).await
    }

    async fn leave(&self, group: &SubscriptionName, member: &MemberId) -> Result<bool> {
        self.store().leave(group, member).await
    }
}
