//! Connections are cut at every byte of an append: of what the store sends, and of what it is answered.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use wow_store_api::{AggregateId, Commit, EventStore, Outcome, Receipt, Result};
use wow_store_conformance::witness::{Follower, with_rider};

use crate::{
    node::{PATIENCE, Scene, open, shared, shop},
    proxy::{Plan, Proxy, Way},
};

/// The end of what asks for a commit; that of a transaction begins in the same way.
const COMMIT: &[u8] = b"COMMIT\0";

/// More bytes than any of these appends takes.
const ENOUGH: usize = 20_000;

/// A store that is cut off, on one connection, and one that is not, which reads.
struct Cutting {
    scene: Scene,
    proxy: Proxy,
    store: Arc<dyn EventStore>,
    reader: Arc<dyn EventStore>,
    follower: Follower,
}

impl Cutting {
    async fn start(timeout: Duration) -> Self {
        let server = shared();
        let proxy = Proxy::start(server.port()).await;
        let scene = Scene::on(server);
        // Nothing but the append goes over the line.
        let config = scene
            .config_at(proxy.port(), "cut")
            .with_push(false)
            .with_poll_interval(Duration::from_secs(3_600));
        let config = config.with_max_connections(1).with_transaction_timeout(timeout);
        let store = open(config).await;
        let reader = scene.config().with_push(false).with_poll_interval(Duration::from_millis(20));
        let reader = open(reader).await;
        let follower = Follower::start(Arc::clone(&reader), shop()).await;
        let cutting = Self { scene, proxy, store, reader, follower };
        cutting.warm("first").await;
        cutting
    }

    /// One commit, as one call of a function.
    async fn plain(&self, command: &str) -> Result<Receipt> {
        self.plain_on(&self.store, command).await
    }

    async fn plain_on(&self, store: &Arc<dyn EventStore>, command: &str) -> Result<Receipt> {
        self.scene.witness.append(store, commit("plain", command)).await
    }

    /// Two commits and a reservation, in a transaction of several round trips.
    async fn careful(&self, command: &str) -> Result<Receipt> {
        self.careful_on(&self.store, command).await
    }

    async fn careful_on(&self, store: &Arc<dyn EventStore>, command: &str) -> Result<Receipt> {
        let both = vec![with_rider(commit("first", command), command), commit("second", command)];
        let receipts = self.scene.witness.append_all(store, both).await?;
        Ok(receipts[0].clone())
    }

    /// Lets the connection be made and statements be prepared, however long that takes.
    async fn warm(&self, command: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.plain(&format!("{command}-warm")).await.is_err()
            || self.careful(&format!("{command}-warm")).await.is_err()
        {
            assert!(Instant::now() < deadline, "nothing is cut now");
        }
    }

    async fn check(&self, what: &str) {
        let heads = self.reader.heads(&shop()).await.expect("heads");
        self.follower.reaches(&heads, PATIENCE).await;
        let tally = self.scene.witness.check(&self.reader, &[&self.follower]).await;
        println!("{what}: {tally}");
    }
}

fn commit(id: &str, command: &str) -> Commit {
    let id = AggregateId::new("shop", "order", id).unwrap();
    Commit::new(id, command).event("Happened", 1, &1).unwrap()
}

/// How an append is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// One call of a function, on a connection that has made such calls before.
    Plain,
    /// The same on a new connection: how it is made and configured, and how statements are prepared, is cut as well.
    PlainAnew,
    /// A transaction of several round trips.
    Careful,
}

