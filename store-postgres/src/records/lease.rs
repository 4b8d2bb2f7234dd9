//! Leases and members (E1 to E3).

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use wow_store_api::{
    AcquireLease, ContextName, Error, ErrorKind, Fence, Heartbeat, Lease, LeaseAcquired, LeaseRenewed,
    LeaseToken, Leases, Member, MemberId, PartitionId, Result, SubscriptionName, check_ttl, rules,
};

use super::millis;
use crate::{
    attempts::Kind,
    fault::Fault,
    macros::{args, attempt},
    pool::Conn,
    store::{Inner, PostgresStore},
    value::{Cells as _, Instant, bigint, integer},
};

/// A lease from `owner, epoch, expires_at`; none if its epoch is 0.
fn lease(row: &PgRow, group: &SubscriptionName, partition: PartitionId) -> Result<Option<Lease>, Fault> {
    let epoch = row.counter(1)?;
    let lease = Lease {
        group: group.clone(),
        partition,
        owner: row.name_or_none(0)?,
        epoch,
        expires_at: row.instant(2)?,
    };
    Ok((epoch > 0).then_some(lease))
}

impl Inner {
    /// A lease as it is known, kept from changing until the end of the transaction.
    pub(crate) async fn share_lease(
        &self,
        conn: &mut Conn,
        group: &SubscriptionName,
        partition: &PartitionId,
    ) -> Result<Option<Lease>, Fault> {
        let (context, index) = (partition.context().as_str(), integer(partition.index()));
        loop {
            let found = conn.row(&self.statements.lease_share, args![group.as_str(), context, index]).await?;
            if let Some(row) = found {
                return lease(&row, group, partition.clone());
            }
            let place = args![group.as_str(), context, index];
            if conn.execute(&self.statements.lease_place, place).await? > 0 {
                return Ok(None);
            }
        }
    }

    /// Stores a lease whose row is locked.
    pub(crate) async fn put_lease(&self, conn: &mut Conn, lease: &Lease) -> Result<(), Fault> {
        let arguments = args![
            lease.group.as_str(),
            lease.partition.context().as_str(),
            integer(lease.partition.index()),
            lease.owner.as_ref().map(MemberId::as_str),
            bigint(lease.epoch),
            Instant(lease.expires_at),
        ];
        conn.execute(&self.statements.lease_put, arguments).await?;
        Ok(())
    }

