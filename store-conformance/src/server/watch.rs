//! An end for what was started here, whatever becomes of the test.

use std::process::{Child, Command, Stdio};

/// Runs a script when this process ends, however it does.
///
/// The script's standard input is a pipe that only this process holds: it ends when the watch is dropped, and when the
/// process is gone.
#[derive(Debug)]
pub(super) struct Watch(Child);

impl Watch {
    /// `script` for `sh -c`, with `arguments` as `$1`, `$2`, …
    pub(super) fn start(script: &str, arguments: &[&str]) -> Self {
        let child = Command::new("sh")
            .arg("-c")
            // A terminal's interrupt is for the test, not for what cleans up behind it.
            .arg(format!("trap '' INT TERM HUP; read -r _; {script}"))
            .arg("sh")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.expect("sh runs"))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
