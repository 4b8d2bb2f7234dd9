//! Timers (M1, M2), by the server's clock.

use std::time::Duration;

use async_trait::async_trait;
use mongodb::bson::{Bson, Document, RawDocument, doc};
use wow_store_api::{
    AggregateId, AggregateType, ClaimTimers, ContextName, Due, Result, ScheduleTimer, Timer, TimerClaim,
    TimerId, TimerScheduled, TimerToken, Timers, Timestamp, rules,
};

use super::{later, lease, limit};
use crate::{
    attempts::Kind,
    db::{Find, Work},
    document::{self, Fields as _, Writer, instant},
    fault::Fault,
    macros::{attempt, transaction},
    names,
    store::{Inner, MongoStore},
};

pub(crate) fn read(found: &RawDocument, context: &ContextName) -> Result<Timer, Fault> {
    let target = match found.value("target")? {
        Some(_) => {
            let target = found.part("target")?;
            let aggregate_type =
                AggregateType::from_names(target.name("context")?, target.name("aggregate")?)?;
            let id = AggregateId::of(aggregate_type, target.text("id")?)?;
            Some(match target.text_or_none("tenant")? {
                Some(tenant) => id.with_tenant(tenant)?,
                None => id,
            })
        }
        None => None,
    };
    let claim = match found.value("claim")? {
        Some(_) => {
            let claim = found.part("claim")?;
            Some(TimerClaim {
                member: claim.name("member")?,
                claim: claim.uuid("claim")?,
                expires_at: claim.instant("expires_at")?,
            })
        }
        None => None,
    };
    Ok(Timer {
        context: context.clone(),
        id: found.name("_id")?,
        due_at: found.instant("due_at")?,
        target,
        body: found.payload("body")?,
        scheduled_at: found.instant("scheduled_at")?,
        attempts: u32::try_from(found.counter("attempts")?).unwrap_or(u32::MAX),
        claim,
    })
}

fn write_target(to: &mut Writer, target: Option<&AggregateId>) {
    let Some(target) = target else { return };
    to.begin_document("target");
    to.text("context", target.context().as_str());
    to.text("aggregate", target.aggregate_type().name().as_str());
    if let Some(tenant) = target.tenant() {
        to.text("tenant", tenant);
    }
    to.text("id", target.id());
    to.close();
}

/// Stores a timer that the transaction read.
pub(crate) async fn put(work: &mut Work<'_>, timer: &Timer) -> Result<(), Fault> {
    let mut to = Writer::new();
    to.text("_id", timer.id.as_str());
    to.instant("due_at", timer.due_at);
    write_target(&mut to, timer.target.as_ref());
    to.payload("body", &timer.body)?;
    to.instant("scheduled_at", timer.scheduled_at);
    to.int64("attempts", i64::from(timer.attempts));
    if let Some(claim) = &timer.claim {
        to.begin_document("claim");
        to.text("member", claim.member.as_str());
        to.uuid("claim", claim.claim);
        to.instant("expires_at", claim.expires_at);
        to.close();
    }
    to.instant("claimable_at", timer.claimable_at());
    work.put(&names::timer(&timer.context), to.finish()?).await
}

impl Inner {
    async fn schedule_in(
        &self,
        work: &mut Work<'_>,
        schedule: &ScheduleTimer,
    ) -> Result<TimerScheduled, Fault> {
        lease::check_fence(work, schedule.fence.as_ref()).await?;
        let collection = names::timer(&schedule.context);
        let known = work.find_one(&collection, doc! { "_id": schedule.id.as_str() }).await?;
        let known = known.map(|known| read(&known, &schedule.context)).transpose()?;
        let now = self.now_in(work).await?;
        let scheduled = rules::timer::schedule(schedule.clone(), known.as_ref(), now);
        if let TimerScheduled::Scheduled(timer) = &scheduled {
            put(work, timer).await?;
        }
        Ok(scheduled)
    }