    /// Refuses a write whose lease was overtaken, and remembers a newer epoch (L7). To be called in a transaction.
    pub(crate) async fn check_fence(&self, conn: &mut Conn, fence: Option<&Fence>) -> Result<(), Fault> {
        let Some(fence) = fence else { return Ok(()) };
        let known = self.share_lease(conn, &fence.group, &fence.partition).await?;
        if let Some(lease) = rules::fence::check(fence, known.as_ref())? {
            self.put_lease(conn, &lease).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Leases for PostgresStore {
    async fn acquire_lease(&self, request: AcquireLease) -> Result<LeaseAcquired> {
        self.check_open("acquire_lease")?;
        let inner = &self.inner;
        check_ttl("lease", request.ttl).map_err(|error| inner.named("acquire_lease", error))?;
        let (group, partition) = (&request.group, &request.partition);
        let (context, index) = (partition.context().as_str(), integer(partition.index()));
        let exhausted = Error::not_applied(ErrorKind::Exhausted { what: "epochs of a lease" });
        attempt!(inner, Kind::Once, "acquire_lease", |conn| {
            let arguments =
                args![group.as_str(), context, index, request.member.as_str(), millis(request.ttl)];
            let acquired = conn.row(&inner.statements.lease_acquire, arguments).await;
            let acquired = acquired.map_err(|fault| match fault.is_out_of_range() {
                true => Fault::from(exhausted.clone()),
                false => fault,
            })?;
            if let Some(row) = acquired {
                return Ok(LeaseAcquired::Acquired(Lease {
                    group: group.clone(),
                    partition: partition.clone(),
                    owner: Some(request.member.clone()),
                    epoch: row.counter(0)?,
                    expires_at: row.instant(1)?,
                }));
            }
            let held = conn.row(&inner.statements.lease_get, args![group.as_str(), context, index]).await?;
            match held.map(|row| lease(&row, group, partition.clone())).transpose()?.flatten() {
                Some(held) if held.owner.is_some() => Ok(LeaseAcquired::Held(held)),
                // It was given back in between.
                Some(_) | None => Err(Fault::overtaken()),
            }
        })
    }

    async fn renew_leases(&self, tokens: &[LeaseToken], ttl: Duration) -> Result<Vec<LeaseRenewed>> {
        self.check_open("renew_leases")?;
        let inner = &self.inner;
        check_ttl("lease", ttl).map_err(|error| inner.named("renew_leases", error))?;
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        attempt!(inner, Kind::Repeatable, "renew_leases", |conn| {
            let groups: Vec<&str> = tokens.iter().map(|token| token.group.as_str()).collect();
            let contexts: Vec<&str> = tokens.iter().map(|token| token.partition.context().as_str()).collect();
            let partitions: Vec<i32> = tokens.iter().map(|token| integer(token.partition.index())).collect();
            let members: Vec<&str> = tokens.iter().map(|token| token.member.as_str()).collect();
            let epochs: Vec<i64> = tokens.iter().map(|token| bigint(token.epoch)).collect();
            let arguments = args![groups, contexts, partitions, members, epochs, millis(ttl)];
            let mut renewed = HashMap::new();
            for row in conn.rows(&inner.statements.lease_renew, arguments).await? {
                let token = LeaseToken {
                    group: row.name(0)?,
                    partition: PartitionId::new(row.name(1)?, row.number(2)?),
                    member: row.name(3)?,
                    epoch: row.counter(4)?,
                };
                renewed.insert(token, row.instant(5)?);
            }
            let answer =
                |token| renewed.get(token).copied().map_or(LeaseRenewed::Lost, LeaseRenewed::Renewed);
            Ok(tokens.iter().map(answer).collect())
        })
    }

    async fn release_lease(&self, token: &LeaseToken) -> Result<bool> {
        self.check_open("release_lease")?;
        attempt!(self.inner, Kind::Once, "release_lease", |conn| {
            let arguments = args![
                token.group.as_str(),
                token.partition.context().as_str(),
                integer(token.partition.index()),
                token.member.as_str(),
                bigint(token.epoch),
            ];
            Ok(conn.execute(&self.inner.statements.lease_release, arguments).await? > 0)
        })
    }

    async fn leases(&self, group: &SubscriptionName, context: &ContextName) -> Result<Vec<Lease>> {
        self.check_open("leases")?;
        attempt!(self.inner, Kind::Read, "leases", |conn| {
            let arguments = args![group.as_str(), context.as_str()];
            let rows = conn.rows(&self.inner.statements.leases, arguments).await?;
            let leases = rows
                .iter()
                .map(|row| lease(row, group, PartitionId::new(context.clone(), row.number(3)?)))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(leases.into_iter().flatten().collect())
        })
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<Member> {
        self.check_open("heartbeat")?;
        let inner = &self.inner;
        check_ttl("heartbeat", heartbeat.ttl).map_err(|error| inner.named("heartbeat", error))?;
        attempt!(inner, Kind::Repeatable, "heartbeat", |conn| {
            let arguments = args![heartbeat.group.as_str(), heartbeat.member.as_str(), millis(heartbeat.ttl)];
            let row = conn.row(&inner.statements.heartbeat, arguments).await?;
            let row = row.ok_or_else(Fault::overtaken)?;
            Ok(Member {
                group: heartbeat.group.clone(),
                member: heartbeat.member.clone(),
                joined_at: row.instant(0)?,
                expires_at: row.instant(1)?,
            })
        })
    }

    async fn members(&self, group: &SubscriptionName) -> Result<Vec<Member>> {
        self.check_open("members")?;
        attempt!(self.inner, Kind::Read, "members", |conn| {
            let rows = conn.rows(&self.inner.statements.members, args![group.as_str()]).await?;
            rows.iter()
                .map(|row| {
                    Ok(Member {
                        group: group.clone(),
                        member: row.name(0)?,
                        joined_at: row.instant(1)?,
                        expires_at: row.instant(2)?,
                    })
                })
                .collect()
        })
    }

    async fn leave(&self, group: &SubscriptionName, member: &MemberId) -> Result<bool> {
        self.check_open("leave")?;
        attempt!(self.inner, Kind::Once, "leave", |conn| {
            let left = conn.row(&self.inner.statements.leave, args![group.as_str(), member.as_str()]).await?;
            left.map_or(Ok(false), |row| row.cell(0))
        })
    }
}
