//! Faults of timers (M1, M2).

use std::time::Duration;

use async_trait::async_trait;
use wow_store_api::{
    ClaimTimers, ContextName, Result, ScheduleTimer, Timer, TimerId, TimerScheduled, TimerToken, Timers,
    Timestamp,
};

use super::{Mutant, mutants};

mutants! { TimerFault in "timer": }

impl Mutant {
    fn served_timer(&self, timer: Timer) -> Timer {
        Timer { body: self.served_payload(timer.body.clone()), ..timer }
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Timers for Mutant {
    async fn schedule_timer(&self, mut schedule: ScheduleTimer) -> Result<TimerScheduled> {
        schedule.body = self.stored_payload(schedule.body);
        self.store().schedule_timer(schedule).await
    }

    async fn cancel_timer(&self, context: &ContextName, id: &TimerId) -> Result<bool> {
        self.store().cancel_timer(context, id).await
    }

    async fn claim_timers(&self, claim: ClaimTimers) -> Result<Vec<Timer>> {
        let claimed = self.store().claim_timers(claim).await?;
        Ok(claimed.into_iter().map(|timer| self.served_timer(timer)).collect())
    }

    async fn complete_timer(&self, token: &TimerToken) -> Result<bool> {
        self.store().complete_timer(token).await
    }

    async fn release_timer(&self, token: &TimerToken, retry_in: Duration) -> Result<bool> {
        self.store().release_timer(token, retry_in).await
    }

    async fn next_due(&self, context: &ContextName) -> Result<Option<Timestamp>> {
        self.store().next_due(context).await
    }

    async fn timers(
        &self,
        context: &ContextName,
        after: Option<&TimerId>,
        limit: usize,
    ) -> Result<Vec<Timer>> {
        let timers = self.store().timers(context, after, limit).await?;
        Ok(timers.into_iter().map(|timer| self.served_timer(timer)).collect())
    }
}
