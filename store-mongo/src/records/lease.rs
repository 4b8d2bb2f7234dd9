//! Leases and members (E1 to E3).
//!
//! A lease is one document, changed in one step by the server's clock. Its epoch stays when it is released.

use std::time::Duration;

use async_trait::async_trait;
use mongodb::bson::{Bson, Document, RawDocument, doc};
use wow_store_api::{
    AcquireLease, ContextName, Error, ErrorKind, Fence, Heartbeat, Lease, LeaseAcquired, LeaseRenewed,
    LeaseToken, Leases, MAX_COUNTER, Member, MemberId, PartitionId, Result, SubscriptionName, Timestamp,
    check_ttl, rules,
};

use super::{later, starting_with};
use crate::{
    attempts::Kind,
    db::{Find, Work, literal},
    document::{self, Fields as _, Writer, instant, int, long},
    fault::Fault,
    macros::{attempt, transaction},
    names,
    store::{Inner, MongoStore},
};

fn id(group: &SubscriptionName, partition: &PartitionId) -> Document {
    doc! {
        "group": group.as_str(),
        "context": partition.context().as_str(),
        "partition": int(partition.index()),
    }
}

/// A lease; none if its epoch is 0, which only holds a place.
fn read(found: &RawDocument) -> Result<Option<Lease>, Fault> {
    let id = found.part("_id")?;
    let epoch = found.counter("epoch")?;
    if epoch == 0 {
        return Ok(None);
    }
    Ok(Some(Lease {
        group: id.name("group")?,
        partition: PartitionId::new(id.name("context")?, id.number("partition")?),
        owner: found.name_or_none("owner")?,
        epoch,
        expires_at: found.instant("expires_at")?,
    }))
}

/// A lease as it is known, kept from being changed by others until the transaction ends.
pub(crate) async fn touch(
    work: &mut Work<'_>,
    group: &SubscriptionName,
    partition: &PartitionId,
) -> Result<Option<Lease>, Fault> {
    let update = doc! { "$set": {
        "epoch": { "$ifNull": ["$epoch", 0_i64] },
        "expires_at": { "$ifNull": ["$expires_at", instant(Timestamp::UNIX_EPOCH)] },
        "touched": { "$add": [{ "$ifNull": ["$touched", 0_i64] }, 1_i64] },
    } };
    let found = work.modify(names::LEASE, doc! { "_id": id(group, partition) }, vec![update], true).await?;
    read(&found.ok_or_else(Fault::overtaken)?)
}

/// Stores a lease that was touched.
pub(crate) async fn put(work: &mut Work<'_>, lease: &Lease) -> Result<(), Fault> {
    let mut to = Writer::new();
    to.begin_document("_id");
    to.text("group", lease.group.as_str());
    to.text("context", lease.partition.context().as_str());
    to.int32("partition", int(lease.partition.index()));
    to.close();
    if let Some(owner) = &lease.owner {
        to.text("owner", owner.as_str());
    }
    to.int64("epoch", long(lease.epoch));
    to.instant("expires_at", lease.expires_at);
    work.put(names::LEASE, to.finish()?).await
}

/// Refuses a write whose lease was overtaken, and remembers a newer epoch (L7).
pub(super) async fn check_fence(work: &mut Work<'_>, fence: Option<&Fence>) -> Result<(), Fault> {
    let Some(fence) = fence else { return Ok(()) };
    let known = touch(work, &fence.group, &fence.partition).await?;
    if let Some(lease) = rules::fence::check(fence, known.as_ref())? {
        put(work, &lease).await?;
    }
    Ok(())
}

