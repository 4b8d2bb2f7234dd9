//! Both programs on every backend: the same output and the same totals, whatever place they are given.

#![allow(clippy::expect_used, reason = "a test that cannot go on says so by a panic")]

mod support;

use support::{file, fixture, replay, rows, stdout, transfer};
use wow_store_conformance::server::{MongoServer, PostgresServer};

fn transfers(url: &str) {
    let run = |data: &str| {
        let mut command = transfer();
        command.args(["--data", data, "--accounts", "5", "--transfers", "500", "--concurrency", "32"]);
        // Exit code 0: the money is conserved.
        stdout(command, 0)
    };
    let (first, again, memory) = (run(url), run(url), run("memory"));
    for output in [&first, &again] {
        assert!(output.contains("money conserved: 500.00 on 5 accounts"), "all that was paid in\n{output}");
        assert!(!output.contains("postgres:postgres"), "no credential is shown\n{output}");
        let lines = |output: &str| output.lines().count();
        assert_eq!(lines(output), lines(&memory), "it says as much\n{output}\n{memory}");
    }
    assert!(!again.contains(" 0 commits so far"), "it goes on where it was\n{again}");
}

fn replays(url: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let log = file(directory.path(), "tiny.xes", &fixture());
    let run = |data: &str| {
        let mut command = replay(&log);
        command.args(["--data", data]);
        // Exit code 0: the totals are those of the file.
        rows(&stdout(command, 0))
    };
    let memory = run("memory");
    assert!(!memory.is_empty(), "there are totals");
    assert_eq!(run(url), memory, "the same totals");
    assert_eq!(run(url), memory, "once more, from what is stored");
}

#[test]
fn both_do_in_a_directory_what_they_do_in_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name).to_str().expect("a name in UTF-8").to_owned();
    transfers(&at("transfer"));
    replays(&at("replay"));
}

#[test]
fn both_do_on_postgresql_what_they_do_in_memory() {
    let server = PostgresServer::start(&["fsync = off"]);
    transfers(server.url());
    replays(server.url());
}

#[test]
fn both_do_on_mongodb_what_they_do_in_memory() {
    let server = MongoServer::start(1, &[]);
    transfers(&server.url("transfer"));
    replays(&server.url("replay"));
}
