//! Wake-ups between nodes (T3, T4): one connection that listens and tells, and a poll that does not depend on it.
//!
//! A notification is sent **after** the commit that it is about, on the connection that listens, for all commits since
//! the last one together. So no append ever takes the lock that NOTIFY takes on the whole database until its
//! transaction ends. What gets lost on the way is found by the poll.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Weak,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, Executor as _,
    postgres::{PgListener, PgPoolOptions},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout},
};
use wow_store_api::{ContextName, Position};

use crate::{
    attempts::back_off,
    fault::{Again, Fault},
    macros::args,
    names,
    pool::{Sessions, Sql},
    store::Inner,
    value::Cells as _,
};

/// Longest pause between two attempts to listen.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// Once others were told, what comes within so long is told together: under load they look anyway.
const TOGETHER: Duration = Duration::from_millis(2);
/// How long connecting, listening or telling may take.
const ANSWER: Duration = Duration::from_secs(10);

/// How new commits of other nodes come to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushState {
    /// Not asked for: only by polling.
    Off,
    /// It cannot be had through the pooler in between: only by polling.
    Impossible,
    /// The connection that listens is being made (again): by polling in the meantime.
    Connecting,
    /// By notification, and by polling where one gets lost.
    Listening,
}

const STATES: [PushState; 4] =
    [PushState::Off, PushState::Impossible, PushState::Connecting, PushState::Listening];

/// What the rest of the store knows of the tasks.
pub(crate) struct Push {
    state: AtomicU8,
    tell: mpsc::UnboundedSender<(ContextName, u32)>,
    stop: watch::Sender<bool>,
}

impl Push {
    pub(crate) fn new(tell: mpsc::UnboundedSender<(ContextName, u32)>) -> Self {
        Self { state: AtomicU8::new(0), tell, stop: watch::Sender::new(false) }
    }

    pub(crate) fn state(&self) -> PushState {
        let state = usize::from(self.state.load(Ordering::SeqCst));
        STATES.get(state).copied().unwrap_or(PushState::Off)
    }

    fn set(&self, state: PushState) {
        let index = STATES.iter().position(|it| *it == state).unwrap_or_default();
        self.state.store(u8::try_from(index).unwrap_or_default(), Ordering::SeqCst);
    }

    /// Tells other nodes.
    fn tell(&self, context: &ContextName, partition: u32) {
        if self.state() == PushState::Listening {
            // Without the task there is nobody to tell.
            let _ = self.tell.send((context.clone(), partition));
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }
}

impl Inner {
    /// A partition has new commits: wakes the tails here, and tells the other nodes.
    pub(crate) fn announce(&self, context: &ContextName, partition: u32) {
        self.wakeups.notify(context, partition);
        self.push.tell(context, partition);
    }
}

/// Starts the tasks. They end when the store is closed or its last handle is gone.
pub(crate) fn start(inner: &Arc<Inner>, told: mpsc::UnboundedReceiver<(ContextName, u32)>) {
    spawn(inner, poll(Arc::downgrade(inner), inner.config.poll_interval));
    if !inner.config.push {
        return;
    }
    if inner.pool.sessions() == Sessions::ByTransaction {
        inner.push.set(PushState::Impossible);
        return;
    }
    inner.push.set(PushState::Connecting);
    spawn(inner, listen(Arc::downgrade(inner), told));
}

fn spawn(inner: &Arc<Inner>, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    let mut stop = inner.push.stop.subscribe();
    tokio::spawn(async move {
        // The value that is waited for is locked while it is held: nothing may be dropped with it in hand.
        let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
        tokio::select! {
            () = task => {}
            () = stopped => {}
        }
    })
}

/// Looks at the heads of what is watched, time and again: the guarantee that nothing is missed for longer.
async fn poll(store: Weak<Inner>, every: Duration) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut known: BTreeMap<ContextName, Vec<Position>> = BTreeMap::new();
    loop {
        ticks.tick().await;
        let Some(inner) = store.upgrade() else { return };
        inner.pool.tidy();
        let watched = inner.wakeups.watched();
        known.retain(|context, _| watched.contains(context));
        for context in watched {
            let heads = match look(&inner, &context, every).await {
                // Connections that broke while nobody used them are closed by now.
                Err(fault) if fault.again == Again::Lost => look(&inner, &context, every).await,
                heads => heads,
            };
            // A server that cannot be reached is asked again at the next tick.
            let Ok(heads) = heads else { continue };
            let before = known.insert(context.clone(), heads.clone()).unwrap_or_default();
            for (index, head) in (0_u32..).zip(&heads) {
                let seen = usize::try_from(index).ok().and_then(|index| before.get(index));
                if seen.copied().unwrap_or_default() != *head {
                    inner.wakeups.notify(&context, index);
                }
            }
        }
    }
}

async fn look(inner: &Inner, context: &ContextName, every: Duration) -> Result<Vec<Position>, Fault> {
    let looking = async {
        let mut conn = inner.pool.take(Instant::now() + every.max(ANSWER)).await?;
        inner.heads_of(&mut conn, context).await
    };
    timeout(every.max(ANSWER), looking).await.unwrap_or_else(|_| Err(Fault::no_answer()))
}

