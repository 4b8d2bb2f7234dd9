//! Both programs on PostgreSQL: the same but for the place that they are given.

mod support;

use support::{file, fixture, replay, rows, stdout, transfer};
use wow_store_conformance::server::PostgresServer;

#[test]
fn transfer_does_on_a_database_what_it_does_in_memory() {
    let server = PostgresServer::start(&["fsync = off"]);
    let run = |data: &str| {
        let mut command = transfer();
        command.args(["--data", data, "--accounts", "5", "--transfers", "500", "--concurrency", "32"]);
        // Exit code 0: the money is conserved.
        stdout(command, 0)
    };
    let (first, again, memory) = (run(server.url()), run(server.url()), run("memory"));
    for output in [&first, &again] {
        assert!(output.contains("500.00 on 5 accounts"), "five accounts were opened with 100.00\n{output}");
        assert!(!output.contains("postgres:postgres"), "no credential is shown\n{output}");
        let lines = |output: &str| output.lines().count();
        assert_eq!(lines(output), lines(&memory), "it says as much\n{output}\n{memory}");
    }
    assert!(!again.contains(" 0 commits so far"), "it goes on where it was\n{again}");
}

#[test]
fn replay_counts_on_a_database_what_it_counts_in_memory() {
    let server = PostgresServer::start(&["fsync = off"]);
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
    assert_eq!(run(server.url()), memory, "the same totals");
    assert_eq!(run(server.url()), memory, "once more, from what is stored");
}