impl Inner {
    /// One attempt. `grant` names the request, so that one whose reply was lost finds what it got.
    async fn acquire(&self, request: &AcquireLease, grant: uuid::Uuid) -> Result<LeaseAcquired, Fault> {
        let key = id(&request.group, &request.partition);
        let now = self.now();
        let free = doc! { "$or": [
            { "$eq": [{ "$ifNull": ["$owner", Bson::Null] }, Bson::Null] },
            { "$lte": ["$expires_at", now.clone()] },
        ] };
        let filter = doc! {
            "_id": key.clone(),
            "epoch": { "$lt": long(MAX_COUNTER) },
            "$expr": free,
        };
        let update = doc! { "$set": {
            "owner": literal(request.member.as_str()),
            "epoch": { "$add": ["$epoch", 1_i64] },
            "expires_at": later(now, request.ttl),
            "grant": document::uuid(grant),
        } };
        if let Some(taken) = self.db.modify(names::LEASE, filter, vec![update], false).await? {
            let lease = read(&taken)?.ok_or_else(Fault::overtaken)?;
            return Ok(LeaseAcquired::Acquired(lease));
        }
        let found = self.db.find_one(names::LEASE, Find::new(doc! { "_id": key.clone() })).await?;
        let Some(found) = found else {
            // Its place is made, then it is asked for again.
            let place = doc! { "$setOnInsert": {
                "epoch": 0_i64,
                "expires_at": instant(Timestamp::UNIX_EPOCH),
            } };
            self.db.update(names::LEASE, doc! { "_id": key }, place, true).await?;
            return Err(Fault::overtaken());
        };
        let known = read(&found)?;
        match known {
            // The reply of an earlier attempt was lost.
            Some(lease) if found.uuid("grant").is_ok_and(|it| it == grant) => {
                Ok(LeaseAcquired::Acquired(lease))
            }
            Some(lease)
                if lease.epoch == MAX_COUNTER && lease.live_owner(self.server_time().await?).is_none() =>
            {
                let exhausted = ErrorKind::Exhausted { what: "epochs of a lease" };
                Err(Fault::from(Error::not_applied(exhausted)))
            }
            Some(held) if held.owner.is_some() => Ok(LeaseAcquired::Held(held)),
            // It was given back in between.
            Some(_) | None => Err(Fault::overtaken()),
        }
    }

    async fn renew(
        &self,
        work: &mut Work<'_>,
        tokens: &[LeaseToken],
        ttl: Duration,
    ) -> Result<Vec<LeaseRenewed>, Fault> {
        let renewal = uuid::Uuid::new_v4();
        let asked: Vec<Document> = tokens
            .iter()
            .map(|token| {
                doc! {
                    "_id": id(&token.group, &token.partition),
                    "owner": token.member.as_str(),
                    "epoch": long(token.epoch),
                }
            })
            .collect();
        let filter = doc! { "$or": asked, "$expr": { "$gt": ["$expires_at", self.now()] } };
        let update = doc! { "$set": {
            "expires_at": later(self.now(), ttl),
            "renewal": document::uuid(renewal),
        } };
        work.update_all(names::LEASE, filter, vec![update]).await?;
        let pipeline = vec![doc! { "$match": {
            "_id": { "$in": tokens.iter().map(|token| id(&token.group, &token.partition)).collect::<Vec<_>>() },
            "renewal": document::uuid(renewal),
        } }];
        let mut renewed = Vec::new();
        for found in work.aggregate(names::LEASE, pipeline).await? {
            renewed.extend(read(&found)?);
        }
        let is_of = |token: &LeaseToken, lease: &Lease| {
            lease.owner.as_ref() == Some(&token.member) && lease.token(&token.member) == *token
        };
        let answer = |token: &LeaseToken| {
            let lease = renewed.iter().find(|lease| is_of(token, lease));
            lease.map_or(LeaseRenewed::Lost, |lease| LeaseRenewed::Renewed(lease.expires_at))
        };
        Ok(tokens.iter().map(answer).collect())
    }
}

fn member(found: &RawDocument) -> Result<Member, Fault> {
    let id = found.part("_id")?;
    Ok(Member {
        group: id.name("group")?,
        member: id.name("member")?,
        joined_at: found.instant("joined_at")?,
        expires_at: found.instant("expires_at")?,
    })
}

fn member_id(group: &SubscriptionName, member: &MemberId) -> Document {
    doc! { "group": group.as_str(), "member": member.as_str() }
}

