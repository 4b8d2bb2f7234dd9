//! Wake-ups between nodes (T3, T4): one change stream on the counters for the whole store, and a poll that does not
//! depend on it.
//!
//! The stream only says *look*. Whatever breaks it (a change of the primary, a killed cursor, history that is gone, a
//! dropped database) is answered by opening another from now on and looking at everything once.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use mongodb::bson::{Bson, doc};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use wow_store_api::{ContextName, Position};

use crate::{attempts::back_off, fault::Fault, names, store::Inner};

/// Longest pause between two attempts to watch.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// How long opening a stream may take.
const ANSWER: Duration = Duration::from_secs(10);

/// How new commits of other nodes come to be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushState {
    /// Not asked for: only by polling.
    Off,
    /// The user may not open change streams: only by polling.
    Impossible,
    /// The stream is being opened (again): by polling in the meantime.
    Connecting,
    /// By change stream, and by polling where it breaks.
    Watching,
}

const STATES: [PushState; 4] =
    [PushState::Off, PushState::Impossible, PushState::Connecting, PushState::Watching];

/// What the rest of the store knows of the tasks.
pub(crate) struct Push {
    state: AtomicU8,
    stop: watch::Sender<bool>,
}

impl Default for Push {
    fn default() -> Self {
        Self { state: AtomicU8::new(0), stop: watch::Sender::new(false) }
    }
}

impl Push {
    pub(crate) fn state(&self) -> PushState {
        let state = usize::from(self.state.load(Ordering::SeqCst));
        STATES.get(state).copied().unwrap_or(PushState::Off)
    }

    fn set(&self, state: PushState) {
        let index = STATES.iter().position(|it| *it == state).unwrap_or_default();
        self.state.store(u8::try_from(index).unwrap_or_default(), Ordering::SeqCst);
    }

    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }
}

/// Starts the tasks. They end when the store is closed or its last handle is gone.
pub(crate) fn start(inner: &Arc<Inner>) {
    spawn(inner, poll(Arc::downgrade(inner), inner.config.poll_interval));
    if inner.config.push {
        inner.push.set(PushState::Connecting);
        spawn(inner, listen(Arc::downgrade(inner)));
    }
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
        let watched = inner.wakeups.watched();
        known.retain(|context, _| watched.contains(context));
        for context in watched {
            // A server that cannot be reached is asked again at the next tick.
            let heads = timeout(every.max(ANSWER), inner.heads_of(&context)).await;
            let Ok(Ok(heads)) = heads else { continue };
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

/// Follows the counters, and starts over whenever that breaks.
async fn listen(store: Weak<Inner>) {
    let mut tries = 0_u32;
    loop {
        match attend(&store).await {
            // The store is gone.
            Ok(()) => return,
            Err(fault) => {
                let Some(inner) = store.upgrade() else { return };
                let was = inner.push.state();
                if fault.is_forbidden() {
                    tracing::warn!(
                        "the user may not open change streams: new commits of other nodes are found by polling; grant \
                         changeStream on the database"
                    );
                    inner.push.set(PushState::Impossible);
                    return;
                }
                if was == PushState::Watching {
                    tries = 0;
                    tracing::warn!("the change stream broke: polling until there is another");
                }
                inner.push.set(PushState::Connecting);
            }
        }
        tries = tries.saturating_add(1);
        sleep(back_off(tries).saturating_mul(1 << tries.saturating_sub(6).min(8)).min(MAX_PAUSE)).await;
    }
}

/// Until the stream breaks, which is an error, or the store is gone.
async fn attend(store: &Weak<Inner>) -> Result<(), Fault> {
    let pipeline = vec![
        doc! { "$match": { "$or": [
            { "ns.coll": { "$regex": names::counters() } },
            { "operationType": { "$in": ["drop", "rename", "dropDatabase"] } },
        ] } },
        doc! { "$project": { "_id": 1, "operationType": 1, "ns": 1, "documentKey": 1 } },
    ];
    let mut stream = {
        let Some(inner) = store.upgrade() else { return Ok(()) };
        let opening = timeout(ANSWER, inner.db.watch(pipeline)).await;
        let stream = opening.unwrap_or_else(|_| Err(Fault::no_answer()))?;
        inner.push.set(PushState::Watching);
        // What was committed while nobody watched.
        inner.wakeups.notify_all();
        stream
    };
    while let Some(event) = stream.next().await {
        let event = event?;
        let Some(inner) = store.upgrade() else { return Ok(()) };
        let collection = event.ns.as_ref().and_then(|ns| ns.coll.as_deref());
        let context = collection.and_then(names::context_of_counter);
        let index = event.document_key.as_ref().and_then(|key| match key.get("_id") {
            Some(Bson::Int32(index)) => u32::try_from(*index).ok(),
            Some(Bson::Int64(index)) => u32::try_from(*index).ok(),
            _ => None,
        });
        match (context, index) {
            (Some(context), Some(index)) => inner.wakeups.notify(&context, index),
            // Collections came or went.
            _ => {
                inner.forget();
                inner.wakeups.notify_all();
            }
        }
    }
    // The database was dropped, perhaps.
    if let Some(inner) = store.upgrade() {
        inner.forget();
    }
    Err(Fault::overtaken())
}
