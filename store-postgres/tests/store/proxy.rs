//! A proxy that counts what goes through it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// What was counted.
#[derive(Debug, Default)]
struct Counts {
    /// Answers of the server that end with `ReadyForQuery`: the round trips that somebody waited for.
    trips: AtomicU64,
    /// Statements that were executed.
    statements: AtomicU64,
    connections: AtomicU64,
}

/// Between a store and its server. Ends with the runtime of its test.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    counts: Arc<Counts>,
}

/// Round trips and statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) trips: u64,
    pub(crate) statements: u64,
}

impl Proxy {
    /// In front of the server of a URL like `postgres://…@host:port/…`.
    pub(crate) async fn start(url: &str) -> Self {
        let place = url.rsplit_once('@').map_or(url, |(_, place)| place);
        let server = place.split('/').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let counts = Arc::new(Counts::default());
        let counting = Arc::clone(&counts);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                counting.connections.fetch_add(1, Ordering::SeqCst);
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(questions(from_client, to_server, Arc::clone(&counting)));
                tokio::spawn(answers(from_server, to_client, Arc::clone(&counting)));
            }
        });
        Self { port, counts }
    }

    /// The URL with this proxy in the server's place.
    pub(crate) fn url(&self, url: &str) -> String {
        let (before, place) = url.rsplit_once('@').unwrap();
        let database = place.split_once('/').map_or("", |(_, database)| database);
        let option = if database.contains('?') { '&' } else { '?' };
        format!("{before}@127.0.0.1:{}/{database}{option}sslmode=disable", self.port)
    }

    pub(crate) fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    fn now(&self) -> Cost {
        Cost {
            trips: self.counts.trips.load(Ordering::SeqCst),
            statements: self.counts.statements.load(Ordering::SeqCst),
        }
    }

    /// What some work costs.
    pub(crate) async fn cost<T>(&self, work: impl Future<Output = T>) -> (T, Cost) {
        let before = self.now();
        let done = work.await;
        let after = self.now();
        let cost =
            Cost { trips: after.trips - before.trips, statements: after.statements - before.statements };
        (done, cost)
    }
}

/// A message with its kind: one byte, then its length with itself, then its content.
async fn message(from: &mut OwnedReadHalf) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head).await.ok()?;
    let length = u32::from_be_bytes(head[1..].try_into().unwrap());
    let mut whole = vec![0; usize::try_from(length).unwrap() + 1];
    whole[..5].copy_from_slice(&head);
    from.read_exact(&mut whole[5..]).await.ok()?;
    Some((head[0], whole))
}

async fn questions(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, counts: Arc<Counts>) {
    // The greeting has no kind.
    let Ok(length) = from.read_u32().await else { return };
    let mut greeting = vec![0; usize::try_from(length).unwrap() - 4];
    if from.read_exact(&mut greeting).await.is_err() {
        return;
    }
    if to.write_all(&[&length.to_be_bytes()[..], &greeting].concat()).await.is_err() {
        return;
    }
    while let Some((kind, message)) = message(&mut from).await {
        // Execute, and the simple query.
        if matches!(kind, b'E' | b'Q') {
            counts.statements.fetch_add(1, Ordering::SeqCst);
        }
        if to.write_all(&message).await.is_err() {
            return;
        }
    }
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, counts: Arc<Counts>) {
    while let Some((kind, message)) = message(&mut from).await {
        if kind == b'Z' {
            counts.trips.fetch_add(1, Ordering::SeqCst);
        }
        if to.write_all(&message).await.is_err() {
            return;
        }
    }
}
