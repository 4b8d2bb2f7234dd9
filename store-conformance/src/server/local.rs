//! What every server that is started from binaries needs: a directory, a port, a user that it accepts.

use std::{
    env, fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// A port that was free a moment ago.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("the port that was bound").port()
}

/// Where a server is started from binaries, and how.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalServer<'a> {
    /// Its data goes into a new directory in this one, of the system's for temporary files unless given.
    pub directory: Option<&'a Path>,
    /// A library that is loaded before all others: one that makes its disk slow, say.
    pub preloaded: Option<&'a Path>,
}

/// A new directory with a short name: sockets live in it.
pub(super) fn directory(parent: Option<&Path>, prefix: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::SeqCst);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.subsec_nanos());
    let parent = parent.map_or_else(env::temp_dir, Path::to_path_buf);
    let path = parent.join(format!("{prefix}{}-{next}-{time:x}", std::process::id()));
    fs::create_dir(&path).expect("a new temporary directory");
    path
}

/// Who runs the server: somebody else if we are root, which servers refuse to be.
#[derive(Debug, Clone)]
pub(super) struct User(Option<&'static str>);

impl User {
    /// The first of these users that exists, if we are root.
    pub(super) fn unprivileged(candidates: &[&'static str]) -> Self {
        let id = |arguments: &[&str]| {
            Command::new("id")
                .args(arguments)
                .stderr(Stdio::null())
                .output()
                .ok()
                .filter(|it| it.status.success())
        };
        let is_root = id(&["-u"]).is_some_and(|output| output.stdout.trim_ascii() == b"0");
        if !is_root {
            return Self(None);
        }
        Self(candidates.iter().copied().find(|user| id(&["-u", user]).is_some()))
    }

    /// A command that runs as this user.
    pub(super) fn command(&self, program: &Path) -> Command {
        match self.0 {
            Some(user) => {
                let mut command = Command::new("runuser");
                command.args(["-u", user, "--"]).arg(program);
                command
            }
            None => Command::new(program),
        }
    }

    /// Makes a directory this user's.
    pub(super) fn own(&self, path: &Path) {
        if let Some(user) = self.0 {
            let done = Command::new("chown").arg(user).arg(path).status();
            assert!(done.is_ok_and(|status| status.success()), "chown {user} {}", path.display());
        }
    }
}
