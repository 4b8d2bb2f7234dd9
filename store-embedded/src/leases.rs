//! Leases, members, and the fence (E1 to E3, L7).

use std::time::Duration;

use async_trait::async_trait;
use wow_store_api::{
    AcquireLease, ContextName, Fence, Heartbeat, Lease, LeaseAcquired, LeaseRenewed, LeaseToken, Leases,
    Member, MemberId, Result, SubscriptionName, Timestamp, check_ttl, rules,
};

use crate::{access::Records as _, engine::view::Tx, places, store::EmbeddedStore};

/// A member that has been gone for so long is swept up: node names are new after every start.
const KEEP_DEAD_MEMBERS: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Refuses a write whose lease was overtaken; remembers an epoch that is newer than any known one (L7).
pub(crate) fn fence(tx: &mut Tx<'_>, fence: Option<&Fence>) -> Result<()> {
    let Some(fence) = fence else { return Ok(()) };
    let place = places::lease(&fence.group, &fence.partition);
    let known: Option<Lease> = tx.record(&place)?;
    if let Some(lease) = rules::fence::check(fence, known.as_ref())? {
        tx.store(place, &lease);
    }
    Ok(())
}

#[async_trait]
impl Leases for EmbeddedStore {
    async fn acquire_lease(&self, request: AcquireLease) -> Result<LeaseAcquired> {
        self.write("acquire_lease", 0, move |tx| {
            let place = places::lease(&request.group, &request.partition);
            let known: Option<Lease> = tx.record(&place)?;
            let answer = rules::lease::acquire(&request, known.as_ref(), tx.now())?;
            if let LeaseAcquired::Acquired(lease) = &answer {
                tx.store(place, lease);
            }
            Ok(answer)
        })
        .await
    }

    async fn renew_leases(&self, tokens: &[LeaseToken], ttl: Duration) -> Result<Vec<LeaseRenewed>> {
        let tokens = tokens.to_vec();
        self.write("renew_leases", 0, move |tx| {
            check_ttl("lease", ttl)?;
            let mut answers = Vec::with_capacity(tokens.len());
            for token in &tokens {
                let place = places::lease(&token.group, &token.partition);
                let known: Option<Lease> = tx.record(&place)?;
                let (lease, answer) = rules::lease::renew(token, ttl, known.as_ref(), tx.now());
                if let Some(lease) = lease {
                    tx.store(place, &lease);
                }
                answers.push(answer);
            }
            Ok(answers)
        })
        .await
    }

    async fn release_lease(&self, token: &LeaseToken) -> Result<bool> {
        let token = token.clone();
        self.write("release_lease", 0, move |tx| {
            let place = places::lease(&token.group, &token.partition);
            let known: Option<Lease> = tx.record(&place)?;
            Ok(match rules::lease::release(&token, known.as_ref()) {
                Some(lease) => {
                    tx.store(place, &lease);
                    true
                }
                None => false,
            })
        })
        .await
    }

    async fn leases(&self, group: &SubscriptionName, context: &ContextName) -> Result<Vec<Lease>> {
        let under = places::leases(group, context);
        self.scan("leases", move |view| view.records(&under).collect()).await
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<Member> {
        self.write("heartbeat", 0, move |tx| {
            let place = places::member(&heartbeat.group, &heartbeat.member);
            let known: Option<Member> = tx.record(&place)?;
            let member = rules::lease::heartbeat(&heartbeat, known.as_ref(), tx.now())?;
            if known.is_none() {
                sweep(tx, &heartbeat.group)?;
            }
            tx.store(place, &member);
            Ok(member)
        })
        .await
    }

    async fn members(&self, group: &SubscriptionName) -> Result<Vec<Member>> {
        let under = places::members(group);
        let now = self.clock_now();
        self.scan("members", move |view| {
            let is_alive = |member: &Result<Member>| member.as_ref().map_or(true, |it| is_alive(it, now));
            view.records(&under).filter(is_alive).collect()
        })
        .await
    }

    async fn leave(&self, group: &SubscriptionName, member: &MemberId) -> Result<bool> {
        let place = places::member(group, member);
        self.write("leave", 0, move |tx| {
            let known: Option<Member> = tx.record(&place)?;
            let was_alive = known.as_ref().is_some_and(|member| is_alive(member, tx.now()));
            if known.is_some() {
                tx.remove(place);
            }
            Ok(was_alive)
        })
        .await
    }
}

fn is_alive(member: &Member, now: Timestamp) -> bool {
    now < member.expires_at
}

fn sweep(tx: &mut Tx<'_>, group: &SubscriptionName) -> Result<()> {
    let now = tx.now();
    let is_old = |member: &Member| member.expires_at.saturating_add(KEEP_DEAD_MEMBERS) < now;
    let mut old = Vec::new();
    for member in tx.records::<Member>(&places::members(group)) {
        let member = member?;
        if is_old(&member) {
            old.push(member.member);
        }
    }
    for member in old {
        tx.remove(places::member(group, &member));
    }
    Ok(())
}
