//! Appending (L1 to L8, L11).
//!
//! Each partition has one queue on this node. An append that finds nobody at work goes at once and alone; what arrives
//! while it is on its way goes together in the next batch, as one call of a function in the database. Where many wait, a
//! second writer gets the next batch ready meanwhile, of other aggregates. Appends with riders or a fence, and `append_all`, take the careful way ([`draft`]): a transaction of a few
//! round trips that decides with the rules of the contract.

mod batch;
mod draft;
mod known;
mod queue;
mod riders;

use std::{pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::oneshot,
    task::yield_now,
    time::{Instant, sleep},
};
use wow_store_api::{
    CheckedCommit, Error, ErrorKind, PartitionId, Receipt, Result, check_append_all,
    rules::queue::{Writer, settled},
};

use crate::{
    attempts::{GRACE, back_off},
    fault::{Again, Fault},
    store::{Inner, PostgresStore},
};

use self::{
    draft::Mode,
    queue::{Batch, Caller, Line, Pending},
};
pub(crate) use self::{known::Known, queue::Queues};

/// What one commit came to: an answer, or a refusal that is its own.
type Answer = Result<Receipt>;

impl PostgresStore {
    pub(crate) async fn append_one(&self, commit: CheckedCommit) -> Result<Receipt> {
        self.check_open("append")?;
        let inner = &self.inner;
        let count = inner.use_log(commit.aggregate_id().aggregate_type()).await?;
        let partition = count.partition_of(commit.aggregate_id());
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + inner.config.transaction_timeout;
        let line = inner.queues.of(&partition);
        if line.queue.push(Pending::new(commit, Caller(reply), deadline.into_std())) {
            // Appends belong to the writer from here on: dropping this future changes nothing.
            tokio::spawn(write(Arc::clone(inner), line));
        }
        match answer.await {
            Ok(answer) => answer.map_err(|error| inner.named("append", error)),
            Err(_) => {
                let lost = ErrorKind::Internal { reason: "the writer of a partition ended".to_owned() };
                Err(inner.named("append", Error::unknown(lost)))
            }
        }
    }

    pub(crate) async fn append_together(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        const OPERATION: &str = "append_all";
        self.check_open(OPERATION)?;
        let inner = &self.inner;
        check_append_all(&commits).map_err(|error| inner.named(OPERATION, error))?;
        if commits.is_empty() {
            return Ok(Vec::new());
        }
        for commit in &commits {
            inner.use_log(commit.aggregate_id().aggregate_type()).await?;
        }
        let deadline = Instant::now() + inner.config.transaction_timeout;
        // In a task of its own: dropping this future neither stops it half-way nor holds a connection.
        let task = tokio::spawn(together(Arc::clone(inner), commits, deadline));
        let answer = match task.await {
            Ok(answer) => answer,
            Err(_) => Err(Error::unknown(ErrorKind::Internal { reason: "an append ended early".to_owned() })),
        };
        answer.map_err(|error| inner.named(OPERATION, error))
    }
}

async fn together(inner: Arc<Inner>, commits: Vec<CheckedCommit>, deadline: Instant) -> Result<Vec<Receipt>> {
    let (mut tries, mut unknown) = (0, false);
    loop {
        let fault = match inner.draft(&commits, Mode::Together, deadline).await {
            Ok(answers) => {
                let receipts = answers.into_iter().collect::<Result<Vec<_>>>();
                if unknown && let Ok(receipts) = &receipts {
                    // An attempt that got no answer has announced nothing.
                    for Receipt { partition, .. } in receipts {
                        inner.announce(partition.context(), partition.index());
                    }
                }
                return receipts.map_err(|error| settled(error, unknown));
            }
            Err(fault) => fault,
        };
        unknown |= fault.again == Again::Lost;
        if !wait(&inner, &fault, tries, deadline).await {
            return Err(settled(fault.error, unknown));
        }
        tries += 1;
    }
}

