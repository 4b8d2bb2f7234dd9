//! What is counted: in the file while it is read, and in the log by the subscription. Both must come to the same.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

/// How often an amount was given, and what all of them add up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sum {
    pub(crate) count: u64,
    #[serde(with = "wow_store_api::payload::decimal")]
    pub(crate) sum: Decimal,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Totals {
    pub(crate) cases: u64,
    /// How often each activity occurred.
    pub(crate) activities: BTreeMap<String, u64>,
    /// The sum of each kind of amount.
    pub(crate) amounts: BTreeMap<String, Sum>,
}

impl Totals {
    pub(crate) fn events(&self) -> u64 {
        self.activities.values().sum()
    }

    pub(crate) fn add_activity(&mut self, activity: &str) {
        match self.activities.get_mut(activity) {
            Some(count) => *count += 1,
            None => {
                self.activities.insert(activity.to_owned(), 1);
            }
        }
    }

    pub(crate) fn add_amounts(&mut self, amounts: &BTreeMap<String, Decimal>) -> Result<()> {
        amounts.iter().try_for_each(|(key, amount)| self.add_sum(key, Sum { count: 1, sum: *amount }))
    }

    pub(crate) fn add(&mut self, other: &Self) -> Result<()> {
        self.cases += other.cases;
        for (activity, count) in &other.activities {
            *self.activities.entry(activity.clone()).or_default() += count;
        }
        other.amounts.iter().try_for_each(|(key, sum)| self.add_sum(key, *sum))
    }

    fn add_sum(&mut self, key: &str, more: Sum) -> Result<()> {
        if !self.amounts.contains_key(key) {
            self.amounts.insert(key.to_owned(), Sum::default());
        }
        let known = self.amounts.entry(key.to_owned()).or_default();
        known.count += more.count;
        known.sum = known
            .sum
            .checked_add(more.sum)
            .with_context(|| format!("the sum of all {key:?} is too large for an exact decimal"))?;
        Ok(())
    }
}
