//! The process is killed while it appends: what it acknowledged is there, once, and nothing is half there.
//!
//! `WOW_CRASH_ROUNDS=1000` for more rounds, `WOW_CRASH_SEED=…` to repeat a run (its choices; the machine's timing is its
//! own).

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "test code")]

mod support;

use std::{
    env,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, ExitCode, Stdio},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use fastrand::Rng;
use libtest_mimic::{Arguments, Trial};
use support::{check_context, commit, context};
use wow_store_api::{
    AggregateId, EventLog as _, ExpectedVersion, PartitionCount, Receipt, StoreAdmin as _, StoreExt as _,
};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

const DIRECTORY: &str = "WOW_CRASH_CHILD_DIRECTORY";
const SEED: &str = "WOW_CRASH_SEED";
const ROUNDS: &str = "WOW_CRASH_ROUNDS";

const CONTEXTS: [&str; 2] = ["shop", "bank"];
const TASKS: u64 = 24;
/// A directory is used for so many rounds, then a new one: crashes meet young and old stores.
const ROUNDS_PER_DIRECTORY: u64 = 6;
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    if let Ok(directory) = env::var(DIRECTORY) {
        let seed = env::var(SEED).unwrap().parse().unwrap();
        runtime().block_on(append_until_killed(Path::new(&directory), seed));
        return ExitCode::SUCCESS;
    }
    let kill = Trial::test("killed_process_loses_nothing_it_acknowledged", || {
        kill_and_check();
        Ok(())
    });
    libtest_mimic::run(&Arguments::from_args(), vec![kill]).exit_code()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

async fn open(directory: &Path) -> EmbeddedStore {
    let config = EmbeddedConfig::new(directory)
        .with_partitions(PartitionCount::new(3).unwrap())
        // So small that tables are written and merged all the time.
        .with_memtable_bytes(512 * 1024)
        .with_cache_bytes(4 * 1024 * 1024);
    EmbeddedStore::open(config).await.unwrap()
}

// The child.

