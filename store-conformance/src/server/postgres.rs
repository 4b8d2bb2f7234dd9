//! PostgreSQL.

use std::sync::{Arc, Mutex, PoisonError};

use super::{
    LocalServer, Source, choice,
    container::{self, Image, Running, engine_answers, wait_for_postgres},
    local::free_port,
    postgres_local::{BIN, Local, binaries},
    setting,
};

const URL: &str = "WOW_TEST_POSTGRES_URL";
const IMAGE: &str = "WOW_TEST_POSTGRES_IMAGE";
const OFFICIAL_IMAGE: &str = "postgres:17";

/// What every server here is started with.
const SETTINGS: [&str; 1] = ["max_connections = 300"];
/// What the shared one is started with besides: nobody crashes the machine under it.
const QUICK: [&str; 1] = ["fsync = off"];

/// The port in the container, and one more for what a test starts in it.
const PORT: u16 = 5432;
const SPARE_PORT: u16 = 5433;

/// A PostgreSQL server.
#[derive(Debug)]
pub struct PostgresServer {
    url: String,
    spare: Option<Spare>,
    process: Process,
}

/// Room beside a server for another one that a test starts there, such as a standby: run by the server's user, and
/// ended and removed with the server.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Spare {
    /// A directory of the server's user that does not exist yet, on the server's machine.
    pub directory: String,
    /// The port to listen to, on every address of the server's machine.
    pub port: u16,
    /// The same as this machine reaches it.
    pub url: String,
}

#[derive(Debug)]
enum Process {
    /// Somebody else's.
    None,
    Local(Local),
    Container {
        running: Box<Running>,
        port: u16,
    },
}