#[async_trait]
impl Leases for MongoStore {
    async fn acquire_lease(&self, request: AcquireLease) -> Result<LeaseAcquired> {
        self.check_open("acquire_lease")?;
        let inner = &self.inner;
        check_ttl("lease", request.ttl).map_err(|error| inner.named("acquire_lease", error))?;
        let grant = uuid::Uuid::new_v4();
        attempt!(inner, Kind::Repeatable, "acquire_lease", inner.acquire(&request, grant).await)
    }

    async fn renew_leases(&self, tokens: &[LeaseToken], ttl: Duration) -> Result<Vec<LeaseRenewed>> {
        self.check_open("renew_leases")?;
        let inner = &self.inner;
        check_ttl("lease", ttl).map_err(|error| inner.named("renew_leases", error))?;
        if tokens.is_empty() {
            return Ok(Vec::new());
        }
        transaction!(inner, Kind::Repeatable, "renew_leases", |work| inner.renew(work, tokens, ttl).await)
    }

    async fn release_lease(&self, token: &LeaseToken) -> Result<bool> {
        self.check_open("release_lease")?;
        let filter = doc! {
            "_id": id(&token.group, &token.partition),
            "owner": token.member.as_str(),
            "epoch": long(token.epoch),
        };
        attempt!(self.inner, Kind::Once, "release_lease", {
            let release = doc! { "$unset": { "owner": "" } };
            Ok(self.inner.db.update(names::LEASE, filter.clone(), release, false).await? > 0)
        })
    }

    async fn leases(&self, group: &SubscriptionName, context: &ContextName) -> Result<Vec<Lease>> {
        self.check_open("leases")?;
        let of_group = doc! { "group": group.as_str(), "context": context.as_str() };
        let find = Find::new(starting_with(&of_group, "partition")).sorted(doc! { "_id": 1 });
        attempt!(self.inner, Kind::Read, "leases", {
            let found = self.inner.db.find(names::LEASE, find.clone()).await?;
            let leases = found.iter().map(|found| read(found)).collect::<Result<Vec<_>, _>>()?;
            Ok(leases.into_iter().flatten().collect())
        })
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<Member> {
        self.check_open("heartbeat")?;
        let inner = &self.inner;
        check_ttl("heartbeat", heartbeat.ttl).map_err(|error| inner.named("heartbeat", error))?;
        attempt!(inner, Kind::Repeatable, "heartbeat", {
            let now = inner.now();
            let update = doc! { "$set": {
                "joined_at": { "$cond": [{ "$gt": ["$expires_at", now.clone()] }, "$joined_at", now.clone()] },
                "expires_at": later(now, heartbeat.ttl),
            } };
            let filter = doc! { "_id": member_id(&heartbeat.group, &heartbeat.member) };
            let found = inner.db.modify(names::LEASE_MEMBER, filter, vec![update], true).await?;
            member(&found.ok_or_else(Fault::overtaken)?)
        })
    }

    async fn members(&self, group: &SubscriptionName) -> Result<Vec<Member>> {
        self.check_open("members")?;
        attempt!(self.inner, Kind::Read, "members", {
            let mut filter = starting_with(&doc! { "group": group.as_str() }, "member");
            filter.insert("$expr", doc! { "$gt": ["$expires_at", self.inner.now()] });
            let find = Find::new(filter).sorted(doc! { "_id": 1 });
            let found = self.inner.db.find(names::LEASE_MEMBER, find).await?;
            found.iter().map(|found| member(found)).collect()
        })
    }

    async fn leave(&self, group: &SubscriptionName, member: &MemberId) -> Result<bool> {
        self.check_open("leave")?;
        attempt!(self.inner, Kind::Once, "leave", {
            // One that was not alive any more was not there.
            let mut filter = doc! { "_id": member_id(group, member) };
            filter.insert("$expr", doc! { "$gt": ["$expires_at", self.inner.now()] });
            Ok(self.inner.db.delete(names::LEASE_MEMBER, filter).await?.is_some())
        })
    }
}
