//! The disk is full: where the tables are, or where the write-ahead log is.
//!
//! The small disks are file systems in memory, under servers of this very machine. To mount one takes a right that not
//! everybody has who runs tests: set `WOW_TEST_NO_MOUNT=1` to leave these two out, and they say so; without it they fail
//! where they cannot mount.

use std::{
    env, fs,
    io::Write as _,
    os::unix::fs::{MetadataExt as _, chown},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::time::{Instant, sleep};
use wow_store_api::{AggregateId, Commit, Error, ErrorKind, EventStore, Outcome};
use wow_store_conformance::{server::PostgresServer, witness::Follower};

use crate::node::{GRACE, PATIENCE, Scene, blocking, data_directory, open, shop, start_local};

const LEFT_OUT: &str = "WOW_TEST_NO_MOUNT";
const POLL: Duration = Duration::from_secs(1);

/// A file system of this many MiB, with a file on it that can be removed to make room.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(place: &Path, mebibytes: usize, owner: (u32, u32)) -> Self {
        let options = format!("size={mebibytes}m,mode=700,uid={},gid={}", owner.0, owner.1);
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(place).output();
        let done = done.expect("mount runs");
        assert!(
            done.status.success(),
            "this test mounts a small file system: run it as root, or set {LEFT_OUT}=1 to leave it out: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        Self(place.to_owned())
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }

    /// Takes room away: so many MiB, or all that there is.
    fn fill(&self, mebibytes: usize) {
        let mut file = fs::File::create(self.ballast()).expect("a file");
        for _ in 0..mebibytes * 16 {
            if file.write_all(&[7; 64 * 1024]).is_err() {
                return;
            }
        }
    }

    fn make_room(&self) {
        fs::remove_file(self.ballast()).expect("there is a ballast");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Whether these tests were declared to be left out.
fn is_left_out() -> bool {
    let left_out = env::var(LEFT_OUT).is_ok_and(|value| value == "1");
    if left_out {
        // Past what the test harness keeps to itself.
        let _ = writeln!(std::io::stderr(), "LEFT OUT: {LEFT_OUT} says that nothing can be mounted here");
    }
    left_out
}

fn owner(path: &Path) -> (u32, u32) {
    let metadata = fs::metadata(path).expect("the directory is there");
    (metadata.uid(), metadata.gid())
}

fn commit(command: &str) -> Commit {
    // Incompressible, so that it takes the room that it seems to take.
    let text: String = (0..8_000).map(|_| fastrand::alphanumeric()).collect();
    let number = command.len() + command.bytes().map(usize::from).sum::<usize>();
    let id = AggregateId::new("shop", "order", (number % 50).to_string()).unwrap();
    Commit::new(id, command).event("Happened", 1, &text).unwrap()
}

/// Appends until something else than an acknowledgement comes.
async fn until_refused(scene: &Scene, store: &Arc<dyn EventStore>, tag: &str) -> (usize, Error) {
    for n in 0_usize.. {
        // Several at once, so that batches fail.
        let all = (0..4).map(|part| {
            let (witness, store) = (Arc::clone(&scene.witness), Arc::clone(store));
            let commit = commit(&format!("{tag}-{n}-{part}"));
            tokio::spawn(async move { witness.append(&store, commit).await })
        });
        for answer in all.collect::<Vec<_>>() {
            if let Err(error) = answer.await.unwrap() {
                return (n * 4, error);
            }
        }
    }
    unreachable!("a disk is full some time")
}

async fn goes_on(scene: &Scene, store: &Arc<dyn EventStore>, follower: &Follower, tag: &str) {
    for n in 0..20 {
        scene.witness.append(store, commit(&format!("{tag}-{n}"))).await.expect("there is room");
    }
    follower.reaches(&store.heads(&shop()).await.expect("heads"), POLL + GRACE).await;
    println!("{tag}: {}", scene.witness.check(store, &[follower]).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_is_told_and_survived() {
    if is_left_out() {
        return;
    }
    let server = start_local(&[]);
    let scene = Scene::on(Arc::clone(&server));
    let mut connection = scene.schema.connect().await;
    let data = data_directory(&server).await;
    let place = data.parent().unwrap().join("small");
    fs::create_dir(&place).unwrap();
    let disk = SmallDisk::mount(&place, 24, owner(&data));
    disk.fill(12);
    let sql = format!("CREATE TABLESPACE small LOCATION '{}'", place.display());
    connection.execute(AssertSqlSafe(sql)).await.expect("a tablespace");
    connection.execute("ALTER DATABASE postgres SET default_tablespace = 'small'").await.unwrap();

    let store = open(scene.config().with_poll_interval(POLL).with_transaction_timeout(PATIENCE)).await;
    let follower = Follower::start(Arc::clone(&store), shop()).await;
    let (acknowledged, error) = until_refused(&scene, &store, "fill").await;
    assert!(acknowledged > 20, "it takes something before it is full: {acknowledged}");
    assert!(matches!(error.kind(), ErrorKind::StorageFull), "it says why: {error:?}");
    assert_eq!(error.outcome(), Outcome::NotApplied, "what does not fit is not stored");

    // Small things may find room; large ones are refused at once, and reads go on.
    let before = Instant::now();
    let (_, error) = until_refused(&scene, &store, "more").await;
    assert!(matches!(error.kind(), ErrorKind::StorageFull), "it still says why: {error:?}");
    assert!(before.elapsed() < PATIENCE / 2, "it does not wait for room: {:?}", before.elapsed());
    follower.reaches(&store.heads(&shop()).await.expect("heads"), POLL + GRACE).await;
    println!("full: {}", scene.witness.check(&store, &[&follower]).await);

    disk.make_room();
    goes_on(&scene, &store, &follower, "room").await;
    store.close().await.expect("the store closes");
    drop(scene);
    server.kill();
}

/// The server cannot go on without its log: it goes down, and comes back when there is room.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_under_the_write_ahead_log_is_survived() {
    if is_left_out() {
        return;
    }
    let server = start_local(&["min_wal_size = 32MB", "max_wal_size = 32MB", "wal_recycle = off"]);
    let scene = Scene::on(Arc::clone(&server));
    let data = data_directory(&server).await;
    let place = data.parent().unwrap().join("log");
    fs::create_dir(&place).unwrap();
    let disk = SmallDisk::mount(&place, 96, owner(&data));
    blocking(&server, {
        let (data, place) = (data.clone(), place.clone());
        move |server| {
            server.stop();
            let moved = Command::new("cp").arg("--archive").arg(data.join("pg_wal")).arg(&place).status();
            assert!(moved.is_ok_and(|status| status.success()), "the log is moved");
            let (uid, gid) = owner(&data);
            chown(&place, Some(uid), Some(gid)).unwrap();
            fs::remove_dir_all(data.join("pg_wal")).unwrap();
            std::os::unix::fs::symlink(place.join("pg_wal"), data.join("pg_wal")).unwrap();
            server.start_again();
        }
    })
    .await;

    let config = || scene.config().with_poll_interval(POLL);
    let store = open(config().with_transaction_timeout(Duration::from_secs(1))).await;
    let follower = Follower::start(Arc::clone(&store), shop()).await;
    for n in 0..20 {
        scene.witness.append(&store, commit(&format!("before-{n}"))).await.expect("there is room");
    }
    disk.fill(1_000);
    let (acknowledged, error) = until_refused(&scene, &store, "fill").await;
    println!("{acknowledged} acknowledged, then {error:?}");
    assert!(error.is_transient(), "it may work later: {error:?}");

    disk.make_room();
    blocking(&server, come_back).await;
    let deadline = Instant::now() + PATIENCE;
    let mut n = 0;
    while scene.witness.append(&store, commit(&format!("again-{n}"))).await.is_err() {
        assert!(Instant::now() < deadline, "the store goes on once the server is back");
        n += 1;
        sleep(Duration::from_millis(20)).await;
    }
    goes_on(&scene, &store, &follower, "room").await;
    store.close().await.expect("the store closes");
    drop(scene);
    server.kill();
}

/// A server that has given up is started as an operator would.
fn come_back(server: &PostgresServer) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    let is_up = || runtime.block_on(PgConnection::connect(server.url())).is_ok();
    while !is_up() {
        if std::time::Instant::now() > deadline {
            server.start_again();
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
