//! Memory while a long log is tailed, in a process of its own: nothing that was written or read before is in it.

use std::{path::Path, process::Command, sync::Arc, time::Instant};

use anyhow::{Context as _, Result, ensure};
use wow_store_api::{ContextName, EventLog as _, StoreAdmin as _, StoreExt as _, TailRequest};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

use crate::{
    machine::resident_kib,
    report::{Op, Report, count},
    sides::CONTEXT,
    stats::{rate, real},
};

/// How much more may be held at any later point than after the first tenth, in MiB: no more than what lies between two
/// fillings of the block cache, far below what was read.
const GROWTH_MIB: f64 = 32.0;

/// The tail, in the process of its own: one line with the memory at every tenth.
pub(crate) async fn tail(directory: &Path) -> Result<()> {
    let store = Arc::new(EmbeddedStore::open(EmbeddedConfig::new(directory)).await?);
    let context = ContextName::new(CONTEXT)?;
    let total: u64 = store.heads(&context).await?.iter().sum();
    let start = Instant::now();
    let mut tail = store.tail(TailRequest::new(context)).await?;
    let (mut commits, mut tenth) = (0_usize, 1_u64);
    while let Some(batch) = tail.try_next().await? {
        commits += batch.commits.len();
        while u64::try_from(commits)? * 10 >= total * tenth && tenth <= 10 {
            println!(
                "{tenth} {}",
                resident_kib().context("this system does not tell how much memory is used")?
            );
            tenth += 1;
        }
    }
    println!("rate {:.0}", rate(commits, start.elapsed()));
    store.close().await?;
    Ok(())
}

/// Runs that process on a closed store, and reports.
pub(crate) fn measure(store: &Path, report: &mut Report) -> Result<()> {
    if resident_kib().is_none() {
        report.note(
            "embedded-tail-memory: not measured, this system does not tell how much memory is used".into(),
        );
        return Ok(());
    }
    let program = std::env::current_exe()?;
    let output = Command::new(program).arg("tail-memory").arg(store).output()?;
    ensure!(output.status.success(), "the tail failed: {}", String::from_utf8_lossy(&output.stderr));
    let mut tenths = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let (label, value) = line.split_once(' ').context("a line of another form")?;
        if label == "rate" {
            println!("tail in a new process: {} commits/s", count(value.parse()?));
        } else {
            tenths.push(real(value.parse()?) / 1024.0);
        }
    }
    ensure!(tenths.len() == 10, "the tail did not see all commits");
    let shown: Vec<_> = tenths.iter().map(|mib| format!("{mib:.0}")).collect();
    println!("memory at each tenth of it, MiB: {}", shown.join(" "));
    let first = tenths.first().copied().unwrap_or_default();
    let most = tenths.iter().copied().fold(first, f64::max);
    report.goal("embedded-tail-memory-growth-mib", most - first, Op::AtMost, GROWTH_MIB);
    Ok(())
}
