//! Timers (M1, M2).

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgArguments, PgRow};
use uuid::Uuid;
use wow_store_api::{
    AggregateId, AggregateType, ClaimTimers, ContextName, Due, Error, Result, ScheduleTimer, Timer,
    TimerClaim, TimerId, TimerScheduled, TimerToken, Timers, Timestamp, expiry, rules,
};

use super::{limit, millis};
use crate::{
    attempts::Kind,
    fault::Fault,
    macros::{args, attempt},
    names,
    pool::{Conn, Sql},
    store::{Inner, PostgresStore},
    value::{Cells as _, Instant},
};

/// What a timer is read from.
const COLUMNS: &str = "t.id, t.due_at, t.target_context, t.target_aggregate, t.target_tenant, t.target_id, t.body::text, \
                       t.scheduled_at, t.attempts, t.claim_member, t.claim, t.claim_expires_at";

fn timer(row: &PgRow, context: &ContextName) -> Result<Timer, Fault> {
    let target = match row.name_or_none(2)? {
        Some(target_context) => {
            let aggregate_type = AggregateType::from_names(target_context, row.name(3)?)?;
            let id = AggregateId::of(aggregate_type, row.cell::<&str>(5)?)?;
            Some(match row.cell::<Option<&str>>(4)? {
                Some(tenant) => id.with_tenant(tenant)?,
                None => id,
            })
        }
        None => None,
    };
    let claim = match (row.name_or_none(9)?, row.cell::<Option<Uuid>>(10)?, row.instant_or_none(11)?) {
        (Some(member), Some(claim), Some(expires_at)) => Some(TimerClaim { member, claim, expires_at }),
        (None, None, None) => None,
        _ => return Err(Fault::from(Error::corrupt("a timer", "half of a claim is missing"))),
    };
    Ok(Timer {
        context: context.clone(),
        id: row.name(0)?,
        due_at: row.instant(1)?,
        target,
        body: row.payload(6)?,
        scheduled_at: row.instant(7)?,
        attempts: u32::try_from(row.counter(8)?).unwrap_or(u32::MAX),
        claim,
    })
}

fn columns(timer: &Timer) -> Result<PgArguments, Fault> {
    let target = timer.target.as_ref();
    let claim = timer.claim.as_ref();
    Ok(args![
        timer.id.as_str(),
        Instant(timer.due_at),
        target.map(|id| id.context().as_str()),
        target.map(|id| id.aggregate_type().name().as_str()),
        target.and_then(AggregateId::tenant),
        target.map(AggregateId::id),
        timer.body.as_json(),
        Instant(timer.scheduled_at),
        i64::from(timer.attempts),
        claim.map(|claim| claim.member.as_str()),
        claim.map(|claim| claim.claim),
        claim.map(|claim| Instant(claim.expires_at)),
        Instant(timer.claimable_at()),
    ])
}

impl Inner {
    /// SQL on a context's timers, `{timer}`.
    fn timer_sql(&self, context: &ContextName, template: &str) -> Sql {
        let table = self.schema.at(&names::timer(context));
        Sql::from(self.schema.sql_with(template, &[("timer", &table), ("columns", COLUMNS)]))
    }

    /// A timer, locked until the end of the transaction. One that is not there is locked by a row that holds its place,
    /// and is to be put or deleted.
    pub(crate) async fn lock_timer(
        &self,
        conn: &mut Conn,
        context: &ContextName,
        id: &TimerId,
    ) -> Result<Option<Timer>, Fault> {
        let place = self.timer_sql(
            context,
            "INSERT INTO {timer} (id, due_at, body, scheduled_at, attempts, claimable_at) \
             VALUES ($1, 'epoch', 'null', 'epoch', 0, 'epoch') ON CONFLICT DO NOTHING",
        );
        let lock = self.timer_sql(context, "SELECT {columns} FROM {timer} AS t WHERE t.id = $1 FOR UPDATE");
        loop {
            if conn.execute(&place, args![id.as_str()]).await? > 0 {
                return Ok(None);
            }
            if let Some(row) = conn.row(&lock, args![id.as_str()]).await? {
                return Ok(Some(timer(&row, context)?));
            }
        }
    }

    /// Stores a timer whose row is locked.
    pub(crate) async fn put_timer(&self, conn: &mut Conn, timer: &Timer) -> Result<(), Fault> {
        let sql = self.timer_sql(
            &timer.context,
            "UPDATE {timer} SET due_at = $2, target_context = $3, target_aggregate = $4, target_tenant = $5, \
                    target_id = $6, body = $7::text::jsonb, scheduled_at = $8, attempts = $9, claim_member = $10, \
                    claim = $11, claim_expires_at = $12, claimable_at = $13 \
             WHERE id = $1",
        );
        conn.execute(&sql, columns(timer)?).await?;
        Ok(())
    }

