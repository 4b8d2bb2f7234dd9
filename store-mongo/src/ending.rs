//! Ends transactions that the store has given up.
//!
//! A server keeps a transaction, and all that it holds, for a minute after the last that it heard of it: also one whose
//! connection is gone, whose first command was still on its way when nobody waited for it any more, or whose commit never
//! arrived. The driver then either takes it for not begun or for committed, and ends it not at all; and an abort could
//! come before what it is to abort. So another transaction is begun in the same session: the server breaks off the one
//! before it, and refuses whatever of that is still to come.

use std::{sync::Arc, time::Duration};

use mongodb::{
    ClientSession, Database,
    bson::{Document, doc},
    error::ErrorKind,
    options::{ReadConcern, ReadPreference, SelectionCriteria},
};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, watch},
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{attempts::back_off, names};

/// How long one step may take.
const STEP: Duration = Duration::from_secs(2);
/// After this the server has ended the transaction itself, unless it was told to keep them for longer.
const LIFETIME: Duration = Duration::from_secs(60);

/// How many are being ended at a time: where no server answers, there may be many.
const AT_ONCE: usize = 4;

/// The transactions that are being ended.
#[derive(Debug)]
pub(crate) struct Endings {
    running: watch::Sender<usize>,
    turns: Arc<Semaphore>,
}

impl Default for Endings {
    fn default() -> Self {
        Self { running: watch::Sender::new(0), turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

/// Counts one while it is being ended.
struct Running(watch::Sender<usize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running = running.saturating_sub(1));
    }
}

impl Endings {
    /// Ends the session's transaction, whatever has become of it. Nobody has to wait for that.
    pub(crate) fn start(&self, database: Database, mut session: ClientSession) {
        // Without a runtime there is nobody left to do it.
        let Ok(runtime) = Handle::try_current() else { return };
        self.running.send_modify(|running| *running += 1);
        let running = Running(self.running.clone());
        let turns = Arc::clone(&self.turns);
        runtime.spawn(async move {
            let _running = running;
            let deadline = Instant::now() + LIFETIME;
            let mut tries = 0;
            while Instant::now() < deadline {
                let Ok(turn) = timeout_at(deadline, turns.acquire()).await else { return };
                let ended = timeout(STEP, end(&database, &mut session)).await;
                drop(turn);
                match ended {
                    Ok(Ok(())) => return,
                    // The store is closed.
                    Ok(Err(error)) if matches!(*error.kind, ErrorKind::Shutdown) => return,
                    Ok(Err(_)) | Err(_) => sleep(back_off(tries)).await,
                }
                tries += 1;
            }
        });
    }

    /// Waits until there is none.
    pub(crate) async fn finish(&self) {
        let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
    }
}

async fn end(database: &Database, session: &mut ClientSession) -> mongodb::error::Result<()> {
    // One of which the driver knows that it is open. It says no if there is none.
    let _ = session.abort_transaction().await;
    let primary = SelectionCriteria::ReadPreference(ReadPreference::Primary);
    session.start_transaction().read_concern(ReadConcern::local()).selection_criteria(primary).await?;
    database.collection::<Document>(names::FORMAT).find_one(doc! {}).session(&mut *session).await?;
    session.abort_transaction().await
}
