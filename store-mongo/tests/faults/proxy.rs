//! What stands before a server, and cuts connections: of other members, or as a certain reply comes back.

use std::{
    net::Ipv4Addr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU16, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// What every connection of the store's driver says about itself at first, and no connection of a member does.
const DRIVER: &[u8] = b"mongo-rust-driver";

#[derive(Debug, Default)]
struct Rules {
    /// Connections of members are cut.
    no_members: bool,
    /// Connections on which this is sent are cut: the name of a member that is cut off.
    banned: Option<Vec<u8>>,
    /// What happens to the next request with this in it.
    lost: Option<(&'static [u8], Loss)>,
    /// How many were lost.
    losses: usize,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It is carried out, and the connection is cut instead of the reply.
    Cut,
    /// It is carried out, and nothing more comes back on its connection, which stays.
    NoReply,
    /// It does not arrive, nor does anything after it on its connection, which stays.
    NoRequest,
}

#[derive(Debug)]
struct Shared {
    target: AtomicU16,
    rules: Mutex<Rules>,
    /// Changes with the rules.
    changes: watch::Sender<()>,
}

impl Shared {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A proxy in front of a server.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// One that leads nowhere yet.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared =
            Shared { target: AtomicU16::new(0), rules: Mutex::default(), changes: watch::Sender::new(()) };
        let shared = Arc::new(shared);
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { port, shared, task }
    }

    pub(crate) fn lead_to(&self, server: u16) {
        self.shared.target.store(server, Ordering::SeqCst);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn change(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.shared.rules());
        self.shared.changes.send_replace(());
    }

    /// Cuts all members off from this one, and no client.
    pub(crate) fn cut_off_members(&self) {
        self.change(|rules| rules.no_members = true);
    }

    /// Cuts off the member that is known by this port.
    pub(crate) fn ban(&self, member: u16) {
        let host = format!("127.0.0.1:{member}\0");
        let mut name = b"from\0".to_vec();
        name.extend_from_slice(&u32::try_from(host.len()).unwrap().to_le_bytes());
        name.extend_from_slice(host.as_bytes());
        self.change(|rules| rules.banned = Some(name));
    }

    /// Passes everything on again.
    pub(crate) fn heal(&self) {
        self.change(|rules| *rules = Rules { losses: rules.losses, ..Rules::default() });
    }

    /// Loses the reply to the next request with this in it, and the connection.
    pub(crate) fn lose_reply_to(&self, request: &'static [u8]) {
        self.lose(request, Loss::Cut);
    }

    /// Loses the next request with this in it.
    pub(crate) fn lose(&self, request: &'static [u8], loss: Loss) {
        self.change(|rules| rules.lost = Some((request, loss)));
    }

    /// How many were lost.
    pub(crate) fn losses(&self) -> usize {
        self.shared.rules().losses
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn holds(piece: &[u8], bytes: &[u8]) -> bool {
    piece.windows(bytes.len()).any(|window| window == bytes)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let target = shared.target.load(Ordering::SeqCst);
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await else { return };
            let _ = client.set_nodelay(true);
            let _ = server.set_nodelay(true);
            // Whatever ends a connection ends both sides of it.
            let _ = pump(client, server, &shared).await;
        });
    }
}

async fn pump(mut client: TcpStream, mut server: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut changes = shared.changes.subscribe();
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let (mut request, mut reply) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    let (mut is_member, mut loss) = (None, None);
    loop {
        tokio::select! {
            count = from_client.read(&mut request) => {
                let piece = &request[..count?];
                if piece.is_empty() {
                    return Ok(());
                }
                let is_member = *is_member.get_or_insert_with(|| !holds(piece, DRIVER));
                {
                    let mut rules = shared.rules();
                    let is_banned = rules.banned.as_ref().is_some_and(|name| holds(piece, name));
                    if is_member && (rules.no_members || is_banned) {
                        return Ok(());
                    }
                    if let Some((_, how)) = rules.lost.take_if(|(lost, _)| holds(piece, lost)) {
                        rules.losses += usize::from(how != Loss::Cut);
                        loss = Some(how);
                    }
                }
                if loss == Some(Loss::NoRequest) {
                    continue;
                }
                to_server.write_all(piece).await?;
            }
            count = from_server.read(&mut reply) => {
                let piece = &reply[..count?];
                if loss == Some(Loss::Cut) {
                    // The server has done what it was asked for.
                    shared.rules().losses += 1;
                    return Ok(());
                }
                if piece.is_empty() {
                    return Ok(());
                }
                if loss.is_some() {
                    continue;
                }
                to_client.write_all(piece).await?;
            }
            _ = changes.changed() => {
                if is_member == Some(true) && shared.rules().no_members {
                    return Ok(());
                }
            }
        }
    }
}
