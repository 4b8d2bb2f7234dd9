//! Accounts and transfers between them, many at a time, with exact decimals.
//!
//! ```text
//! cargo run --release --bin transfer
//! ```
//!
//! The program opens accounts, moves money between them from many tasks at once, sends one transfer twice on purpose,
//! then forgets everything and rebuilds all balances from the log. Run it again and it goes on with the same accounts;
//! kill it in the middle and the next run still finds every transfer whole or not there.

#![allow(clippy::print_stdout, reason = "a program talks to its user")]

mod account;
mod audit;
mod bank;

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use anyhow::Result;
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use rust_decimal::{Decimal, dec};
use tokio::task::JoinSet;
use uuid::Uuid;
use wow_store_api::{CommandId, ContextName};
use wow_store_examples::{
    open::{open_store, shown},
    progress::{Progress, Unit},
};

use crate::{
    account::{CONTEXT, account_id},
    audit::Audit,
    bank::{Bank, Outcome, Transfer},
};

/// Moves money between accounts, many transfers at a time, and proves from the log that none was lost.
#[derive(Debug, Parser)]
struct Args {
    /// The directory of the store, made if it is not there; the URL of a database (postgres://…, mongodb://…); or
    /// `memory` for a store that is gone afterwards.
    #[arg(long, value_name = "DIR|URL", default_value = "data/transfer")]
    data: String,
    /// How many accounts there are; each is opened with 100.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    accounts: u32,
    /// How many transfers to make.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    transfers: u64,
    /// How many transfers are under way at a time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
}

const LOOK_FURTHER: &str = "
Look further:
  run it again: it goes on with the same accounts
  more transfers; kill it in the middle (kill -9), then run it again:
    cargo run --release --bin transfer -- --transfers 100000
  fewer accounts to share, so more conflicts:
    cargo run --release --bin transfer -- --accounts 5
  what else can be set:
    cargo run --release --bin transfer -- --help
  the other example, a real event log:
    cargo run --release --bin replay -- LOG.xes.gz";

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Does it all; whether the money is conserved.
async fn run(args: Args) -> Result<bool> {
    let store = open_store(&args.data).await?;
    let before: u64 = store.heads(&ContextName::new(CONTEXT)?).await?.iter().sum();
    println!("store     {} ({}), {before} commits so far", shown(&args.data), store.backend());

    let bank = Arc::new(Bank::new(Arc::clone(&store)));
    open_accounts(&bank, args.accounts).await?;
    make_transfers(&bank, &args).await?;
    send_twice(&bank, args.accounts).await?;

    let audit = Audit::of(&store).await?;
    report(&audit);
    store.close().await?;
    if audit.is_conserved() {
        println!("{LOOK_FURTHER}");
    }
    Ok(audit.is_conserved())
}

fn number(account: u32) -> String {
    format!("{account:05}")
}

async fn open_accounts(bank: &Bank, accounts: u32) -> Result<()> {
    let mut opened = 0;
    for account in 0..accounts {
        let receipt = bank.open_account(&number(account), dec!(100.00)).await?;
        opened += u32::from(!receipt.is_replayed());
    }
    println!("accounts  {accounts}: {opened} opened, {} were open", accounts - opened);
    Ok(())
}

/// Many tasks, each with one transfer under way at a time.
async fn make_transfers(bank: &Arc<Bank>, args: &Args) -> Result<()> {
    let (accounts, transfers) = (args.accounts, args.transfers);
    let start = Instant::now();
    let progress = Arc::new(Progress::new("transfers", transfers, Unit::Count));
    let taken = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for _ in 0..args.concurrency {
        let (bank, progress, taken) = (Arc::clone(bank), Arc::clone(&progress), Arc::clone(&taken));
        tasks.spawn(async move {
            let (mut moved, mut refused) = (0_u64, 0_u64);
            while taken.fetch_add(1, Ordering::Relaxed) < transfers {
                match bank.transfer(&any_transfer(accounts)?).await? {
                    Outcome::Moved(_) => moved += 1,
                    Outcome::Refused => refused += 1,
                }
                progress.advance(1);
            }
            Ok::<_, anyhow::Error>((moved, refused))
        });
    }
    let (mut moved, mut refused) = (0, 0);
    while let Some(task) = tasks.join_next().await {
        let counts = task??;
        moved += counts.0;
        refused += counts.1;
    }
    progress.finish();
    println!(
        "transfers {transfers} in {:.1?}: {moved} made, {refused} refused for lack of money, {} decided anew after a \
         conflict",
        start.elapsed(),
        bank.conflicts()
    );
    Ok(())
}

/// A transfer of up to 80.00 between two different accounts.
fn any_transfer(accounts: u32) -> Result<Transfer> {
    let from = fastrand::u32(..accounts);
    let to = (from + fastrand::u32(1..accounts)) % accounts;
    transfer(from, to, Decimal::new(fastrand::i64(1..=80_00), 2))
}

fn transfer(from: u32, to: u32, amount: Decimal) -> Result<Transfer> {
    let command_id = CommandId::new(Uuid::new_v4().to_string())?;
    Ok(Transfer { command_id, from: number(from), to: number(to), amount })
}

/// What a client does whose connection broke before the answer came: it sends the same transfer again.
async fn send_twice(bank: &Bank, accounts: u32) -> Result<()> {
    let cent = dec!(0.01);
    let mut payer = None;
    for account in 0..accounts {
        if bank.account(&account_id(&number(account))?).await?.balance >= cent {
            payer = Some(account);
            break;
        }
    }
    let Some(from) = payer else {
        println!("no transfer sent twice: these accounts have no money left");
        return Ok(());
    };
    let twice = transfer(from, (from + 1) % accounts, cent)?;
    for time in ["once", "again"] {
        match bank.transfer(&twice).await? {
            Outcome::Moved(receipt) if receipt.is_replayed() => {
                println!(
                    "  {time:<7} replayed: nothing stored, the first receipt (version {})",
                    receipt.version
                );
            }
            Outcome::Moved(receipt) => {
                println!(
                    "one transfer sent twice\n  {time:<7} stored as version {} of the payer",
                    receipt.version
                );
            }
            Outcome::Refused => println!("  {time:<7} refused"),
        }
    }
    Ok(())
}

fn report(audit: &Audit) {
    const SHOWN: usize = 10;
    let mut richest: Vec<_> = audit.accounts.iter().collect();
    richest.sort_by_key(|(_, statement)| std::cmp::Reverse(statement.balance()));
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["account", "deposited", "received", "sent", "balance", "commits"]);
    for (number, statement) in richest.iter().take(SHOWN) {
        table.add_row([
            (*number).clone(),
            statement.deposited.to_string(),
            statement.received.to_string(),
            statement.sent.to_string(),
            statement.balance().to_string(),
            statement.commits.to_string(),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    println!("\nRebuilt from the log:\n{table}");
    if richest.len() > SHOWN {
        println!("  … and {} more accounts", richest.len() - SHOWN);
    }
    let (held, deposited) = (audit.held(), audit.deposited());
    if audit.is_conserved() {
        println!("money conserved: {held} on {} accounts after {} transfers", richest.len(), audit.transfers);
    } else {
        println!(
            "MONEY NOT CONSERVED: {held} on {} accounts, {deposited} deposited, {} transfers have one side only",
            richest.len(),
            audit.half_transfers()
        );
    }
}