    /// Without a fence: in one step.
    async fn schedule_at_once(&self, schedule: &ScheduleTimer) -> Result<TimerScheduled, Fault> {
        let (context, collection) = (&schedule.context, names::timer(&schedule.context));
        let due_at = match schedule.due {
            Due::At(at) => Bson::DateTime(instant(at)),
            Due::After(duration) => later(self.now(), duration),
        };
        let mut fixed = Writer::new();
        fixed.text("_id", schedule.id.as_str());
        write_target(&mut fixed, schedule.target.as_ref());
        fixed.payload("body", &schedule.body)?;
        fixed.int64("attempts", 0);
        let fixed = Document::try_from(&fixed.finish()?).map_err(|_| crate::db::strange())?;
        // All of it is a literal, whatever is in the body; only the instants are worked out.
        let scheduled = vec![
            doc! { "$replaceWith": { "$literal": fixed } },
            doc! { "$set": { "due_at": due_at, "scheduled_at": self.now() } },
            doc! { "$set": { "claimable_at": "$due_at" } },
        ];
        let mut filter = doc! { "_id": schedule.id.as_str() };
        if !schedule.replace {
            // Found by nothing that is there, so that only a new one is made.
            filter.insert("attempts", doc! { "$lt": -1 });
        }
        match self.db.modify(&collection, filter, scheduled, true).await {
            Ok(made) => {
                let made = made.ok_or_else(Fault::overtaken)?;
                return Ok(TimerScheduled::Scheduled(read(&made, context)?));
            }
            Err(fault) if fault.is_duplicate() && !schedule.replace => {}
            Err(fault) => return Err(fault),
        }
        let known = self.db.find_one(&collection, Find::new(doc! { "_id": schedule.id.as_str() })).await?;
        let known = known.ok_or_else(Fault::overtaken)?;
        Ok(TimerScheduled::Exists(read(&known, context)?))
    }

    /// What can be claimed now.
    fn claimable(&self) -> Document {
        doc! { "$and": [
            { "$lte": ["$due_at", self.now()] },
            { "$lte": ["$claimable_at", self.now()] },
        ] }
    }

    /// Whether there is anything to claim: most of the time there is not, and that costs no transaction.
    async fn is_any_claimable(&self, context: &ContextName) -> Result<bool, Fault> {
        let find = Find::new(doc! { "$expr": self.claimable() }).only(doc! { "_id": 1 });
        Ok(self.db.find_one(&names::timer(context), find).await?.is_some())
    }

    /// Looks for timers, takes each under a claim of its own, and reads what was taken: as of one moment. Of two claims
    /// that want the same timers one is aborted, and looks again.
    async fn claim(&self, work: &mut Work<'_>, request: &ClaimTimers) -> Result<Vec<Timer>, Fault> {
        let collection = names::timer(&request.context);
        let due = vec![
            doc! { "$match": { "$expr": self.claimable() } },
            doc! { "$sort": { "due_at": 1, "_id": 1 } },
            doc! { "$limit": i64::try_from(limit(request.limit)).unwrap_or(i64::MAX) },
            doc! { "$project": { "_id": 1 } },
        ];
        let mut ids = Vec::new();
        for found in work.aggregate(&collection, due).await? {
            ids.push(found.text("_id")?.to_owned());
        }
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let turn = document::uuid(uuid::Uuid::new_v4());
        let takes = ids.iter().map(|id| {
            let expires_at = later(self.now(), request.ttl);
            let claim = doc! {
                "member": { "$literal": request.member.as_str() },
                "claim": document::uuid(uuid::Uuid::new_v4()),
                "turn": turn,
                "expires_at": expires_at.clone(),
            };
            doc! {
                "q": { "_id": id },
                "u": [{ "$set": {
                    "attempts": { "$add": ["$attempts", 1_i64] },
                    "claim": claim,
                    "claimable_at": { "$max": ["$due_at", expires_at] },
                } }],
            }
        });
        work.update_each(&collection, takes.collect()).await?;
        let taken = vec![
            doc! { "$match": { "_id": { "$in": &ids }, "claim.turn": turn } },
            doc! { "$sort": { "due_at": 1, "_id": 1 } },
        ];
        let taken = work.aggregate(&collection, taken).await?;
        taken.iter().map(|found| read(found, &request.context)).collect()
    }
}

