//! The audit: rebuilds every balance from the log alone and looks for money that was lost or made.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use anyhow::{Result, ensure};
use rust_decimal::Decimal;
use wow_store_api::{CommandId, ContextName, EventStore, StoreExt, TailRequest, Version};

use crate::account::{AccountEvent, CONTEXT};

/// What the log says about one account.
#[derive(Debug, Default)]
pub(crate) struct Statement {
    pub(crate) deposited: Decimal,
    pub(crate) received: Decimal,
    pub(crate) sent: Decimal,
    pub(crate) commits: Version,
}

impl Statement {
    pub(crate) fn balance(&self) -> Decimal {
        self.deposited + self.received - self.sent
    }
}

#[derive(Debug, Default)]
pub(crate) struct Audit {
    pub(crate) accounts: BTreeMap<String, Statement>,
    pub(crate) transfers: u64,
    /// What each transfer has put on accounts so far; gone once its other side was seen.
    halves: HashMap<CommandId, Decimal>,
}

impl Audit {
    /// Reads the whole log. Nobody else should be writing: a transfer that is stored during the audit may be seen by half.
    pub(crate) async fn of(store: &Arc<dyn EventStore>) -> Result<Self> {
        let mut audit = Self::default();
        // A tail goes through all partitions from their beginning. Here it ends where the log ends now.
        let mut tail = store.tail(TailRequest::new(ContextName::new(CONTEXT)?)).await?;
        while let Some(batch) = tail.try_next().await? {
            for commit in &batch.commits {
                let statement = audit.accounts.entry(commit.aggregate_id.id().to_owned()).or_default();
                statement.commits += 1;
                let mut moved = Decimal::ZERO;
                for event in &commit.events {
                    match AccountEvent::decode(event)? {
                        AccountEvent::Opened(opened) => statement.deposited += opened.deposit,
                        AccountEvent::Debited(debited) => {
                            statement.sent += debited.amount;
                            moved -= debited.amount;
                        }
                        AccountEvent::Credited(credited) => {
                            statement.received += credited.amount;
                            moved += credited.amount;
                        }
                    }
                }
                ensure!(
                    statement.balance() >= Decimal::ZERO,
                    "{} was overdrawn by its commit {}",
                    commit.aggregate_id,
                    commit.version
                );
                audit.see(&commit.command_id, moved);
            }
        }
        Ok(audit)
    }

    fn see(&mut self, command_id: &CommandId, moved: Decimal) {
        if moved.is_zero() {
            return;
        }
        let sum = self.halves.entry(command_id.clone()).or_default();
        *sum += moved;
        if sum.is_zero() {
            self.halves.remove(command_id);
            self.transfers += 1;
        }
    }

    pub(crate) fn deposited(&self) -> Decimal {
        self.accounts.values().map(|statement| statement.deposited).sum()
    }

    pub(crate) fn held(&self) -> Decimal {
        self.accounts.values().map(Statement::balance).sum()
    }

    /// Transfers of which only one side is in the log: there must be none, however the program ended.
    pub(crate) fn half_transfers(&self) -> usize {
        self.halves.len()
    }

    pub(crate) fn is_conserved(&self) -> bool {
        self.held() == self.deposited() && self.half_transfers() == 0
    }
}

#[cfg(test)]
mod tests {
    use rust_decimal::dec;
    use wow_store_api::{Commit, MemoryStore};

    use super::*;
    use crate::{
        account::{Debited, account_id},
        bank::{Bank, Outcome, Transfer},
    };

    async fn bank() -> (Arc<dyn EventStore>, Bank) {
        let store: Arc<dyn EventStore> = Arc::new(MemoryStore::new());
        let bank = Bank::new(Arc::clone(&store));
        bank.open_account("a", dec!(10.00)).await.expect("it opens");
        bank.open_account("b", dec!(10.00)).await.expect("it opens");
        (store, bank)
    }

    fn transfer(command_id: &str, amount: Decimal) -> Transfer {
        let command_id = CommandId::new(command_id).expect("an id");
        Transfer { command_id, from: "a".to_owned(), to: "b".to_owned(), amount }
    }

    #[tokio::test]
    async fn a_transfer_is_made_once_however_often_it_is_sent() {
        let (store, bank) = bank().await;
        let all = transfer("t", dec!(10.00));
        let first = bank.transfer(&all).await.expect("it is made");
        assert!(
            matches!(first, Outcome::Moved(receipt) if !receipt.is_replayed()),
            "it was not there before"
        );
        let again = bank.transfer(&all).await.expect("it is answered");
        // The payer has nothing left; that must not be mistaken for a refusal of what was made.
        assert!(matches!(again, Outcome::Moved(receipt) if receipt.is_replayed()));
        let other = bank.transfer(&transfer("u", dec!(0.01))).await.expect("it is answered");
        assert!(matches!(other, Outcome::Refused), "there is no money for another one");

        let audit = Audit::of(&store).await.expect("the log is readable");
        assert!(audit.is_conserved());
        assert_eq!((audit.transfers, audit.accounts["b"].balance()), (1, dec!(20.00)));
    }

    #[tokio::test]
    async fn half_a_transfer_is_found() {
        let (store, bank) = bank().await;
        bank.transfer(&transfer("whole", dec!(1.00))).await.expect("it is made");
        let half = Commit::new(account_id("a").expect("an id"), "half")
            .event("Debited", 1, &Debited { amount: dec!(0.01), to: "b".to_owned() })
            .expect("an event");
        store.append(half).await.expect("it is stored");
        let audit = Audit::of(&store).await.expect("the log is readable");
        assert!(!audit.is_conserved(), "a cent is gone");
        assert_eq!(audit.half_transfers(), 1);
    }
}
