//! What stands between a store and its server, and cuts connections at a byte.

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::watch,
    task::JoinHandle,
    time::timeout,
};

use crate::node::PATIENCE;

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// To the server.
    Request,
    /// To the store.
    Reply,
}

/// What is done to the bytes that come next.
#[derive(Debug, Default)]
pub(crate) enum Plan {
    /// Nothing.
    #[default]
    Pass,
    /// After so many of them, counted over all connections, theirs is cut on both sides: a request also behind its last
    /// byte, a reply only before that.
    Cut(Way, usize),
    /// The reply to a request that has these bytes in it is cut after so many bytes.
    CutReplyTo(Vec<u8>, usize),
    /// After so many bytes to the server the rest of what the store sends is held back, and the store is cut off.
    Hold(usize),
    /// The same where the store sends these bytes.
    HoldAt(&'static [u8]),
}

#[derive(Debug, Default)]
struct State {
    plan: Plan,
    passed: usize,
    done: bool,
    refuses: bool,
}

/// How much of a piece goes on, and what then.
enum Verdict {
    Pass,
    Cut(usize),
    Hold(usize),
}

/// How far something that was held back is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    Waiting,
    Released,
    /// The server has answered it, or closed.
    Answered,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Changes when all connections are to be cut.
    cuts: watch::Sender<u64>,
    held: watch::Sender<Held>,
}

/// A proxy in front of a server.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("the port that was bound").port();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            cuts: watch::Sender::new(0),
            held: watch::Sender::new(Held::Nothing),
        });
        let task = tokio::spawn(accept(listener, server, Arc::clone(&shared)));
        Self { port, shared, task }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// What happens to the bytes from now on.
    pub(crate) fn plan(&self, plan: Plan) {
        let mut state = self.shared.state();
        (state.plan, state.passed, state.done) = (plan, 0, false);
    }

    /// Passes everything on again. Says whether the plan was carried out.
    pub(crate) fn pass(&self) -> bool {
        let done = self.shared.state().done;
        self.plan(Plan::Pass);
        done
    }

    /// Whether new connections are refused. Those that there are go on.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.shared.state().refuses = refuses;
    }

    /// Cuts all connections.
    pub(crate) fn cut_all(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Lets go what was held back, and waits until the server has seen it.
    pub(crate) async fn release(&self) {
        let mut held = self.shared.held.subscribe();
        assert_eq!(*held.borrow_and_update(), Held::Waiting, "something was held back");
        self.shared.held.send_replace(Held::Released);
        // What is waited for is locked while it is held.
        let answered = timeout(PATIENCE, held.wait_for(|held| *held == Held::Answered)).await;
        let answered = answered.is_ok_and(|answered| answered.is_ok());
        assert!(answered, "the server deals with what comes late");
        self.shared.held.send_replace(Held::Nothing);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn judge(&self, way: Way, piece: &[u8]) -> Verdict {
        let mut state = self.state();
        let passed = state.passed;
        let verdict = match &state.plan {
            Plan::Cut(Way::Request, after) if way == Way::Request && passed + piece.len() >= *after => {
                Verdict::Cut(after - passed)
            }
            Plan::Cut(Way::Reply, after) if way == Way::Reply && passed + piece.len() > *after => {
                Verdict::Cut(after - passed)
            }
            Plan::CutReplyTo(bytes, after) if way == Way::Request && find(piece, bytes).is_some() => {
                state.plan = Plan::Cut(Way::Reply, *after);
                return Verdict::Pass;
            }
            Plan::Hold(after) if way == Way::Request && passed + piece.len() > *after => {
                Verdict::Hold(after - passed)
            }
            Plan::HoldAt(bytes) if way == Way::Request => {
                find(piece, bytes).map_or(Verdict::Pass, Verdict::Hold)
            }
            _ => Verdict::Pass,
        };
        let counted = match state.plan {
            Plan::Cut(counted, _) => Some(counted),
            Plan::Hold(_) => Some(Way::Request),
            Plan::Pass | Plan::CutReplyTo(..) | Plan::HoldAt(_) => None,
        };
        if let Verdict::Pass = verdict {
            state.passed += if counted == Some(way) { piece.len() } else { 0 };
        } else {
            state.plan = Plan::Pass;
            state.done = true;
        }
        verdict
    }
}

fn find(piece: &[u8], bytes: &[u8]) -> Option<usize> {
    piece.windows(bytes.len()).position(|window| window == bytes)
}

async fn accept(listener: TcpListener, server: u16, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        if shared.state().refuses {
            continue;
        }
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else { return };
            let _ = client.set_nodelay(true);
            let _ = server.set_nodelay(true);
            // Whatever ends a connection ends both sides of it.
            let _ = pump(client.into_split(), server.into_split(), &shared).await;
        });
    }
}

type Halves = (OwnedReadHalf, OwnedWriteHalf);

async fn pump(
    (mut from_client, mut to_client): Halves,
    (mut from_server, mut to_server): Halves,
    shared: &Shared,
) -> std::io::Result<()> {
    let mut cuts = shared.cuts.subscribe();
    let (mut request, mut reply) = (vec![0; 256 * 1024], vec![0; 256 * 1024]);
    loop {
        tokio::select! {
            // First of all, so that nothing which is sent after the cut gets through before it.
            biased;
            _ = cuts.changed() => return Ok(()),
            count = from_client.read(&mut request) => {
                let piece = &request[..count?];
                if piece.is_empty() {
                    return Ok(());
                }
                match shared.judge(Way::Request, piece) {
                    Verdict::Pass => to_server.write_all(piece).await?,
                    Verdict::Cut(end) => return to_server.write_all(&piece[..end]).await,
                    Verdict::Hold(end) => {
                        to_server.write_all(&piece[..end]).await?;
                        drop((from_client, to_client));
                        let rest = &piece[end..];
                        hold(rest, from_server, to_server, shared).await;
                        return Ok(());
                    }
                }
            }
            count = from_server.read(&mut reply) => {
                let piece = &reply[..count?];
                if piece.is_empty() {
                    return Ok(());
                }
                match shared.judge(Way::Reply, piece) {
                    Verdict::Pass | Verdict::Hold(_) => to_client.write_all(piece).await?,
                    Verdict::Cut(end) => return to_client.write_all(&piece[..end]).await,
                }
            }
        }
    }
}

/// Keeps the rest of a request until it is released, and the connection to the server until that has answered.
async fn hold(rest: &[u8], mut from_server: OwnedReadHalf, mut to_server: OwnedWriteHalf, shared: &Shared) {
    let mut held = shared.held.subscribe();
    shared.held.send_replace(Held::Waiting);
    if held.wait_for(|held| *held == Held::Released).await.is_ok() {
        let _ = to_server.write_all(rest).await;
        let _ = from_server.read(&mut [0; 4096]).await;
        shared.held.send_replace(Held::Answered);
    }
}
