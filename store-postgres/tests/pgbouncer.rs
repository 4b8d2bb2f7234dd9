//! The suite once more, through PgBouncer in transaction mode.
//!
//! `WOW_TEST_PGBOUNCER` says where its program is, if not in a usual place; `required` says that it has to be there.
//! Where there is none and it is not required, the only test reports itself as ignored.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a panic is how a test says no")]

mod support;

use std::{
    env, fs,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use libtest_mimic::{Arguments, Trial};
use sqlx::{ConnectOptions as _, postgres::PgConnectOptions};
use support::Schema;
use tempfile::TempDir;
use wow_store_api::{EventStore, ManualClock, PartitionId, Position, Result, Timestamp};
use wow_store_conformance::{Backend, Place, Settings, async_trait, run, server::PostgresServer};
use wow_store_postgres::{Pooler, PostgresConfig, PostgresStore, PushState};

const SETTING: &str = "WOW_TEST_PGBOUNCER";

/// Runs a program until the pipe that it reads from is closed, which only this process holds: whatever becomes of it.
const WATCHED: &str = "\"$@\" </dev/null & program=$!; trap '' INT TERM HUP; read -r _; kill $program; wait";

/// A pooler in front of the server, ended with this process.
struct PgBouncer {
    process: Child,
    url: String,
    _directory: TempDir,
}

impl PgBouncer {
    fn start(program: &Path, server: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let options: PgConnectOptions = server.parse().unwrap();
        let url = options.to_url_lossy();
        let (user, password) = (url.username(), url.password().unwrap_or_default());
        let database = options.get_database().unwrap_or(user);
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let users = directory.path().join("users.txt");
        fs::write(&users, format!("\"{user}\" \"{password}\"\n")).unwrap();
        let configuration = directory.path().join("pgbouncer.ini");
        // So few connections that callers meet each other's sessions all the time.
        let text = format!(
            "[databases]\n\
             {database} = host={} port={} dbname={database} user={user} password='{password}'\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             auth_type = trust\nauth_file = {}\n\
             pool_mode = transaction\ndefault_pool_size = 20\nmax_client_conn = 2000\nmax_prepared_statements = 0\n",
            options.get_host(),
            options.get_port(),
            users.display()
        );
        fs::write(&configuration, supported(program, &text)).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", WATCHED, "sh"]);
        if is_root() {
            // It refuses to run as root.
            let owned = Command::new("chown").args(["-R", "nobody"]).arg(directory.path()).status().unwrap();
            assert!(owned.success(), "the pooler's user gets its directory");
            command.args(["runuser", "-u", "nobody", "--"]);
        }
        command.arg(program).arg(&configuration).stdin(Stdio::piped());
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "the pooler does not come up");
            thread::sleep(Duration::from_millis(20));
        }
        Self {
            process,
            url: format!("postgres://{user}:{password}@127.0.0.1:{port}/{database}"),
            _directory: directory,
        }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Without what an older version does not know.
fn supported(program: &Path, configuration: &str) -> String {
    let version = Command::new(program).arg("--version").output().unwrap();
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let minor =
        version.split_whitespace().nth(1).and_then(|version| version.split('.').nth(1)?.parse::<u32>().ok());
    let old = minor.is_some_and(|minor| minor < 21);
    configuration
        .lines()
        .filter(|line| !(old && line.starts_with("max_prepared")))
        .map(|line| format!("{line}\n"))
        .collect()
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn program() -> Option<PathBuf> {
    if let Some(path) = env::var_os(SETTING).filter(|path| !path.is_empty() && path != "required") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "{SETTING}: there is no program {}", path.display());
        return Some(path);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let places = env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    places.map(|place| place.join("pgbouncer")).find(|program| program.is_file())
}

struct Pooled(String);

#[derive(Debug)]
struct PooledPlace {
    schema: Schema,
    settings: Settings,
    clock: ManualClock,
    url: String,
}

#[async_trait]
impl Backend for Pooled {
    async fn place(&self, settings: Settings) -> Arc<dyn Place> {
        let clock = ManualClock::new(Timestamp::from_millis(1_800_000_000_000).unwrap());
        Arc::new(PooledPlace { schema: Schema::fresh(), settings, clock, url: self.0.clone() })
    }
}

#[async_trait]
impl Place for PooledPlace {
    async fn open(&self) -> Result<Arc<dyn EventStore>> {
        let config = PostgresConfig::new(&self.url)?.with_schema(self.schema.name()).with_max_connections(8);
        let config = config.with_partitions(self.settings.partitions).with_clock(self.clock.clone());
        // Nobody has told it that there is a pooler.
        let store = PostgresStore::open(config.with_pooler(Pooler::Detect)).await?;
        assert_eq!(store.push_state(), PushState::Impossible, "the pooler is noticed");
        Ok(Arc::new(store))
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn lose_log_after(&self, partition: &PartitionId, after_position: Position) -> bool {
        self.schema.lose_log_after(partition, after_position).await;
        true
    }
}

fn main() -> ExitCode {
    let Some(program) = program() else {
        let required = env::var(SETTING).is_ok_and(|setting| setting == "required");
        let how = format!(
            "no pgbouncer on this machine: install it (Debian: pgbouncer), or set {SETTING} to its program"
        );
        eprintln!("{how}");
        let trial = Trial::test("the_suite_through_pgbouncer", move || Err(how.into()));
        return libtest_mimic::run(&Arguments::from_args(), vec![trial.with_ignored_flag(!required)])
            .exit_code();
    };
    let server = PostgresServer::shared();
    let pooler = PgBouncer::start(&program, server.url());
    let code = run(Pooled(pooler.url.clone()));
    drop(pooler);
    code
}