/// Cuts one append after the other, one byte later each time, until one gets through before the cut. Returns how many
/// were cut, and of these how many had been stored before the store sent them again.
async fn cut_everywhere(sent: Sent, way: Way) -> (usize, usize) {
    let cutting = Cutting::start(PATIENCE).await;
    let mut replayed = 0;
    for after in 0..ENOUGH {
        let command = format!("c-{after:05}");
        if sent == Sent::PlainAnew {
            cutting.proxy.cut_all();
        }
        cutting.proxy.plan(Plan::Cut(way, after));
        let answer = match sent {
            Sent::Plain | Sent::PlainAnew => cutting.plain(&command).await,
            Sent::Careful => cutting.careful(&command).await,
        };
        let cut = cutting.proxy.pass();
        let receipt = answer.unwrap_or_else(|error| panic!("cut after byte {after}, it recovers: {error:?}"));
        if !cut {
            cutting.check(&format!("{sent:?} {way:?}, {after} bytes")).await;
            return (after, replayed);
        }
        replayed += usize::from(receipt.replayed);
        if receipt.replayed {
            // Whoever found it stored has prepared fewer statements.
            cutting.warm(&command).await;
        }
    }
    panic!("an append has fewer than {ENOUGH} bytes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_cut_at_any_byte_is_not_applied_and_sent_again() {
    let (cut, replayed) = cut_everywhere(Sent::Plain, Way::Request).await;
    assert!(cut > 200, "an append was cut everywhere: {cut}");
    // After the last byte it is applied; but whoever closes the connection then may be faster.
    assert!(replayed <= 1, "what did not arrive as a whole is not applied: {replayed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reply_cut_at_any_byte_is_settled_by_the_command_id() {
    let (cut, replayed) = cut_everywhere(Sent::Plain, Way::Reply).await;
    assert!(cut > 50, "a reply was cut everywhere: {cut}");
    assert_eq!(replayed, cut, "what was applied before its reply got lost is not applied again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_connection_cut_at_any_byte_is_made_again() {
    let (cut, _) = cut_everywhere(Sent::PlainAnew, Way::Request).await;
    assert!(cut > 1_000, "a connection was cut everywhere: {cut}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_connection_cut_at_any_byte_of_its_replies_is_made_again() {
    let (cut, replayed) = cut_everywhere(Sent::PlainAnew, Way::Reply).await;
    assert!(cut > 500, "a connection was cut everywhere: {cut}");
    assert!(replayed > 50, "some were applied before: {replayed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_cut_at_any_byte_is_whole_or_not_at_all() {
    let (cut, replayed) = cut_everywhere(Sent::Careful, Way::Request).await;
    assert!(cut > 1_000, "a transaction was cut everywhere: {cut}");
    assert!(replayed <= 1, "without its commit it is not applied: {replayed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_whose_replies_are_cut_at_any_byte_is_settled_by_the_command_id() {
    let (cut, replayed) = cut_everywhere(Sent::Careful, Way::Reply).await;
    assert!(cut > 300, "the replies of a transaction were cut everywhere: {cut}");
    // The reply to COMMIT is of two messages, of 12 and 6 bytes.
    assert_eq!(replayed, 18, "it is applied once its commit has arrived");
}

/// Nobody is there to ask until the time is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_without_anyone_to_ask_is_unknown_and_settled_later() {
    let cutting = Cutting::start(Duration::from_millis(200)).await;
    let replies = [0, 1, 5, 40, 80].map(|after| (Way::Reply, after));
    let requests = [0, 7, 150].map(|after| (Way::Request, after));
    for (way, after) in replies.into_iter().chain(requests) {
        for careful in [false, true] {
            let command = format!("c-{way:?}-{after}-{careful}");
            // The careful way's last message to the server is its COMMIT, and the reply to that the last one.
            let plan = match (careful, way) {
                (false, _) => Plan::Cut(way, after),
                (true, Way::Reply) => Plan::CutReplyTo(COMMIT.to_vec(), after.min(17)),
                (true, Way::Request) => Plan::CutReplyTo(COMMIT.to_vec(), 0),
            };
            // The first reply that comes is that to the append.
            cutting.warm(&command).await;
            cutting.proxy.refuse(true);
            cutting.proxy.plan(plan);
            let first = match careful {
                false => cutting.plain(&command).await,
                true => cutting.careful(&command).await,
            };
            assert!(cutting.proxy.pass(), "it was cut");
            cutting.proxy.refuse(false);
            let error = first.expect_err("nobody answers");
            let applied = way == Way::Reply || careful;
            if applied {
                assert_eq!(
                    error.outcome(),
                    Outcome::Unknown,
                    "it was applied, and nobody can know: {error:?}"
                );
            }
            // Another node finds out.
            let again = match careful {
                false => cutting.plain_on(&cutting.reader, &command).await,
                true => cutting.careful_on(&cutting.reader, &command).await,
            };
            let receipt = again.expect("the server is there again");
            assert_eq!(receipt.replayed, applied, "{command}: applied once, by the first or by the second");
        }
    }
    cutting.check("unknown").await;
}

/// Whoever stores something without being told does not tell the tails either. Who finds it does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_leaves_no_tail_waiting_for_the_poll() {
    let cutting = Cutting::start(PATIENCE).await;
    let own = Follower::start(Arc::clone(&cutting.store), shop()).await;
    for n in 0..10 {
        for careful in [false, true] {
            let command = format!("c-{n}-{careful}");
            cutting.warm(&command).await;
            let heads = cutting.reader.heads(&shop()).await.expect("heads");
            own.reaches(&heads, PATIENCE).await;
            let receipt = if careful {
                cutting.proxy.plan(Plan::CutReplyTo(COMMIT.to_vec(), n));
                cutting.careful(&command).await
            } else {
                // The tail may still be asking for more.
                cutting.proxy.plan(Plan::CutReplyTo(command.clone().into_bytes(), n));
                cutting.plain(&command).await
            };
            assert!(cutting.proxy.pass(), "it was cut");
            assert!(receipt.expect("it recovers").replayed, "it had been stored");
            // This store polls once an hour.
            let heads = cutting.reader.heads(&shop()).await.expect("heads");
            own.reaches(&heads, PATIENCE).await;
        }
    }
    cutting.check("tails").await;
}