    pub(crate) async fn delete_timer(
        &self,
        conn: &mut Conn,
        context: &ContextName,
        id: &TimerId,
    ) -> Result<bool, Fault> {
        let sql = self.timer_sql(context, "DELETE FROM {timer} WHERE id = $1");
        Ok(conn.execute(&sql, args![id.as_str()]).await? > 0)
    }

    async fn schedule_in(&self, conn: &mut Conn, schedule: &ScheduleTimer) -> Result<TimerScheduled, Fault> {
        let context = &schedule.context;
        conn.begin().await?;
        self.check_fence(conn, schedule.fence.as_ref()).await?;
        let known = self.lock_timer(conn, context, &schedule.id).await?;
        let now = self.now_in(conn).await?;
        let outcome = rules::timer::schedule(schedule.clone(), known.as_ref(), now);
        if let TimerScheduled::Scheduled(timer) = &outcome {
            self.put_timer(conn, timer).await?;
        }
        // Also what was only looked at: a newer epoch of the fence is remembered.
        conn.commit().await?;
        Ok(outcome)
    }

    /// The same in one statement, where no lease has to be looked at.
    async fn schedule_at_once(
        &self,
        conn: &mut Conn,
        schedule: &ScheduleTimer,
    ) -> Result<TimerScheduled, Fault> {
        let context = &schedule.context;
        let template = format!(
            "INSERT INTO {{timer}} AS t (id, due_at, target_context, target_aggregate, target_tenant, target_id, body, \
                    scheduled_at, attempts, claimable_at) \
             SELECT $1, d.due_at, $4, $5, $6, $7, $8::text::jsonb, d.now, 0, d.due_at \
             FROM (SELECT c.now, coalesce($2, least(c.now + $3::bigint * interval '1 millisecond', $9)) AS due_at \
                   FROM (SELECT {{now}} AS now) AS c) AS d \
             ON CONFLICT (id) {} RETURNING {{columns}}",
            if schedule.replace {
                "DO UPDATE SET due_at = EXCLUDED.due_at, target_context = EXCLUDED.target_context, \
                 target_aggregate = EXCLUDED.target_aggregate, target_tenant = EXCLUDED.target_tenant, \
                 target_id = EXCLUDED.target_id, body = EXCLUDED.body, scheduled_at = EXCLUDED.scheduled_at, \
                 attempts = 0, claim_member = NULL, claim = NULL, claim_expires_at = NULL, \
                 claimable_at = EXCLUDED.claimable_at"
            } else {
                "DO NOTHING"
            }
        );
        let sql = self.timer_sql(context, &template);
        let (at, after) = match schedule.due {
            Due::At(instant) => (Some(instant), None),
            // In whole milliseconds, rounded up, and no later than the last instant.
            Due::After(duration) => (None, Some(expiry(Timestamp::UNIX_EPOCH, duration).as_millis())),
        };
        let target = schedule.target.as_ref();
        let arguments = args![
            schedule.id.as_str(),
            at.map(Instant),
            after,
            target.map(|id| id.context().as_str()),
            target.map(|id| id.aggregate_type().name().as_str()),
            target.and_then(AggregateId::tenant),
            target.map(AggregateId::id),
            schedule.body.as_json(),
            Instant(Timestamp::MAX),
        ];
        if let Some(row) = conn.row(&sql, arguments).await? {
            return Ok(TimerScheduled::Scheduled(timer(&row, context)?));
        }
        let sql = self.timer_sql(context, "SELECT {columns} FROM {timer} AS t WHERE t.id = $1");
        let known = conn.row(&sql, args![schedule.id.as_str()]).await?;
        let known = known.ok_or_else(Fault::overtaken)?;
        Ok(TimerScheduled::Exists(timer(&known, context)?))
    }
}

/// What a context without timers answers: its table comes with the first one.
fn or_none<T>(result: Result<T, Fault>, none: T) -> Result<T, Fault> {
    match result {
        Err(fault) if fault.is_missing() => Ok(none),
        other => other,
    }
}

#[async_trait]
impl Timers for PostgresStore {
    async fn schedule_timer(&self, schedule: ScheduleTimer) -> Result<TimerScheduled> {
        self.check_open("schedule_timer")?;
        self.inner.use_timers(&schedule.context).await?;
        let kind = if schedule.replace { Kind::Repeatable } else { Kind::Once };
        attempt!(self.inner, kind, "schedule_timer", |conn| {
            match schedule.fence {
                Some(_) => self.inner.schedule_in(conn, &schedule).await,
                None => self.inner.schedule_at_once(conn, &schedule).await,
            }
        })
    }

    async fn cancel_timer(&self, context: &ContextName, id: &TimerId) -> Result<bool> {
        self.check_open("cancel_timer")?;
        attempt!(self.inner, Kind::Once, "cancel_timer", |conn| {
            or_none(self.inner.delete_timer(conn, context, id).await, false)
        })
    }