fn claimed(token: &TimerToken) -> Document {
    doc! { "_id": token.id.as_str(), "claim.claim": document::uuid(token.claim) }
}

#[async_trait]
impl Timers for MongoStore {
    async fn schedule_timer(&self, schedule: ScheduleTimer) -> Result<TimerScheduled> {
        const OPERATION: &str = "schedule_timer";
        self.check_open(OPERATION)?;
        let inner = &self.inner;
        inner.use_timers(&schedule.context).await?;
        let kind = if schedule.replace { Kind::Repeatable } else { Kind::Once };
        match schedule.fence {
            Some(_) => transaction!(inner, kind, OPERATION, |work| inner.schedule_in(work, &schedule).await),
            None => attempt!(inner, kind, OPERATION, inner.schedule_at_once(&schedule).await),
        }
    }

    async fn cancel_timer(&self, context: &ContextName, id: &TimerId) -> Result<bool> {
        self.check_open("cancel_timer")?;
        attempt!(self.inner, Kind::Once, "cancel_timer", {
            let filter = doc! { "_id": id.as_str() };
            Ok(self.inner.db.delete(&names::timer(context), filter).await?.is_some())
        })
    }

    async fn claim_timers(&self, claim: ClaimTimers) -> Result<Vec<Timer>> {
        self.check_open("claim_timers")?;
        let inner = &self.inner;
        claim.check().map_err(|error| inner.named("claim_timers", error))?;
        let any = attempt!(inner, Kind::Read, "claim_timers", inner.is_any_claimable(&claim.context).await);
        if !any? {
            return Ok(Vec::new());
        }
        // A claim whose reply is lost expires, as that of a node that crashed.
        transaction!(inner, Kind::Repeatable, "claim_timers", |work| inner.claim(work, &claim).await)
    }

    async fn complete_timer(&self, token: &TimerToken) -> Result<bool> {
        self.check_open("complete_timer")?;
        attempt!(self.inner, Kind::Once, "complete_timer", {
            Ok(self.inner.db.delete(&names::timer(&token.context), claimed(token)).await?.is_some())
        })
    }

    async fn release_timer(&self, token: &TimerToken, retry_in: Duration) -> Result<bool> {
        self.check_open("release_timer")?;
        let inner = &self.inner;
        attempt!(inner, Kind::Once, "release_timer", {
            let due_at = if retry_in.is_zero() { "$due_at".into() } else { later(inner.now(), retry_in) };
            let update = vec![
                doc! { "$set": { "due_at": due_at.clone(), "claimable_at": due_at } },
                doc! { "$unset": "claim" },
            ];
            let found = inner.db.modify(&names::timer(&token.context), claimed(token), update, false).await?;
            Ok(found.is_some())
        })
    }

    async fn next_due(&self, context: &ContextName) -> Result<Option<Timestamp>> {
        self.check_open("next_due")?;
        let find = Find::new(doc! {}).sorted(doc! { "claimable_at": 1 }).only(doc! { "claimable_at": 1 });
        attempt!(self.inner, Kind::Read, "next_due", {
            let next = self.inner.db.find_one(&names::timer(context), find.clone()).await?;
            next.map(|next| next.instant("claimable_at")).transpose()
        })
    }

    async fn timers(
        &self,
        context: &ContextName,
        after: Option<&TimerId>,
        most: usize,
    ) -> Result<Vec<Timer>> {
        self.check_open("timers")?;
        if most == 0 {
            return Ok(Vec::new());
        }
        // Every id is behind the empty text.
        let filter = doc! { "_id": { "$gt": after.map_or("", TimerId::as_str) } };
        let find = Find::new(filter).sorted(doc! { "_id": 1 }).limited(limit(most));
        attempt!(self.inner, Kind::Read, "timers", {
            let found = self.inner.db.find(&names::timer(context), find.clone()).await?;
            found.iter().map(|found| read(found, context)).collect()
        })
    }
}
