//! Runs the example programs as their users do.

#![allow(dead_code, reason = "each test program uses a part")]
#![allow(clippy::expect_used, reason = "a test that cannot go on says so by a panic")]

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use flate2::{Compression, write::GzEncoder};

pub(crate) fn transfer() -> Command {
    Command::new(env!("CARGO_BIN_EXE_transfer"))
}

pub(crate) fn replay(log: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_replay"));
    command.arg(log);
    command
}

/// What a program wrote to standard output; panics with all that it wrote if its exit code is another.
pub(crate) fn stdout(mut command: Command, exit_code: i32) -> String {
    let output = command.output().expect("the program starts");
    let said = describe(&output);
    assert_eq!(output.status.code(), Some(exit_code), "{command:?}\n{said}");
    String::from_utf8(output.stdout).expect("it writes text")
}

pub(crate) fn describe(output: &Output) -> String {
    format!(
        "{}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

pub(crate) fn fixture() -> Vec<u8> {
    include_bytes!("../fixtures/tiny.xes").to_vec()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory takes it");
    encoder.finish().expect("memory takes it")
}

pub(crate) fn file(directory: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, bytes).expect("the directory is writable");
    path
}

/// The rows of the tables in an output, each as its cells, which are apart by two spaces or more.
pub(crate) fn rows(stdout: &str) -> Vec<Vec<String>> {
    let lines = stdout.lines().filter_map(|line| line.strip_prefix('│')?.strip_suffix('│'));
    lines
        .map(|line| {
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
        })
        .collect()
}
