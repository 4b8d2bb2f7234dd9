//! Progress: a bar on a terminal, a line for every tenth elsewhere (in a log file, in CI).

use std::{
    io::{self, Read},
    sync::atomic::{AtomicU64, Ordering},
};

use indicatif::{ProgressBar, ProgressStyle};

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes.
    Bytes,
}

/// How far a piece of work is. It writes to standard error, so that standard output stays clean.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    bar: ProgressBar,
    tenths: AtomicU64,
}

impl Progress {
    /// Starts at 0 of `total`.
    #[must_use]
    pub fn new(what: &'static str, total: u64, unit: Unit) -> Self {
        let numbers = match unit {
            Unit::Count => "{human_pos} of {human_len} ({eta} left)",
            Unit::Bytes => "{bytes} of {total_bytes} ({bytes_per_sec}, {eta} left)",
        };
        let style = ProgressStyle::with_template(&format!("{{prefix:>10}} {{bar:40}} {numbers}"))
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        // The bar hides itself where standard error is not a terminal.
        let bar = ProgressBar::new(total).with_style(style).with_prefix(what);
        Self { what, bar, tenths: AtomicU64::new(0) }
    }

    /// Goes on by `steps`.
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
        if !self.bar.is_hidden() {
            return;
        }
        let tenths = self.bar.position() * 10 / self.bar.length().unwrap_or(0).max(1);
        if self.tenths.fetch_max(tenths, Ordering::Relaxed) < tenths {
            eprintln!("{}: {} %", self.what, tenths * 10);
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Advances with every byte that is read from `inner`.
    pub fn reading<R: Read>(self, inner: R) -> impl Read {
        Reading { inner, progress: self }
    }
}

struct Reading<R> {
    inner: R,
    progress: Progress,
}

impl<R: Read> Read for Reading<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.progress.advance(u64::try_from(read).unwrap_or(u64::MAX));
        Ok(read)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.finish();
    }
}