    async fn claim_timers(&self, claim: ClaimTimers) -> Result<Vec<Timer>> {
        self.check_open("claim_timers")?;
        let inner = &self.inner;
        claim.check().map_err(|error| inner.named("claim_timers", error))?;
        let context = &claim.context;
        // Claims take turns, or one would skip what the other is about to leave, and take what is due later. What
        // others hold is skipped: a claim waits for claims only.
        let turn = inner.schema.lock_key(&format!("timers {context}"));
        let sql = inner.timer_sql(
            context,
            "WITH turn AS MATERIALIZED (
                 SELECT pg_catalog.pg_advisory_xact_lock($4) AS taken
             ), clock AS MATERIALIZED (
                 SELECT {now} AS now FROM turn
             ), due AS MATERIALIZED (
                 SELECT t.id FROM {timer} AS t
                 WHERE t.due_at <= (SELECT now FROM clock) AND t.claimable_at <= (SELECT now FROM clock)
                 ORDER BY t.due_at, t.id LIMIT $1 FOR UPDATE OF t SKIP LOCKED
             )
             UPDATE {timer} AS t
             SET attempts = t.attempts + 1, claim_member = $2, claim = pg_catalog.gen_random_uuid(),
                 claim_expires_at = c.now + $3::bigint * interval '1 millisecond',
                 claimable_at = greatest(t.due_at, c.now + $3::bigint * interval '1 millisecond')
             FROM due AS d CROSS JOIN clock AS c WHERE t.id = d.id
             RETURNING {columns}",
        );
        // A claim whose reply is lost expires, as that of a node that crashed.
        attempt!(inner, Kind::Repeatable, "claim_timers", |conn| {
            let arguments = args![limit(claim.limit), claim.member.as_str(), millis(claim.ttl), turn];
            let rows = or_none(conn.rows(&sql, arguments).await, Vec::new())?;
            let claimed = rows.iter().map(|row| timer(row, context)).collect::<Result<Vec<_>, _>>();
            let mut claimed = claimed?;
            claimed.sort_by(|a, b| (a.due_at, &a.id).cmp(&(b.due_at, &b.id)));
            Ok(claimed)
        })
    }

    async fn complete_timer(&self, token: &TimerToken) -> Result<bool> {
        self.check_open("complete_timer")?;
        let sql = self.inner.timer_sql(&token.context, "DELETE FROM {timer} WHERE id = $1 AND claim = $2");
        attempt!(self.inner, Kind::Once, "complete_timer", |conn| {
            let done = conn.execute(&sql, args![token.id.as_str(), token.claim]).await;
            Ok(or_none(done, 0)? > 0)
        })
    }

    async fn release_timer(&self, token: &TimerToken, retry_in: Duration) -> Result<bool> {
        self.check_open("release_timer")?;
        let sql = self.inner.timer_sql(
            &token.context,
            "UPDATE {timer} AS t
             SET claim_member = NULL, claim = NULL, claim_expires_at = NULL, due_at = d.due_at,
                 claimable_at = d.due_at
             FROM (SELECT CASE WHEN $3::bigint = 0 THEN NULL
                               ELSE least({now}
                                          + $3::bigint * interval '1 millisecond', $4) END AS again) AS n,
                  LATERAL (SELECT coalesce(n.again, o.due_at) AS due_at FROM {timer} AS o WHERE o.id = $1) AS d
             WHERE t.id = $1 AND t.claim = $2",
        );
        let retry_in = expiry(Timestamp::UNIX_EPOCH, retry_in).as_millis();
        attempt!(self.inner, Kind::Once, "release_timer", |conn| {
            let arguments = args![token.id.as_str(), token.claim, retry_in, Instant(Timestamp::MAX)];
            Ok(or_none(conn.execute(&sql, arguments).await, 0)? > 0)
        })
    }

    async fn next_due(&self, context: &ContextName) -> Result<Option<Timestamp>> {
        self.check_open("next_due")?;
        let sql =
            self.inner.timer_sql(context, "SELECT claimable_at FROM {timer} ORDER BY claimable_at LIMIT 1");
        attempt!(self.inner, Kind::Read, "next_due", |conn| {
            let next = or_none(conn.row(&sql, args![]).await, None)?;
            next.map(|row| row.instant(0)).transpose()
        })
    }

    async fn timers(
        &self,
        context: &ContextName,
        after: Option<&TimerId>,
        most: usize,
    ) -> Result<Vec<Timer>> {
        self.check_open("timers")?;
        let sql = self
            .inner
            .timer_sql(context, "SELECT {columns} FROM {timer} AS t WHERE t.id > $1 ORDER BY t.id LIMIT $2");
        attempt!(self.inner, Kind::Read, "timers", |conn| {
            // Every id is behind the empty text.
            let after = after.map_or("", TimerId::as_str);
            let rows = or_none(conn.rows(&sql, args![after, limit(most)]).await, Vec::new())?;
            rows.iter().map(|row| timer(row, context)).collect()
        })
    }
}
