//! Fail points: a real server that answers, on purpose, as servers do in trouble.

use mongodb::{
    Client,
    bson::{Document, doc},
};
use tokio::sync::{Mutex, MutexGuard};

use crate::support::Database;

/// A server has one such fail point: tests that set it take turns.
static TURN: Mutex<()> = Mutex::const_new(());

/// The name of the stores whose commands fail.
pub(crate) const UNDER_TEST: &str = "under-test";

pub(crate) struct FailPoint {
    admin: mongodb::Database,
    _turn: MutexGuard<'static, ()>,
}

impl FailPoint {
    pub(crate) async fn new(database: &Database) -> Self {
        let turn = TURN.lock().await;
        let client = Client::with_uri_str(database.url()).await.unwrap();
        Self { admin: client.database("admin"), _turn: turn }
    }

    /// Only commands of the store fail, which has an application name of its own.
    pub(crate) async fn set(&self, commands: &[&str], times: i32, how: Document) {
        let mut data = doc! { "failCommands": commands, "appName": UNDER_TEST };
        data.extend(how);
        let point = doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
        self.admin.run_command(point).await.unwrap();
    }

    pub(crate) async fn off(&self) {
        self.admin.run_command(doc! { "configureFailPoint": "failCommand", "mode": "off" }).await.unwrap();
    }
}

/// Turns a fail point of one member on or off.
pub(crate) async fn switch(port: u16, name: &str, on: bool) {
    let url = format!("mongodb://127.0.0.1:{port}/?directConnection=true");
    let client = Client::with_uri_str(url).await.unwrap();
    let mode = if on { "alwaysOn" } else { "off" };
    client.database("admin").run_command(doc! { "configureFailPoint": name, "mode": mode }).await.unwrap();
}
