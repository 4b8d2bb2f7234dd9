//! Two sides that take turns.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use comfy_table::Table;

use crate::{
    Options,
    load::{Body, Side, Until, Written, write},
    report::{count, table},
    stats::median,
};

/// What both sides did, round by round.
#[derive(Debug)]
pub(crate) struct Duel {
    pub(crate) ours: Vec<Written>,
    pub(crate) theirs: Vec<Written>,
}

impl Duel {
    /// Lets both write, in turns, each turn in a new directory, closed before the other's begins: what one does in the
    /// background is not at the other's cost. The order changes from round to round.
    pub(crate) async fn run<A: Side, B: Side>(
        options: &Options,
        scratch: &Path,
        writers: usize,
    ) -> Result<Self> {
        println!("\n{} and {}, {writers} concurrent writers, {} rounds", A::NAME, B::NAME, options.rounds);
        let body = Body::new()?;
        let mut duel = Self { ours: Vec::new(), theirs: Vec::new() };
        for round in 0..options.rounds {
            if round % 2 == 0 {
                duel.ours.push(turn::<A>(scratch, writers, &body, options.slice()).await?);
                duel.theirs.push(turn::<B>(scratch, writers, &body, options.slice()).await?);
            } else {
                duel.theirs.push(turn::<B>(scratch, writers, &body, options.slice()).await?);
                duel.ours.push(turn::<A>(scratch, writers, &body, options.slice()).await?);
            }
        }
        println!("{}", rows([(A::NAME, duel.ours.as_slice()), (B::NAME, &duel.theirs)]));
        Ok(duel)
    }

    /// The median of one figure of ours over theirs, within each round.
    pub(crate) fn ratio(&self, figure: impl Fn(&Written) -> f64) -> f64 {
        let rounds = self.ours.iter().zip(&self.theirs);
        median(rounds.map(|(ours, theirs)| figure(ours) / figure(theirs).max(f64::MIN_POSITIVE)).collect())
    }

    /// The median of one figure of ours.
    pub(crate) fn ours(&self, figure: impl Fn(&Written) -> f64) -> f64 {
        median(self.ours.iter().map(figure).collect())
    }
}

/// A table of what sides did.
pub(crate) fn rows<'a>(sides: impl IntoIterator<Item = (&'a str, &'a [Written])>) -> Table {
    let row = |(name, sides): (&str, &[Written])| {
        let of = |figure: fn(&Written) -> f64| median(sides.iter().map(figure).collect());
        let rounds: Vec<_> = sides.iter().map(|written| count(written.per_second())).collect();
        [
            name.to_owned(),
            count(of(Written::per_second)),
            format!("{:.0} µs", of(Written::p50)),
            format!("{:.0} µs", of(Written::p99)),
            format!("{:.1} µs", of(Written::processor_micros)),
            rounds.join(" "),
        ]
    };
    table(["", "commits/s", "p50", "p99", "CPU/commit", "commits/s by round"], sides.into_iter().map(row))
}

/// One side alone.
pub(crate) async fn alone<S: Side>(scratch: &Path, writers: usize, time: Duration) -> Result<Written> {
    turn::<S>(scratch, writers, &Body::new()?, time).await
}

async fn turn<S: Side>(scratch: &Path, writers: usize, body: &Arc<Body>, time: Duration) -> Result<Written> {
    let directory = tempfile::tempdir_in(scratch)?;
    let turn = async {
        let side = Arc::new(S::open(&directory.path().join("store")).await?);
        write(&side, body, "warm", writers, Until::Elapsed(time / 8)).await?;
        let written = write(&side, body, "turn", writers, Until::Elapsed(time)).await?;
        let side = Arc::into_inner(side).context("a writer still runs")?;
        side.close().await?;
        Ok::<_, anyhow::Error>(written)
    };
    let written = turn.await.with_context(|| format!("{} failed", S::NAME))?;
    directory.close()?;
    Ok(written)
}
