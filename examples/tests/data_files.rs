//! `replay` on real event logs, in the directory that `WOW_DATA` names. They are not part of the repository: where no
//! directory is named these tests are reported as ignored; a file that is missing in it is a failure.

#![allow(clippy::expect_used, reason = "a test that cannot go on says so by a panic")]

mod support;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use libtest_mimic::{Arguments, Failed, Trial};
use support::{replay, rows, stdout};

struct Log {
    file: &'static str,
    /// Where the first run is killed.
    kill_at: &'static str,
    /// Rows that the report must have: counted from the file by other means.
    rows: &'static [&'static [&'static str]],
}

const LOGS: [Log; 3] = [
    Log {
        file: "roadtraffic100.xes.gz",
        kill_at: "reading: 100 %",
        rows: &[
            &["Create Fine", "100"],
            &["amount", "157", "9384.19"],
            &["expense", "78", "883.59"],
            &["paymentAmount", "58", "2968.03"],
            &["totalPaymentAmount", "158", "3433.93"],
        ],
    },
    Log {
        file: "bpic2013_incidents.xes.gz",
        kill_at: "reading: 50 %",
        rows: &[&["Accepted", "40117"], &["Completed", "13867"], &["Queued", "11544"], &["Unmatched", "5"]],
    },
    Log {
        file: "bpic2012.xes.gz",
        kill_at: "reading: 50 %",
        rows: &[&["A_SUBMITTED", "13087"], &["AMOUNT_REQ", "13087", "177634511"]],
    },
];

fn check(path: &Path, log: &Log) -> Result<(), Failed> {
    if !path.is_file() {
        return Err(
            format!("there is no {}: WOW_DATA must name the directory that has it", path.display()).into()
        );
    }
    let directory = tempfile::tempdir()?;
    let replay = || {
        let mut command = replay(path);
        command.arg("--data").arg(directory.path().join("data"));
        command
    };
    #[cfg(unix)]
    support::kill_at(replay(), log.kill_at);
    let stdout = stdout(replay(), 0);
    let rows = rows(&stdout);
    for expected in log.rows {
        // Activities and sums as counted by other means.
        assert!(rows.iter().any(|row| row == expected), "{expected:?} is missing in\n{stdout}");
    }
    Ok(())
}

fn main() -> ExitCode {
    let directory = std::env::var_os("WOW_DATA").map(PathBuf::from);
    let trials = LOGS.into_iter().map(|log| {
        let (name, path) = (format!("replay::{}", log.file), directory.as_ref().map(|it| it.join(log.file)));
        match path {
            Some(path) => Trial::test(name, move || check(&path, &log)),
            None => Trial::test(name, || Ok(())).with_kind("WOW_DATA is not set").with_ignored_flag(true),
        }
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit_code()
}
