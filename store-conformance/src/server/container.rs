//! A server in a container.

use std::{
    env,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use testcontainers::{
    Container, ContainerRequest, GenericImage, ImageExt as _,
    core::{ContainerPort, ports::IntoContainerPort as _},
    runners::SyncRunner as _,
};

use super::watch::Watch;

/// What is started.
#[derive(Debug, Clone)]
pub(super) struct Image {
    pub(super) name: String,
    pub(super) command: Vec<String>,
    pub(super) variables: Vec<(String, String)>,
    /// Ports in the container, each with the port of this machine that leads to it.
    pub(super) ports: Vec<(u16, u16)>,
}

/// One that runs, or is stopped for a while.
#[derive(Debug)]
pub(super) struct Running {
    container: Option<Container<GenericImage>>,
    _watch: Watch,
}

/// The driver of the engine runs a runtime of its own, which cannot be waited for on a thread of another.
fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

impl Running {
    /// Starts a container.
    ///
    /// # Errors
    /// What the engine says.
    pub(super) fn start(image: Image) -> Result<Self, String> {
        let (name, tag) = match image.name.rsplit_once(':') {
            // A colon before a slash is that of a registry's port.
            Some((name, tag)) if !tag.contains('/') => (name.to_owned(), tag.to_owned()),
            _ => (image.name.clone(), "latest".to_owned()),
        };
        let mut request = ContainerRequest::from(GenericImage::new(name, tag)).with_cmd(image.command);
        for (key, value) in image.variables {
            request = request.with_env_var(key, value);
        }
        for (inside, outside) in image.ports {
            let inside: ContainerPort = inside.tcp();
            request = request.with_mapped_port(outside, inside);
        }
        let request = request.with_startup_timeout(Duration::from_secs(600));
        let started = aside(|| request.start()).map_err(|error| error.to_string())?;
        let watch =
            Watch::start(REMOVE, &[started.id(), &socket().unwrap_or_default().display().to_string()]);
        Ok(Self { container: Some(started), _watch: watch })
    }

    fn container(&self) -> &Container<GenericImage> {
        self.container.as_ref().expect("it is there until it is dropped")
    }

    /// Ends it: at once, or as its image wants to be ended.
    pub(super) fn stop(&self, at_once: bool) {
        let patience = if at_once { 0 } else { 60 };
        aside(|| self.container().stop_with_timeout(Some(patience))).expect("the engine stops the container");
    }

    /// Starts it again, with what it had written.
    pub(super) fn start_again(&self) {
        aside(|| self.container().start()).expect("the engine starts the container again");
    }

    /// What it has said.
    pub(super) fn output(&self) -> String {
        let said = aside(|| self.container().stderr_to_vec());
        String::from_utf8_lossy(&said.unwrap_or_default()).into_owned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let container = self.container.take();
        aside(|| drop(container));
    }
}

/// Removes a container, by whatever talks to the engine.
const REMOVE: &str = "docker rm --force --volumes \"$1\" || \
                      { test -n \"$2\" && curl --silent --request DELETE --unix-socket \"$2\" \
                        \"http://localhost/containers/$1?force=true&v=true\"; }";

/// The engine's socket, if it is one of this machine.
fn socket() -> Option<PathBuf> {
    match env::var("DOCKER_HOST") {
        Ok(host) if !host.is_empty() => host.strip_prefix("unix://").map(PathBuf::from),
        _ => Some(PathBuf::from("/var/run/docker.sock")),
    }
}

/// Whether a Docker Engine answers.
pub(super) fn engine_answers() -> bool {
    const ASK: &[u8] = b"GET /_ping HTTP/1.0\r\n\r\n";
    let patience = Some(Duration::from_secs(5));
    let ok = |mut answer: &[u8]| {
        let mut start = [0; 12];
        answer.read_exact(&mut start).is_ok() && start.ends_with(b" 200")
    };
    #[cfg(unix)]
    if let Some(path) = socket() {
        let Ok(mut stream) = std::os::unix::net::UnixStream::connect(path) else { return false };
        let mut answer = Vec::new();
        let _ = stream.set_read_timeout(patience);
        return stream.write_all(ASK).is_ok() && stream.read_to_end(&mut answer).is_ok() && ok(&answer);
    }
    // One of another machine, or with certificates: the driver finds out.
    env::var("DOCKER_HOST").is_ok_and(|host| !host.is_empty())
}

/// Waits until PostgreSQL takes connections at a port of this machine.
pub(super) fn wait_for_postgres(port: u16, running: &Running) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !takes_connections(port) {
        if Instant::now() > deadline {
            return Err(format!("the server in the container does not come up: {}", running.output()));
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Whether the server asks who we are, instead of saying that it is starting, or nothing.
fn takes_connections(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let hello = b"\0\x03\0\0user\0postgres\0database\0postgres\0\0";
    let length = u32::try_from(hello.len() + 4).expect("a short greeting").to_be_bytes();
    let mut answer = [0];
    stream.write_all(&[&length, &hello[..]].concat()).is_ok()
        && stream.read_exact(&mut answer).is_ok()
        && answer == *b"R"
}