/// Listens and tells, and connects again whenever that breaks.
async fn listen(store: Weak<Inner>, mut told: mpsc::UnboundedReceiver<(ContextName, u32)>) {
    let mut tries = 0;
    loop {
        let connected = match store.upgrade() {
            Some(inner) => connect(&inner).await,
            None => return,
        };
        match connected {
            Ok(listener) => {
                if let Some(inner) = store.upgrade() {
                    inner.push.set(PushState::Listening);
                    // What was committed while nobody listened.
                    inner.wakeups.notify_all();
                }
                if tries > 0 {
                    tracing::info!("listening for new commits again");
                }
                tries = 1;
                attend(&store, listener, &mut told).await;
                if let Some(inner) = store.upgrade() {
                    inner.push.set(PushState::Connecting);
                }
                tracing::warn!("the connection that listens for new commits broke: polling until it is back");
            }
            Err(_) if tries > 1 => tries += 1,
            Err(_) => {
                tries = 2;
                tracing::warn!("the server cannot be listened to: polling until it can");
            }
        }
        sleep(back_off(tries).saturating_mul(1 << tries.saturating_sub(6).min(8)).min(MAX_PAUSE)).await;
    }
}

async fn connect(inner: &Inner) -> Result<PgListener, Fault> {
    let connecting = async {
        let options = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None);
        let pool = options.test_before_acquire(false).connect_with(inner.pool.options().clone()).await?;
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.ignore_pool_close_event(true);
        // We connect again ourselves, and look at everything then.
        listener.eager_reconnect(false);
        listener.listen(&names::channel(inner.schema.name())).await?;
        Ok(listener)
    };
    timeout(ANSWER, connecting).await.unwrap_or_else(|_| Err(Fault::no_answer()))
}

/// Until the connection breaks or the store is gone.
async fn attend(
    store: &Weak<Inner>,
    mut listener: PgListener,
    told: &mut mpsc::UnboundedReceiver<(ContextName, u32)>,
) {
    let mut partitions = BTreeSet::new();
    let mut due = Instant::now();
    loop {
        tokio::select! {
            heard = listener.try_recv() => {
                let (Ok(Some(heard)), Some(inner)) = (heard, store.upgrade()) else { return };
                hear(&inner, heard.payload());
            }
            next = told.recv() => {
                let Some(next) = next else { return };
                partitions.insert(next);
                while let Ok(next) = told.try_recv() {
                    partitions.insert(next);
                }
            }
            () = sleep_until(due), if !partitions.is_empty() => {
                let Some(inner) = store.upgrade() else { return };
                let sql = tell(&names::channel(inner.schema.name()), &std::mem::take(&mut partitions));
                drop(inner);
                let sent = timeout(ANSWER, listener.execute(sqlx::raw_sql(AssertSqlSafe(sql)))).await;
                if !matches!(sent, Ok(Ok(_))) {
                    return;
                }
                due = Instant::now() + TOGETHER;
                while let Some(heard) = listener.next_buffered() {
                    let Some(inner) = store.upgrade() else { return };
                    hear(&inner, heard.payload());
                }
            }
        }
    }
}

/// One round trip for all: context and partition, nothing else. A notification is a transaction that the server would
/// bring to disk before it goes out, behind the appends; there is nothing in it that is to last.
fn tell(channel: &str, partitions: &BTreeSet<(ContextName, u32)>) -> String {
    let payloads: Vec<String> =
        partitions.iter().map(|(context, index)| names::literal(&format!("{context} {index}"))).collect();
    format!(
        "SET LOCAL synchronous_commit = off; SELECT pg_catalog.pg_notify({}, n) FROM unnest(ARRAY[{}]::text[]) AS n",
        names::literal(channel),
        payloads.join(", ")
    )
}

fn hear(inner: &Inner, payload: &str) {
    let partition = payload
        .split_once(' ')
        .and_then(|(context, index)| Some((ContextName::new(context).ok()?, index.parse::<u32>().ok()?)));
    match partition {
        Some((context, index)) => inner.wakeups.notify(&context, index),
        // Somebody else's, or a later version's.
        None => inner.wakeups.notify_all(),
    }
}

impl Inner {
    /// The last position of each partition; empty where the context was never used.
    pub(crate) async fn heads_of(
        &self,
        conn: &mut crate::pool::Conn,
        context: &ContextName,
    ) -> Result<Vec<Position>, Fault> {
        let sql = Sql::from(format!(
            "SELECT position FROM {} ORDER BY partition",
            self.schema.at(&names::counter(context))
        ));
        match conn.rows(&sql, args![]).await {
            Ok(rows) => rows.iter().map(|row| row.counter(0)).collect(),
            Err(fault) if fault.is_missing() => Ok(Vec::new()),
            Err(fault) => Err(fault),
        }
    }
}
