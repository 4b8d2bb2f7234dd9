//! Runs the example programs as their users do.

#![allow(dead_code, reason = "each test program uses a part")]
#![allow(clippy::expect_used, reason = "a test that cannot go on says so by a panic")]

use std::{
    fmt::Write as _,
    io::{BufRead, BufReader, Read, Write as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
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

/// How long a program may take to get to the point where it is killed.
const PATIENCE: Duration = Duration::from_secs(120);

/// Starts the program and kills it (SIGKILL) as soon as it writes a line with `marker`; panics if it never does.
/// Whether the kill came before the program's own end.
#[cfg(unix)]
pub(crate) fn kill_at(mut command: Command, marker: &str) -> bool {
    use std::os::unix::process::ExitStatusExt;

    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    let (sender, lines) = mpsc::channel();
    let pipes: [Box<dyn Read + Send>; 2] = [
        Box::new(child.stdout.take().expect("it is piped")),
        Box::new(child.stderr.take().expect("it is piped")),
    ];
    // The pipes are read to their end, so that the program is never held up by a full one.
    let readers = pipes.map(|pipe| {
        let sender = sender.clone();
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        })
    });
    drop(sender);
    let mut said = Vec::new();
    loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) if line.contains(marker) => break,
            Ok(line) => said.push(line),
            Err(_) => {
                let _ = child.kill();
                panic!("{command:?} never said {marker:?}:\n{}", said.join("\n"));
            }
        }
    }
    child.kill().expect("it can be killed");
    let status = child.wait().expect("it ends");
    for reader in readers {
        reader.join().expect("it reads to the end");
    }
    status.signal() == Some(9)
}

pub(crate) fn fixture() -> Vec<u8> {
    include_bytes!("../fixtures/tiny.xes").to_vec()
}

/// A log of ten thousand events with amounts that no float adds up to.
pub(crate) fn large_log() -> String {
    let mut xes = String::from("<log>\n");
    for case in 0..1_000_u32 {
        let _ = writeln!(xes, "<trace><string key=\"concept:name\" value=\"case {case}\"/>");
        for event in 0..=case % 20 {
            let _ = writeln!(
                xes,
                "<event><string key=\"concept:name\" value=\"activity {}\"/><string key=\"note\" value=\"{:200}\"/>\
                 <float key=\"amount\" value=\"{}.{:02}\"/></event>",
                (case + event) % 7,
                "",
                case * event,
                (case + 13 * event) % 100
            );
        }
        xes.push_str("</trace>\n");
    }
    xes.push_str("</log>\n");
    xes
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    compress(bytes, Compression::fast())
}

/// Gzip as a mere envelope, as large as what is in it.
pub(crate) fn gzip_stored(bytes: &[u8]) -> Vec<u8> {
    compress(bytes, Compression::none())
}

fn compress(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), level);
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
