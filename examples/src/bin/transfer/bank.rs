//! The commands: open an account, transfer money.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result};
use futures_util::TryStreamExt;
use rust_decimal::Decimal;
use wow_store_api::{AggregateId, CommandId, Commit, EventStore, ExpectedVersion, Receipt, StoreExt};

use crate::account::{Account, AccountOpened, Credited, Debited, account_id};

/// Money to be moved.
#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    /// The command id: whoever does not know whether a transfer was made sends it again under the same id.
    pub(crate) command_id: CommandId,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) amount: Decimal,
}

/// What became of a transfer.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The money was moved. The receipt is that of the debit, and says whether this call did it or an earlier one.
    Moved(Receipt),
    /// The payer does not have so much. Nothing was stored.
    Refused,
}

#[derive(Debug)]
pub(crate) struct Bank {
    store: Arc<dyn EventStore>,
    /// Accounts as this process saw them last. It saves reading old commits again and decides nothing: every append
    /// names the version it was decided on, and the store refuses it if that is not the latest.
    known: Mutex<HashMap<AggregateId, Account>>,
    conflicts: AtomicU64,
}

impl Bank {
    pub(crate) fn new(store: Arc<dyn EventStore>) -> Self {
        Self { store, known: Mutex::default(), conflicts: AtomicU64::new(0) }
    }

    /// How often an append came too late and was decided anew.
    pub(crate) fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// Opens an account, unless it is open: the command id is the same in every run, so a later one is replayed.
    pub(crate) async fn open_account(&self, number: &str, deposit: Decimal) -> Result<Receipt> {
        let open = Commit::new(account_id(number)?, "open").expect(ExpectedVersion::NoStream).event(
            "AccountOpened",
            1,
            &AccountOpened { deposit },
        )?;
        Ok(self.store.append(open).await?)
    }

    /// The account as it is now: what is known of it, and the commits since.
    pub(crate) async fn account(&self, id: &AggregateId) -> Result<Account> {
        let mut account = self.known().get(id).copied().unwrap_or_default();
        let mut commits = self.store.load(id, account.version + 1..).await?;
        while let Some(commit) = commits.try_next().await? {
            account.apply(&commit)?;
        }
        let mut known = self.known();
        let latest = known.entry(id.clone()).or_default();
        if latest.version < account.version {
            *latest = account;
        }
        Ok(account)
    }

    /// Moves money: both sides or none, once however often it is sent.
    pub(crate) async fn transfer(&self, transfer: &Transfer) -> Result<Outcome> {
        let (payer, payee) = (account_id(&transfer.from)?, account_id(&transfer.to)?);
        loop {
            let from = self.account(&payer).await?;
            let to = self.account(&payee).await?;
            if from.balance < transfer.amount {
                // Or was it this very transfer, sent before, that took the money? Asked after the balance was read,
                // so that it cannot slip in between.
                let earlier = self.store.receipt(&payer, &transfer.command_id).await?;
                return Ok(earlier.map_or(Outcome::Refused, Outcome::Moved));
            }
            // Two commits on two aggregates, all or nothing. Each names the version that the decision rests on.
            let debit = Commit::new(payer.clone(), transfer.command_id.as_str())
                .expect(ExpectedVersion::Exact(from.version))
                .event("Debited", 1, &Debited { amount: transfer.amount, to: transfer.to.clone() })?;
            let credit = Commit::new(payee.clone(), transfer.command_id.as_str())
                .expect(ExpectedVersion::Exact(to.version))
                .event("Credited", 1, &Credited { amount: transfer.amount, from: transfer.from.clone() })?;
            match self.store.append_all([debit, credit]).await {
                Ok(receipts) => {
                    let debited = receipts.into_iter().next().context("no receipt for the debit")?;
                    return Ok(Outcome::Moved(debited));
                }
                // Someone else was faster on one of the two: decide anew on what is there now.
                Err(error) if error.is_conflict() => {
                    self.conflicts.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<AggregateId, Account>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
