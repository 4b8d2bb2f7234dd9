//! Both programs killed in the middle (SIGKILL, no chance to tidy up) and started again on the same data.

#![allow(clippy::expect_used, reason = "a test that cannot go on says so by a panic")]
#![cfg(unix)]

mod support;

use std::{path::Path, process::Command};

use support::{file, gzip_stored, kill_at, large_log, replay, rows, stdout, transfer};

fn transfer_in(data: &Path) -> Command {
    let mut command = transfer();
    command.arg("--data").arg(data).args(["--accounts", "20", "--transfers", "4000"]);
    command
}

#[test]
fn transfer_conserves_money_however_often_it_is_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    // While the accounts are opened, and early, half way and late in the transfers.
    for marker in ["store ", "transfers: 10 %", "transfers: 50 %", "transfers: 90 %", "transfers: 30 %"] {
        assert!(kill_at(transfer_in(&data), marker), "it was killed at {marker:?}, before its end");
    }
    // Exit code 0: nothing was lost, and no transfer is there by half.
    let first = stdout(transfer_in(&data), 0);
    assert!(first.contains("2000.00 on 20 accounts"), "each of the accounts was opened once\n{first}");
    // It went on with what the killed runs had stored: more transfers than this run made, all whole.
    let after: u64 = first
        .split_once("accounts after ")
        .and_then(|(_, rest)| rest.split_once(' '))
        .and_then(|(count, _)| count.parse().ok())
        .expect("it says how many transfers there are");
    assert!(after > 4001, "the killed runs left some of theirs\n{first}");
    // And once more on the same data.
    stdout(transfer_in(&data), 0);
}

#[test]
fn replay_goes_on_where_it_was_killed() {
    let directory = tempfile::tempdir().expect("a directory");
    // Not compressed: the program shows its progress by the bytes of the file.
    let log = file(directory.path(), "log.xes.gz", &gzip_stored(large_log().as_bytes()));
    let replay_in = |data: &Path| {
        let mut command = replay(&log);
        command.arg("--data").arg(data);
        command
    };
    let expected = rows(&stdout(replay_in(&directory.path().join("at-once")), 0));
    let data = directory.path().join("killed");
    for marker in ["reading: 20 %", "reading: 70 %", "file ", "counting: 20 %", "counting: 60 %"] {
        assert!(kill_at(replay_in(&data), marker), "it was killed at {marker:?}, before its end");
    }
    // Exit code 0: the totals are those of the file.
    let resumed = stdout(replay_in(&data), 0);
    // The same report as without a kill.
    assert_eq!(rows(&resumed), expected);
    // It was all there already: nothing was stored twice, nothing was stored again.
    assert!(resumed.contains(" 0 commits stored now"), "{resumed}");
    // And once more, with nothing left to do.
    assert_eq!(rows(&stdout(replay_in(&data), 0)), expected);
}
