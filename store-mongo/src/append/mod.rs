//! Appending (L1 to L8, L11).
//!
//! Each partition has one queue and one writer on this node: two transactions on one counter abort each other. An append
//! that finds the writer idle goes at once and alone; what arrives while it is on its way goes together in the next
//! transaction. An append of several commits waits for its turn with all their partitions. Writers of other nodes are
//! met with retries.
//!
//! The first attempt looks at nothing that the unique indexes will tell ([`draft`]). If they object, or it is unknown
//! what became of it, the next one looks. After a collision with a writer of another node the counter is the first thing
//! that an attempt writes: what it looks at then stays as it is, and it need not be as fast as the other to get its turn.

mod draft;
mod look;
mod queues;
mod riders;

use std::sync::Arc;

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
    attempts::pause,
    fault::{Again, Fault},
    store::{Inner, MongoStore},
};

pub(crate) use self::queues::Queues;
use self::{
    draft::{Care, Mode},
    queues::{Batch, Caller, Pending, Queue},
};

/// What one commit came to: an answer, or a refusal that is its own.
type Answer = Result<Receipt>;

impl MongoStore {
    pub(crate) async fn append_one(&self, commit: CheckedCommit) -> Result<Receipt> {
        self.check_open("append")?;
        let inner = &self.inner;
        let count = inner.use_log(commit.aggregate_id().aggregate_type()).await?;
        for op in commit.timers() {
            inner.use_timers(op.context()).await?;
        }
        let partition = count.partition_of(commit.aggregate_id());
        let (reply, answer) = oneshot::channel();
        let deadline = Instant::now() + inner.config.transaction_timeout;
        let queue = inner.queues.of(&partition);
        if queue.push(Pending::new(commit, Caller(reply), deadline.into_std())) {
            // Appends belong to the writer from here on: dropping this future changes nothing.
            tokio::spawn(write(Arc::clone(inner), queue));
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
            for op in commit.timers() {
                inner.use_timers(op.context()).await?;
            }
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
    let (mut tries, mut unknown, mut care) = (0, false, Care::default());
    loop {
        let attempt = inner.draft(&commits, Mode::Together, care);
        let result = inner.while_primary(deadline, attempt).await;
        let fault = match result {
            Ok(answers) => {
                let receipts = answers.into_iter().collect::<Result<Vec<_>>>();
                return receipts.map_err(|error| settled(error, unknown));
            }
            Err(fault) => fault,
        };
        unknown |= fault.again == Again::Lost;
        if inner.is_shut() {
            return Err(settled(Fault::closed().error, unknown));
        }
        let pause = pause(&fault, tries);
        care.take(&fault);
        if fault.again == Again::No || Instant::now() + pause >= deadline {
            return Err(settled(fault.error, unknown));
        }
        sleep(pause).await;
        tries += 1;
    }
}

/// The writer of a partition: until its queue is empty.
async fn write(inner: Arc<Inner>, queue: Arc<Queue>) {
    let _running = inner.queues.running();
    let mut writer = Writer::default();
    while let Some(batch) = queue.take(&mut writer, Instant::now().into_std()) {
        inner.write_batch(queue.partition(), batch, Care::default()).await;
        // Who was just answered often has the next append at hand: those that are ready to run come first, and go along.
        // This is no waiting; a lone append does not get here behind others.
        yield_now().await;
    }
}

impl Inner {
    /// Answers everyone in the batch, in this attempt or a later one.
    async fn write_batch(&self, partition: &PartitionId, mut batch: Batch, mut care: Care) {
        let mut tries = 0;
        while let Some(deadline) = batch.deadline() {
            let attempt = self.draft(batch.commits(), Mode::Each, care);
            let result = self.while_primary(Instant::from_std(deadline), attempt).await;
            let fault = match result {
                Ok(answers) => {
                    batch.answer(answers);
                    return;
                }
                Err(fault) => fault,
            };
            care.take(&fault);
            match fault.again {
                Again::No if batch.len() > 1 => {
                    // One of them made the server refuse all: each on its own, in order.
                    for one in batch.split() {
                        Box::pin(self.write_batch(partition, one, care)).await;
                    }
                    return;
                }
                Again::No => {
                    batch.refuse(&fault.error);
                    return;
                }
                // Whoever came after the store was closed.
                Again::Safe | Again::Lost if self.is_shut() => {
                    let mut late = batch;
                    late.note(fault.again == Again::Lost);
                    late.refuse(&Fault::closed().error);
                    return;
                }
                Again::Safe | Again::Lost => {
                    batch.note(fault.again == Again::Lost);
                    let pause = pause(&fault, tries);
                    tries += 1;
                    batch.expire((Instant::now() + pause).into_std(), &fault.error);
                    if !batch.is_empty() {
                        sleep(pause).await;
                    }
                }
            }
        }
    }
}