/// Waits for the next attempt; `false` if there is none.
async fn wait(inner: &Inner, fault: &Fault, tries: u32, deadline: Instant) -> bool {
    let pause = back_off(tries);
    if fault.again == Again::No || Instant::now() + pause >= deadline {
        return false;
    }
    let _ = inner;
    sleep(pause).await;
    true
}

/// A writer of a partition: until its queue is empty.
async fn write(inner: Arc<Inner>, line: Arc<Line>) {
    let _running = inner.queues.running();
    let mut writer = Writer::default();
    while let Some(batch) = line.queue.take(&mut writer, Instant::now().into_std()) {
        if line.queue.needs_writer() {
            tokio::spawn(boxed_write(Arc::clone(&inner), Arc::clone(&line)));
        }
        inner.write_batch(&line, batch).await;
        // Who was just answered often has the next append at hand: those that are ready to run come first, and go along.
        // This is no waiting; a lone append does not get here behind others.
        yield_now().await;
    }
}

/// A writer that a writer starts.
fn boxed_write(inner: Arc<Inner>, line: Arc<Line>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(write(inner, line))
}

impl Inner {
    /// Answers everyone in the batch, in this attempt or a later one.
    async fn write_batch(&self, line: &Line, mut batch: Batch) {
        let partition = line.queue.partition();
        let (mut tries, mut unknown) = (0, false);
        while !batch.is_empty() {
            let fault = match self.try_batch(line, &batch).await {
                Ok(answers) => {
                    // What was stored by an attempt that got no answer is found now, and was not announced then.
                    if unknown || answers.iter().flatten().any(|receipt| !receipt.replayed) {
                        self.announce(partition.context(), partition.index());
                    }
                    batch.answer(answers);
                    return;
                }
                Err(fault) => fault,
            };
            if fault.is_missing() {
                self.catalog.forget();
            }
            match fault.again {
                Again::No if batch.len() > 1 => {
                    // One of them made the server refuse all: each on its own, in order.
                    for one in batch.split() {
                        Box::pin(self.write_batch(line, one)).await;
                    }
                    return;
                }
                Again::No => {
                    let error = self.explain(partition, fault).await;
                    batch.refuse(&error);
                    return;
                }
                Again::Safe | Again::Lost => {
                    unknown |= fault.again == Again::Lost;
                    batch.note(fault.again == Again::Lost);
                    let pause = back_off(tries);
                    tries += 1;
                    batch.expire((Instant::now() + pause).into_std(), &fault.error);
                    if !batch.is_empty() {
                        sleep(pause).await;
                    }
                }
            }
        }
    }

    async fn try_batch(&self, line: &Line, batch: &Batch) -> std::result::Result<Vec<Answer>, Fault> {
        let deadline = batch.deadline().map_or_else(Instant::now, Instant::from_std);
        if batch.is_plain() {
            match self.append_plain(line, batch, deadline).await {
                // It counts before it looks: at the very end of a counter, that is too much for what is refused anyway.
                Err(fault) if fault.is_out_of_range() => {}
                answers => return answers,
            }
        }
        self.draft(batch.commits(), Mode::Each, deadline).await
    }

    /// A number that left its range is a counter that has reached its end: says which.
    async fn explain(&self, partition: &PartitionId, fault: Fault) -> Error {
        if !fault.is_out_of_range() {
            return fault.error;
        }
        let heads = async {
            let mut conn = self.pool.take(Instant::now() + GRACE).await?;
            self.heads_of(&mut conn, partition.context()).await
        };
        let heads = heads.await.unwrap_or_default();
        let head = usize::try_from(partition.index()).ok().and_then(|index| heads.get(index));
        let what = if head == Some(&wow_store_api::MAX_COUNTER) { "positions" } else { "versions" };
        Error::not_applied(ErrorKind::Exhausted { what }).with_context(partition)
    }
}

/// How long the server may wait for a lock: what is left of the deadline.
fn lock_millis(deadline: Instant) -> i32 {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    i32::try_from(left.as_millis()).unwrap_or(i32::MAX).max(1)
}
