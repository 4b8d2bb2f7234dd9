//! PostgreSQL.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use super::{
    Source,
    local::{User, Watch, directory, free_port},
    sources,
};

const URL: &str = "WOW_TEST_POSTGRES_URL";
const BIN: &str = "WOW_TEST_POSTGRES_BIN";

/// How long a server may take to start or stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A PostgreSQL server.
#[derive(Debug)]
pub struct PostgresServer {
    url: String,
    local: Option<Local>,
}

/// One that was started here.
#[derive(Debug)]
struct Local {
    bin: PathBuf,
    data: PathBuf,
    user: User,
    port: u16,
    _watch: Watch,
}

impl PostgresServer {
    /// The server that this process's tests share, started by the first that asks.
    ///
    /// # Panics
    /// If there is none to be had; it says how to get one.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::any());
        *shared = Arc::downgrade(&server);
        server
    }

    fn any() -> Self {
        for source in sources() {
            match source {
                Source::Url => {
                    if let Some(url) = env::var(URL).ok().filter(|url| !url.is_empty()) {
                        return Self { url, local: None };
                    }
                }
                Source::Local => {
                    if let Some(bin) = binaries() {
                        return Self::start_in(bin, &[]);
                    }
                }
            }
        }
        panic!(
            "no PostgreSQL to test with: set {URL} to one (a database that tests may create schemas in), or install \
             the server's binaries (Debian: postgresql-15) and set {BIN} to their directory if it is not a usual one"
        )
    }

    /// A server of its own, with settings (`name=value`), that a test may stop, kill and start again.
    ///
    /// # Panics
    /// If there are no binaries to start one from; it says how to get them.
    #[must_use]
    pub fn start(settings: &[&str]) -> Self {
        let bin = binaries().unwrap_or_else(|| {
            panic!(
                "this test starts and stops a PostgreSQL of its own: install the server's binaries (Debian: \
                 postgresql-15), and set {BIN} to their directory if it is not a usual one"
            )
        });
        Self::start_in(bin, settings)
    }

    fn start_in(bin: PathBuf, settings: &[&str]) -> Self {
        let user = User::unprivileged(&["postgres", "nobody"]);
        let root = directory("wow-pg-");
        user.own(&root);
        // The directory goes and the server ends with this process, whatever happens from here on.
        let watch = Watch::start(
            "if read -r pid < \"$1/data/postmaster.pid\"; then \
                 kill -INT \"$pid\"; \
                 for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 \"$pid\" || break; sleep 0.1; done; \
                 kill -KILL \"$pid\"; \
             fi; \
             rm -rf \"$1\"",
            &[&root.display().to_string()],
        );
        let data = root.join("data");
        let mut initdb = user.command(&bin.join("initdb"));
        initdb.arg("-D").arg(&data).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]);
        // Not "C": what depends on a locale would not be seen.
        run(initdb.args(["--locale=C.UTF-8", "--no-instructions"]), &root);
        let port = free_port();
        let mut configuration = format!(
            "port = {port}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\nmax_connections = 300\n\
             # What tests need is that a killed server loses nothing, which the operating system sees to.\nfsync = off\n",
            root.display()
        );
        for setting in settings {
            configuration.push_str(setting);
            configuration.push('\n');
        }
        let file = data.join("postgresql.auto.conf");
        let written = fs::read_to_string(&file).unwrap_or_default() + &configuration;
        fs::write(&file, written).expect("the server's configuration is written");
        let local = Local { bin, data, user, port, _watch: watch };
        local.start();
        Self { url: format!("postgres://postgres@127.0.0.1:{port}/postgres"), local: Some(local) }
    }

    /// The URL of a database on it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    fn local(&self) -> &Local {
        self.local.as_ref().expect("a server that was started by the test")
    }

    /// Its port on this machine.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.local().port
    }

    /// Ends it as a crash would: the server and all its sessions at once.
    pub fn kill(&self) {
        self.local().kill();
    }

    /// Ends it as an operator would who does not wait for sessions.
    pub fn stop(&self) {
        self.local().stop();
    }

    /// Starts it again on the same port.
    pub fn start_again(&self) {
        self.local().start();
    }
}

impl Local {
    fn log(&self) -> PathBuf {
        self.data.join("log")
    }

    fn start(&self) {
        let mut command = self.user.command(&self.bin.join("pg_ctl"));
        command.arg("-D").arg(&self.data).arg("-l").arg(self.log());
        command.args(["-w", "-t", "60", "start"]);
        run(&mut command, &self.data);
    }

    fn stop(&self) {
        let mut command = self.user.command(&self.bin.join("pg_ctl"));
        run(command.arg("-D").arg(&self.data).args(["-w", "-t", "60", "-m", "fast", "stop"]), &self.data);
    }

    fn pid(&self) -> Option<String> {
        let file = fs::read_to_string(self.data.join("postmaster.pid")).ok()?;
        file.lines().next().map(str::to_owned)
    }

    fn kill(&self) {
        let pid = self.pid().expect("a server that is running");
        // Children first, so that none goes on for a moment without its parent.
        let children = Command::new("pgrep").args(["-P", &pid]).output();
        let children = children.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let mut all: Vec<String> =
            children.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        all.insert(0, pid);
        let _ = Command::new("kill").arg("-KILL").args(&all).stderr(Stdio::null()).status();
        let deadline = Instant::now() + PATIENCE;
        for pid in &all {
            while alive(pid) {
                assert!(Instant::now() < deadline, "process {pid} does not end");
                thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn alive(pid: &str) -> bool {
    let signal = Command::new("kill").args(["-0", pid]).stderr(Stdio::null()).status();
    // One that ended and is not yet buried is not alive.
    let zombie = fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')));
    signal.is_ok_and(|status| status.success()) && !zombie
}

fn run(command: &mut Command, directory: &Path) {
    // Away from a directory that the server's user may not be able to enter.
    command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.stderr(Stdio::piped()).output().expect("a server's program runs");
    assert!(
        output.status.success(),
        "{:?} failed: {}",
        command.get_program(),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Where the server's programs are.
fn binaries() -> Option<PathBuf> {
    let complete = |path: &PathBuf| path.join("initdb").is_file() && path.join("pg_ctl").is_file();
    if let Some(path) = env::var_os(BIN) {
        let path = PathBuf::from(path);
        assert!(complete(&path), "{BIN}: there is no initdb and pg_ctl in {}", path.display());
        return Some(path);
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut places: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    // The newest first.
    places.sort();
    places.reverse();
    let path = env::var_os("PATH").unwrap_or_default();
    places.extend(env::split_paths(&path));
    places.extend(["/usr/local/pgsql/bin", "/opt/homebrew/bin", "/usr/local/bin"].map(PathBuf::from));
    places.into_iter().find(complete)
}
