//! The account: its events, and its state as the sum of them.

use anyhow::{Context, Result, bail};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use wow_store_api::{AggregateId, Event, RecordedCommit, Version};

/// The bounded context: it owns one log.
pub(crate) const CONTEXT: &str = "bank";

/// The account with this number.
pub(crate) fn account_id(number: &str) -> Result<AggregateId> {
    Ok(AggregateId::new(CONTEXT, "account", number)?)
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AccountOpened {
    // Money is an exact decimal all the way: 1.10 is stored as the number 1.10 and comes back as that.
    #[serde(with = "wow_store_api::payload::decimal")]
    pub(crate) deposit: Decimal,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Debited {
    #[serde(with = "wow_store_api::payload::decimal")]
    pub(crate) amount: Decimal,
    pub(crate) to: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Credited {
    #[serde(with = "wow_store_api::payload::decimal")]
    pub(crate) amount: Decimal,
    pub(crate) from: String,
}

/// Any event of an account, as read from the log.
#[derive(Debug)]
pub(crate) enum AccountEvent {
    Opened(AccountOpened),
    Debited(Debited),
    Credited(Credited),
}

impl AccountEvent {
    pub(crate) fn decode(event: &Event) -> Result<Self> {
        let decoded = match (event.name.as_str(), event.revision) {
            ("AccountOpened", 1) => event.body.decode().map(Self::Opened),
            ("Debited", 1) => event.body.decode().map(Self::Debited),
            ("Credited", 1) => event.body.decode().map(Self::Credited),
            (name, revision) => bail!("unknown event {name}, revision {revision}"),
        };
        decoded.with_context(|| format!("the body of a {} is not as expected", event.name))
    }
}

/// The state of an account: what its events add up to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Account {
    /// The version that the state is of: what the next append expects.
    pub(crate) version: Version,
    pub(crate) balance: Decimal,
}

impl Account {
    pub(crate) fn apply(&mut self, commit: &RecordedCommit) -> Result<()> {
        for event in &commit.events {
            match AccountEvent::decode(event)? {
                AccountEvent::Opened(opened) => self.balance += opened.deposit,
                AccountEvent::Debited(debited) => self.balance -= debited.amount,
                AccountEvent::Credited(credited) => self.balance += credited.amount,
            }
        }
        self.version = commit.version;
        Ok(())
    }
}
