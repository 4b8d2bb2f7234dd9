//! `replay` on small logs: what it counts, and what it says to files that are no logs.

#![allow(clippy::expect_used, reason = "a test that cannot go on says so by a panic")]

mod support;

use std::path::Path;

use support::{describe, file, fixture, gzip, large_log, replay, rows, stdout};

fn row(cells: &[&str]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

#[test]
fn counts_what_is_in_the_log() {
    let directory = tempfile::tempdir().expect("a directory");
    for log in [
        file(directory.path(), "tiny.xes", &fixture()),
        file(directory.path(), "tiny.xes.gz", &gzip(&fixture())),
        file(directory.path(), "2 Ünnamed, really.XES", &fixture()),
        file(directory.path(), "report.xes", &fixture()),
    ] {
        let mut command = replay(&log);
        command.args(["--data", "memory"]);
        // Exit code 0: the totals are those of the file.
        let stdout = stdout(command, 0);
        let rows = rows(&stdout);
        for expected in [
            // Escapes are resolved.
            row(&["Pay & <go> \"now\" é", "1"]),
            // An activity is told from the case by its place, not by its name.
            row(&["CaseOpened", "1"]),
            // One event has no name, one has an empty one.
            row(&["unnamed", "2"]),
            // 0.10 + 0.20 + 79228162514264337593.5439 - 0.0015, to the last digit.
            row(&["amount", "4", "79228162514264337593.8424"]),
            // A string that is an amount; one that is not does not count.
            row(&["AMOUNT_REQ", "1", "20000"]),
            row(&["totalPaymentAmount", "1", "0.30"]),
        ] {
            assert!(rows.contains(&expected), "{expected:?} is missing in\n{stdout}");
        }
    }
}

#[test]
fn refuses_the_context_of_its_own_counts() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut command = replay(&file(directory.path(), "tiny.xes", &fixture()));
    command.args(["--data", "memory", "--context", "replay-report"]);
    // A log in there would be counted together with its counts.
    stdout(command, 1);
}

/// The program refuses the input with exit code 2 and names the file.
fn refuses(log: &Path) {
    let mut command = replay(log);
    let output = command.args(["--data", "memory"]).output().expect("the program starts");
    // The same code as for wrong arguments.
    assert_eq!(output.status.code(), Some(2), "{}\n{}", log.display(), describe(&output));
    let name = log.file_name().expect("a name").to_string_lossy();
    // Whoever replays many files must see which one it is.
    assert!(String::from_utf8_lossy(&output.stderr).contains(&*name), "{}", describe(&output));
}

#[test]
fn refuses_files_that_are_no_logs() {
    let directory = tempfile::tempdir().expect("a directory");
    let xes = String::from_utf8(fixture()).expect("it is text");
    let gz = gzip(&fixture());
    let half_of = |text: &str| gzip(text.split_at(text.len() / 2).0.as_bytes());
    let mut damaged = gz.clone();
    let checksum = damaged.len() - 8;
    damaged[checksum] ^= 1;
    for (name, bytes) in [
        ("empty.xes.gz", Vec::new()),
        ("nothing-inside.xes.gz", gzip(b"")),
        ("not-gzip.xes.gz", b"PK\x03\x04 this is a zip file".to_vec()),
        ("cut-off-header.xes.gz", gz[..5].to_vec()),
        ("cut-off.xes.gz", gz[..gz.len() / 2].to_vec()),
        ("cut-off-checksum.xes.gz", gz[..gz.len() - 4].to_vec()),
        ("wrong-checksum.xes.gz", damaged),
        ("rubbish-behind.xes.gz", [gz, b"rubbish".to_vec()].concat()),
        ("half-a-log.xes.gz", half_of(&xes)),
        ("broken-xml.xes.gz", gzip(xes.replacen("</event>", "</evnt>", 1).as_bytes())),
        ("no-traces.xes.gz", gzip(b"<log><string key=\"concept:name\" value=\"none\"/></log>")),
        ("another-root.xes.gz", gzip(b"<html><body/></html>")),
        ("long-name.xes.gz", gzip(xes.replace("A-2", &"x".repeat(256)).as_bytes())),
        ("no-number.xes.gz", gzip(xes.replace("0.10", "0,10").as_bytes())),
        ("rounded.xes.gz", gzip(xes.replace("0.10", "0.12345678901234567890123456789012").as_bytes())),
    ] {
        refuses(&file(directory.path(), name, &bytes));
    }
    refuses(&directory.path().join("not-there.xes.gz"));
    refuses(directory.path());
}

#[test]
fn what_is_no_log_makes_no_store() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    for (name, bytes) in [
        ("empty.xes", Vec::new()),
        ("nothing-inside.xes.gz", gzip(b"")),
        ("page.html", b"<!DOCTYPE html><html><body/></html>".to_vec()),
        ("another.gz", gzip(b"not even XML")),
    ] {
        let output = replay(&file(directory.path(), name, &bytes)).arg("--data").arg(&data).output();
        let output = output.expect("the program starts");
        assert_eq!(output.status.code(), Some(2), "{name}\n{}", describe(&output));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("are stored"), "nothing is, so nothing is said to be: {said}");
        assert!(!data.exists(), "{name} is refused before anything is made");
    }
}

#[test]
fn goes_on_once_a_file_that_was_cut_off_is_whole() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let whole = gzip(large_log().as_bytes());
    let run = |bytes: &[u8], exit_code| {
        let mut command = replay(&file(directory.path(), "log.xes.gz", bytes));
        command.arg("--data").arg(&data);
        stdout(command, exit_code)
    };
    // Cut off somewhere in the middle.
    run(&whole[..whole.len() / 2], 2);
    let resumed = run(&whole, 0);
    // What came before was stored, and is not stored again.
    assert!(!resumed.contains(" 0 were there"), "{resumed}");
    // Each case and each event counts once.
    assert!(resumed.contains("1000 cases with 10500 events counted"), "{resumed}");
}

#[test]
fn tells_another_version_of_the_log() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let xes = String::from_utf8(fixture()).expect("it is text");
    let run = |xes: &str, exit_code| {
        let mut command = replay(&file(directory.path(), "tiny.xes", xes.as_bytes()));
        command.arg("--data").arg(&data);
        stdout(command, exit_code);
    };
    run(&xes, 0);
    // Another activity: the totals differ.
    run(&xes.replace("\"Payment\"", "\"Refund\""), 1);
    // A cent more.
    run(&xes.replace("\"0.20\"", "\"0.21\""), 1);
    // An event less than the store has.
    let (before, rest) = xes.split_once("\t\t<event>").expect("there is an event");
    let (_, after) = rest.split_once("</event>\n").expect("it ends");
    run(&format!("{before}{after}"), 1);
    // The first version is still there.
    run(&xes, 0);
}
