//! PostgreSQL from its own binaries.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    local::{LocalServer, User, directory, free_port},
    watch::Watch,
};

pub(super) const BIN: &str = "WOW_TEST_POSTGRES_BIN";

/// How long a server may take to start or stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// Stops every server that has its data in a directory of `$1`, and removes it all.
const REMOVE: &str = "for file in \"$1\"/*/postmaster.pid; do \
                          read -r pid < \"$file\" || continue; \
                          kill -INT \"$pid\"; \
                          for _ in 1 2 3 4 5 6 7 8 9 10; do kill -0 \"$pid\" || break; sleep 0.1; done; \
                          kill -KILL \"$pid\"; \
                      done; \
                      rm -rf \"$1\"";

/// A server that was started here.
#[derive(Debug)]
pub(super) struct Local {
    bin: PathBuf,
    root: PathBuf,
    user: User,
    port: u16,
    preloaded: Option<PathBuf>,
    _watch: Watch,
}

impl Local {
    pub(super) fn start(bin: PathBuf, settings: &[&str], how: LocalServer<'_>) -> Self {
        let user = User::unprivileged(&["postgres", "nobody"]);
        let root = directory(how.directory, "wow-pg-");
        user.own(&root);
        // The directory goes and the server ends with this process, whatever happens from here on.
        let watch = Watch::start(REMOVE, &[&root.display().to_string()]);
        let preloaded = how.preloaded.map(Path::to_path_buf);
        let local = Self { bin, root, user, port: free_port(), preloaded, _watch: watch };
        let mut initdb = local.user.command(&local.bin.join("initdb"));
        initdb.arg("-D").arg(local.data()).args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"]);
        // Not "C": what depends on a locale would not be seen.
        run(initdb.args(["--locale=C.UTF-8", "--no-instructions"]), &local.root);
        let mut configuration = format!(
            "port = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n",
            local.port,
            local.root.display()
        );
        for setting in settings {
            configuration.push_str(setting);
            configuration.push('\n');
        }
        let file = local.data().join("postgresql.auto.conf");
        let written = fs::read_to_string(&file).unwrap_or_default() + &configuration;
        fs::write(&file, written).expect("the server's configuration is written");
        local.start_again();
        local
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    pub(super) fn spare_directory(&self) -> String {
        self.root.join("spare").display().to_string()
    }

    pub(super) fn start_again(&self) {
        let mut command = self.user.command(&self.bin.join("pg_ctl"));
        command.arg("-D").arg(self.data()).arg("-l").arg(self.data().join("log"));
        command.args(["-w", "-t", "60", "start"]);
        if let Some(library) = &self.preloaded {
            command.env("LD_PRELOAD", library);
        }
        run(&mut command, &self.root);
    }

    pub(super) fn stop(&self) {
        let mut command = self.user.command(&self.bin.join("pg_ctl"));
        run(command.arg("-D").arg(self.data()).args(["-w", "-t", "60", "-m", "fast", "stop"]), &self.root);
    }

    fn pid(&self) -> Option<String> {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        file.lines().next().map(str::to_owned)
    }

    pub(super) fn kill(&self) {
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
pub(super) fn binaries() -> Option<PathBuf> {
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
