//! What is measured on: figures are worth nothing without it.

use std::{
    fmt,
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use crate::stats::percentile;

/// The machine, and the floor under everything durable: one small write and its sync.
#[derive(Debug)]
pub(crate) struct Machine {
    cores: usize,
    load_average: String,
    file_system: String,
    sync_p50: f64,
    sync_p99: f64,
}

impl Machine {
    /// Looks at the machine and at the disk under this directory.
    pub(crate) fn look(directory: &Path) -> Result<Self> {
        let mut syncs = syncs(directory).context("cannot write to the directory for the stores")?;
        syncs.sort_unstable();
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            load_average: load_average(),
            file_system: file_system(directory).unwrap_or_else(|| "unknown".to_owned()),
            sync_p50: percentile(&syncs, 0.5),
            sync_p99: percentile(&syncs, 0.99),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cores, load average {}, file system {}, 4 KiB write + fdatasync p50 {:.0} µs p99 {:.0} µs",
            self.cores, self.load_average, self.file_system, self.sync_p50, self.sync_p99
        )
    }
}

fn syncs(directory: &Path) -> std::io::Result<Vec<Duration>> {
    let path = directory.join("syncs");
    let mut file = std::fs::File::create(&path)?;
    let block = [7; 4096];
    let mut syncs = Vec::new();
    for _ in 0..500 {
        let start = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        syncs.push(start.elapsed());
    }
    std::fs::remove_file(path)?;
    Ok(syncs)
}

/// The load average of the last minute, where the system tells it: what else the machine was busy with.
pub(crate) fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().filter(|first| !first.is_empty()).unwrap_or("unknown").to_owned()
}

/// The type of the file system that holds a path.
fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let mount = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let (_, kind) =
        mount.filter(|(point, _)| path.starts_with(point)).max_by_key(|(point, _)| point.len())?;
    Some(kind.to_owned())
}

/// Memory of this process that is in use now, in KiB.
pub(crate) fn resident_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Processor time that this process has used so far, in user and in system mode.
pub(crate) fn processor_time() -> Option<Duration> {
    /// What Linux tells such times in, whatever the machine.
    const TICKS_PER_SECOND: u64 = 100;
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in brackets, may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let times = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = times.map(|ticks| ticks.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}