async fn append_until_killed(directory: &Path, seed: u64) {
    let store = Arc::new(open(directory).await);
    println!("open");
    let tasks: Vec<_> =
        (0..TASKS).map(|task| tokio::spawn(append_for_ever(Arc::clone(&store), seed, task))).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

async fn append_for_ever(store: Arc<EmbeddedStore>, seed: u64, task: u64) {
    let mut random = Rng::with_seed(seed.wrapping_add(task));
    for n in 0_u64.. {
        let command = format!("{seed}-{task}-{n}");
        let id = some_aggregate(&mut random, task);
        let bytes = if random.u8(..) == 0 { 100_000 } else { random.usize(..600) };
        if random.u8(..8) == 0 {
            let other = some_aggregate(&mut random, task);
            let both = [commit(&id, &command, bytes), commit(&other, &command, 10)];
            let receipts = store.append_all(both).await.unwrap();
            acknowledge(&id, &command, receipts.first().unwrap());
            acknowledge(&other, &command, receipts.last().unwrap());
            continue;
        }
        // Half of them decide on what they have seen: some lose to others.
        let head = if random.bool() { Some(store.head(&id).await.unwrap()) } else { None };
        let expected = head.map_or(ExpectedVersion::Any, ExpectedVersion::Exact);
        match store.append(commit(&id, &command, bytes).expect(expected)).await {
            Ok(receipt) => acknowledge(&id, &command, &receipt),
            Err(error) => assert!(error.is_conflict(), "{error}"),
        }
    }
}

/// One of a few that all fight for, or one of the task's own.
fn some_aggregate(random: &mut Rng, task: u64) -> AggregateId {
    let name = if random.bool() { "order" } else { "cart" };
    let id =
        if random.bool() { format!("hot-{}", random.u8(..4)) } else { format!("{task}-{}", random.u8(..)) };
    AggregateId::new(random.choice(CONTEXTS).unwrap(), name, id).unwrap()
}

fn acknowledge(id: &AggregateId, command: &str, receipt: &Receipt) {
    let kind = id.aggregate_type();
    let line = format!(
        "ack {} {} {} {command} {} {} {}\n",
        kind.context(),
        kind.name(),
        id.id(),
        receipt.version,
        receipt.partition.index(),
        receipt.position
    );
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

// The parent.

/// What the child said before it died.
struct Acknowledged {
    id: AggregateId,
    command: String,
    version: u64,
    partition: u32,
    position: u64,
}

impl Acknowledged {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let ["ack", context, name, id, command, version, partition, position] = words.as_slice() else {
            return None;
        };
        Some(Self {
            id: AggregateId::new(context, name, id).unwrap(),
            command: (*command).to_owned(),
            version: version.parse().unwrap(),
            partition: partition.parse().unwrap(),
            position: position.parse().unwrap(),
        })
    }
}

fn kill_and_check() {
    let rounds: u64 = env::var(ROUNDS).map_or(30, |rounds| rounds.parse().unwrap());
    let seed: u64 = env::var(SEED).map_or_else(|_| fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("{SEED}={seed}");
    let mut random = Rng::with_seed(seed);
    let runtime = runtime();
    let mut directory = tempfile::tempdir().unwrap();
    let mut acknowledged: Vec<Acknowledged> = Vec::new();
    let (mut in_all, mut torn) = (0, 0);
    for round in 0..rounds {
        if round % ROUNDS_PER_DIRECTORY == 0 {
            directory = tempfile::tempdir().unwrap();
            acknowledged.clear();
        }
        let before = acknowledged.len();
        acknowledged.extend(one_life(directory.path(), &mut random));
        in_all += acknowledged.len() - before;
        torn += runtime.block_on(check(directory.path(), &acknowledged, round));
    }
    println!("{rounds} rounds, {in_all} acknowledged appends, {torn} torn bytes cut off");
    assert!(
        in_all > usize::try_from(rounds).unwrap(),
        "the children got something done before they were killed"
    );
}

/// Starts a child, kills it at a random moment, and returns what it acknowledged.
fn one_life(directory: &Path, random: &mut Rng) -> Vec<Acknowledged> {
    let mut child = Command::new(env::current_exe().unwrap())
        .env(DIRECTORY, directory)
        .env(SEED, random.u64(..).to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        // A line that the kill cut short has no end; the last one may be that.
        for line in lines.map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    // Now and then it dies while it opens and recovers.
    let mut said = Vec::new();
    if random.u8(..4) > 0 {
        said.push(receiver.recv_timeout(PATIENCE).expect("the child opens the store"));
    }
    let until = Instant::now() + Duration::from_millis(random.u64(1..250));
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        match receiver.recv_timeout(left) {
            Ok(line) => said.push(line),
            Err(mpsc::RecvTimeoutError::Timeout) => break,
            Err(mpsc::RecvTimeoutError::Disconnected) => panic!("the child ended by itself"),
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    said.extend(receiver);
    said.iter().filter_map(|line| Acknowledged::parse(line)).collect()
}

/// Opens what the child has left, checks everything, and goes on appending. Returns the bytes that were torn.
async fn check(directory: &Path, acknowledged: &[Acknowledged], round: u64) -> u64 {
    let store = open(directory).await;
    for name in CONTEXTS {
        let context = context(name);
        let stored = check_context(&store, &context).await.unwrap();
        for it in acknowledged.iter().filter(|it| *it.id.context() == context) {
            let key = (it.id.clone(), it.command.as_str().try_into().unwrap());
            let commit = stored.get(&key).expect("an acknowledged append is there");
            let place = (commit.version, commit.partition, commit.position);
            assert_eq!(place, (it.version, it.partition, it.position), "where its receipt says");
        }
        let id = AggregateId::new(name, "order", "after").unwrap();
        let receipt = store.append(commit(&id, format!("after-{round}"), 10)).await.unwrap();
        assert!(!receipt.replayed, "appends go on");
    }
    let torn = store.torn_bytes();
    store.close().await.unwrap();
    torn
}
