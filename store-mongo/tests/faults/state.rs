//! How servers are, told by themselves: for whoever asks why nothing moves.

use std::{fmt::Write as _, time::Duration};

use futures_util::TryStreamExt as _;
use mongodb::{
    Client,
    bson::{Bson, Document, doc},
    error::Result,
    options::ClientOptions,
};
use tokio::time::timeout;
use wow_store_conformance::server::MongoServer;

/// How long one member may take to tell.
const ANSWER: Duration = Duration::from_secs(5);

/// What each member thinks of the others, and which transactions and operations are open there.
pub(crate) async fn of(server: &MongoServer) -> String {
    let mut text = String::new();
    for (number, port) in server.ports().into_iter().enumerate() {
        let told = timeout(ANSWER, member(port)).await;
        let told = match told {
            Ok(Ok(told)) => told,
            Ok(Err(error)) => format!("  cannot be asked: {error}\n"),
            Err(_) => "  does not answer\n".to_owned(),
        };
        let _ = write!(text, "member {number} on port {port}:\n{told}");
    }
    text
}

async fn member(port: u16) -> Result<String> {
    let mut options =
        ClientOptions::parse(format!("mongodb://127.0.0.1:{port}/?directConnection=true")).await?;
    options.server_selection_timeout = Some(ANSWER / 2);
    let admin = Client::with_options(options)?.database("admin");
    let mut text = String::new();
    let status = admin.run_command(doc! { "replSetGetStatus": 1 }).await?;
    for member in status.get_array("members").into_iter().flatten().filter_map(Bson::as_document) {
        let fields = ["name", "stateStr", "optime", "syncSourceHost", "lastHeartbeatMessage"];
        let _ = writeln!(text, "  {}", shown(member, &fields));
    }
    let transactions = admin.run_command(doc! { "serverStatus": 1 }).await?;
    if let Ok(transactions) = transactions.get_document("transactions") {
        let fields = ["currentOpen", "currentActive", "currentInactive", "totalAborted", "totalCommitted"];
        let _ = writeln!(text, "  transactions: {}", shown(transactions, &fields));
    }
    let pipeline = [
        doc! { "$currentOp": { "allUsers": true, "idleSessions": true } },
        doc! { "$match": { "$or": [
            { "transaction": { "$exists": true } },
            { "active": true, "ns": { "$regex": "^wow-test" } },
        ] } },
    ];
    let operations: Vec<Document> = admin.aggregate(pipeline).await?.try_collect().await?;
    for operation in operations {
        let fields = ["type", "active", "client", "lsid", "transaction", "secs_running", "waitingForLock"];
        let _ = writeln!(text, "  {}", shown(&operation, &fields));
        if let Some((name, of)) = operation.get_document("command").ok().and_then(|it| it.iter().next()) {
            let _ = writeln!(text, "    {name} {of}");
        }
    }
    Ok(text)
}

/// Some of a document's fields.
fn shown(document: &Document, fields: &[&str]) -> String {
    let there = fields.iter().filter_map(|field| Some(format!("{field}: {}", document.get(field)?)));
    there.collect::<Vec<_>>().join(", ")
}
