//! A server of the benchmark's own, with durable settings.

use std::{
    env, fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, bail};

use crate::slow::{compile, run};

/// Where the server's programs are, if not in a usual place.
const BIN: &str = "WOW_TEST_POSTGRES_BIN";

/// What is acknowledged is on disk. Memory and log are so large that neither is what is measured.
const SETTINGS: &str = "
fsync = on
synchronous_commit = on
full_page_writes = on
wal_sync_method = fdatasync
shared_buffers = 1GB
max_wal_size = 8GB
checkpoint_timeout = 30min
max_connections = 300
";

/// A running server. It ends, and its directory goes, when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    bin: PathBuf,
    root: PathBuf,
    user: Option<&'static str>,
    shim: Option<PathBuf>,
    url: String,
}

impl Server {
    /// Starts one in a directory. With `slow`, its disk takes longer for each sync.
    pub(crate) fn start(scratch: &Path, slow: bool) -> Result<Self> {
        let bin = binaries()?;
        let name = if slow { "slow" } else { "server" };
        let root = scratch.join(name);
        fs::create_dir(&root)?;
        let user = unprivileged_user();
        if let Some(user) = user {
            // Whoever runs the server has to get there.
            run(Command::new("chmod").arg("o+x").arg(scratch))?;
            run(Command::new("chown").arg(user).arg(&root))?;
        }
        let shim = if slow { Some(compile(&root)?) } else { None };
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=disable");
        let server = Self { bin, root, user, shim, url };
        let mut initdb = server.command("initdb");
        initdb.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-instructions"]);
        run(initdb.arg("-D").arg(server.data()))?;
        let settings = format!(
            "{SETTINGS}port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n",
            server.root.display()
        );
        let file = server.data().join("postgresql.auto.conf");
        fs::write(&file, fs::read_to_string(&file).unwrap_or_default() + &settings)?;
        let mut start = server.command("pg_ctl");
        start.arg("-D").arg(server.data()).arg("-l").arg(server.root.join("log"));
        run(start.args(["-w", "-t", "60", "start"]))?;
        Ok(server)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    fn command(&self, program: &str) -> Command {
        let program = self.bin.join(program);
        let mut command = match self.user {
            Some(user) => {
                let mut command = Command::new("runuser");
                command.args(["-u", user, "--"]).arg(program);
                command
            }
            None => Command::new(program),
        };
        if let Some(shim) = &self.shim {
            command.env("LD_PRELOAD", shim);
        }
        command.current_dir(&self.root);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let mut stop = self.command("pg_ctl");
        let _ = run(stop.arg("-D").arg(self.data()).args(["-w", "-t", "60", "-m", "immediate", "stop"]));
    }
}

/// Servers refuse to be run by root.
fn unprivileged_user() -> Option<&'static str> {
    let id = Command::new("id").arg("-u").output().ok()?;
    (id.stdout.trim_ascii() == b"0").then_some("postgres")
}

fn binaries() -> Result<PathBuf> {
    if let Some(path) = env::var_os(BIN) {
        return Ok(PathBuf::from(path));
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut places: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    places.sort();
    places.reverse();
    places.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    match places.into_iter().find(|path| path.join("initdb").is_file() && path.join("pg_ctl").is_file()) {
        Some(path) => Ok(path),
        None => bail!(
            "install the PostgreSQL server's binaries (Debian: postgresql-15), or set {BIN} to their directory"
        ),
    }
}
