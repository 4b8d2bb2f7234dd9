//! `transfer` as a whole.

#![allow(clippy::expect_used, reason = "a test that cannot go on says so by a panic")]

mod support;

use support::{stdout, transfer};
use wow_store_api::{ContextName, EventLog};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

#[test]
fn conserves_money_where_everybody_wants_the_same_accounts() {
    let mut command = transfer();
    command.args(["--data", "memory", "--accounts", "2", "--transfers", "2000", "--concurrency", "32"]);
    // Exit code 0: the money is conserved.
    let stdout = stdout(command, 0);
    assert!(stdout.contains("200.00 on 2 accounts"), "two accounts were opened with 100.00\n{stdout}");
}

#[test]
fn refuses_arguments_that_make_no_sense() {
    for wrong in
        [["--accounts", "1"], ["--concurrency", "0"], ["--transfers", "-1"], ["--data", "nosuch://place"]]
    {
        let mut command = transfer();
        let output = command.args(wrong).output().expect("the program starts");
        // Nothing is done.
        assert!(!output.status.success(), "{wrong:?} is refused");
        assert!(output.stdout.is_empty(), "{wrong:?} comes before any work");
    }
}

#[tokio::test]
async fn does_nothing_in_a_directory_that_is_in_use() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = EmbeddedStore::open(EmbeddedConfig::new(directory.path())).await.expect("it opens");
    let mut command = transfer();
    command.arg("--data").arg(directory.path());
    // It is told, and does nothing.
    assert_eq!(stdout(command, 1), "");
    assert_eq!(
        store.heads(&ContextName::new("bank").expect("a name")).await.expect("it is readable"),
        Vec::<u64>::new()
    );
}