impl PostgresServer {
    /// The server that this process's tests share, started by the first that asks. It ends with the process.
    ///
    /// # Panics
    /// If there is none to be had; it says how to get one.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Option<Arc<PostgresServer>>> = Mutex::new(None);
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(shared.get_or_insert_with(|| Arc::new(Self::any())))
    }

    fn any() -> Self {
        if matches!(choice(), None | Some(Source::Url))
            && let Some(url) = setting(URL)
        {
            return Self { url, spare: None, process: Process::None };
        }
        assert_ne!(choice(), Some(Source::Url), "{URL} is not set, and WOW_TEST_SERVERS asks for it");
        Self::own(&QUICK)
    }

    /// A server of its own, with settings (`name = value`), that a test may change, stop, kill and start again. What
    /// it acknowledges is on disk.
    ///
    /// # Panics
    /// If there is nothing to start one from; it says how to get it.
    #[must_use]
    pub fn start(settings: &[&str]) -> Self {
        Self::own(settings)
    }

    /// The same from the server's own binaries, whatever else is to be had: for a test that does something to its
    /// files, or for one that chooses its disk.
    ///
    /// # Panics
    /// If the binaries are not there; it says how to get them.
    #[must_use]
    pub fn start_local(settings: &[&str], how: LocalServer<'_>) -> Self {
        let settings: Vec<&str> = SETTINGS.iter().chain(settings).copied().collect();
        let bin = binaries().unwrap_or_else(|| {
            panic!(
                "this test needs a PostgreSQL on this very machine: install the server's binaries (Debian: \
                 postgresql-15) and set {BIN} to their directory if it is not a usual one"
            )
        });
        Self::local(bin, &settings, how)
    }

    fn own(settings: &[&str]) -> Self {
        let settings: Vec<&str> = SETTINGS.iter().chain(settings).copied().collect();
        // A test that needs more than a URL can give: anything that can be started.
        let choice = choice().filter(|choice| *choice != Source::Url);
        if choice == Some(Source::Container) || (choice.is_none() && engine_answers()) {
            match Self::in_container(&settings) {
                Ok(server) => return server,
                Err(reason) if choice.is_none() && binaries().is_some() => {
                    eprintln!("no PostgreSQL in a container ({reason}): taking the local binaries");
                }
                Err(reason) => panic!(
                    "no PostgreSQL in a container: {reason}; {IMAGE} names another image than {OFFICIAL_IMAGE}"
                ),
            }
        }
        match binaries() {
            Some(bin) => Self::local(bin, &settings, LocalServer::default()),
            None => panic!(
                "no PostgreSQL to test with: start a Docker Engine, or install the server's binaries (Debian: \
                 postgresql-15) and set {BIN} to their directory if it is not a usual one; for the tests that need no \
                 server of their own, {URL} may also name a database that they may create schemas and roles in"
            ),
        }
    }

    fn local(bin: std::path::PathBuf, settings: &[&str], how: LocalServer<'_>) -> Self {
        let local = Local::start(bin, settings, how);
        let at = |port| format!("postgres://postgres:postgres@127.0.0.1:{port}/postgres");
        let port = free_port();
        let spare = Spare { directory: local.spare_directory(), port, url: at(port) };
        Self { url: at(local.port()), spare: Some(spare), process: Process::Local(local) }
    }

    fn in_container(settings: &[&str]) -> Result<Self, String> {
        let (port, spare) = (free_port(), free_port());
        let mut command: Vec<String> = Vec::new();
        for setting in settings {
            command.push("-c".to_owned());
            command.push(setting.replace([' ', '\''], ""));
        }
        let running = Running::start(Image {
            name: setting(IMAGE).unwrap_or_else(|| OFFICIAL_IMAGE.to_owned()),
            command,
            variables: vec![("POSTGRES_PASSWORD".to_owned(), "postgres".to_owned())],
            ports: vec![(PORT, port), (SPARE_PORT, spare)],
        })?;
        wait_for_postgres(port, &running)?;
        let at = |port| format!("postgres://postgres:postgres@127.0.0.1:{port}/postgres");
        let spare = Spare { directory: "/tmp/spare".to_owned(), port: SPARE_PORT, url: at(spare) };
        Ok(Self {
            url: at(port),
            spare: Some(spare),
            process: Process::Container { running: Box::new(running), port },
        })
    }

    /// The URL of a database on it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its port on this machine.
    ///
    /// # Panics
    /// For a server that was not started here.
    #[must_use]
    pub fn port(&self) -> u16 {
        match &self.process {
            Process::Local(local) => local.port(),
            Process::Container { port, .. } => *port,
            Process::None => panic!("{NOT_OURS}"),
        }
    }

    /// Room for another server beside it.
    ///
    /// # Panics
    /// For a server that was not started here.
    #[must_use]
    pub fn spare(&self) -> &Spare {
        self.spare.as_ref().expect(NOT_OURS)
    }

    /// Ends it as a crash would: the server and all its sessions at once.
    ///
    /// # Panics
    /// For a server that was not started here.
    pub fn kill(&self) {
        match &self.process {
            Process::Local(local) => local.kill(),
            Process::Container { running, .. } => running.stop(true),
            Process::None => panic!("{NOT_OURS}"),
        }
    }

    /// Ends it as an operator would who does not wait for sessions.
    ///
    /// # Panics
    /// For a server that was not started here.
    pub fn stop(&self) {
        match &self.process {
            Process::Local(local) => local.stop(),
            Process::Container { running, .. } => running.stop(false),
            Process::None => panic!("{NOT_OURS}"),
        }
    }

    /// Starts it again on the same port.
    ///
    /// # Panics
    /// For a server that was not started here, or does not come up.
    pub fn start_again(&self) {
        match &self.process {
            Process::Local(local) => local.start_again(),
            Process::Container { running, port } => {
                running.start_again();
                let up = container::wait_for_postgres(*port, running);
                up.expect("a server that was stopped comes up again");
            }
            Process::None => panic!("{NOT_OURS}"),
        }
    }
}

const NOT_OURS: &str = "a server that was started by the test";
