//! Encrypted connections.

use std::{fs, path::PathBuf, sync::Arc};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use wow_store_api::{ErrorKind, prelude::*};
use wow_store_conformance::server::PostgresServer;
use wow_store_postgres::{PostgresConfig, PostgresStore};

use crate::support::{Schema, commit, eventually, order, url_with};

/// An authority, and what it has signed for a server of this name.
struct Authority {
    certificate: String,
    server_certificate: String,
    server_key: String,
}

impl Authority {
    fn new(server: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate =
            CertificateParams::new([server.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
        Self {
            certificate: issuer.pem(),
            server_certificate: certificate.pem(),
            server_key: key.serialize_pem(),
        }
    }

    fn file(&self, directory: &TempDir, name: &str) -> PathBuf {
        let path = directory.path().join(name);
        fs::write(&path, &self.certificate).unwrap();
        path
    }
}

/// Writes a file into the server's data directory, as the server's user.
async fn put(schema: &Schema, file: &str, text: &str) {
    let lines: Vec<String> = text.lines().map(|line| format!("'{line}'")).collect();
    schema
        .execute(&format!(
            "COPY (SELECT unnest(ARRAY[{}])) TO PROGRAM 'umask 077; cat > {file}'",
            lines.join(",")
        ))
        .await;
}

#[tokio::test]
async fn the_server_is_who_the_certificate_says_or_refused() {
    let schema = Schema::on(Arc::new(PostgresServer::start(&["fsync = off"])));
    let (authority, stranger) = (Authority::new("localhost"), Authority::new("localhost"));
    put(&schema, "server.crt", &authority.server_certificate).await;
    put(&schema, "server.key", &authority.server_key).await;
    let refused =
        PostgresStore::open(PostgresConfig::new(&url_with(schema.url(), "sslmode=require")).unwrap()).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Misconfigured { .. }), "a server without: {refused:?}");

    schema.execute("ALTER SYSTEM SET ssl = on").await;
    schema.execute("SELECT pg_reload_conf()").await;
    eventually("the server offers encryption", || async { schema.value::<String>("SHOW ssl").await == "on" })
        .await;
    let directory = tempfile::tempdir().unwrap();
    let (known, unknown) =
        (authority.file(&directory, "known.pem"), stranger.file(&directory, "unknown.pem"));
    let by_name = schema.url().replace("127.0.0.1", "localhost");
    let with = |url: &str, mode: &str, root: &PathBuf| {
        url_with(&url_with(url, &format!("sslmode={mode}")), &format!("sslrootcert={}", root.display()))
    };
    for url in [
        url_with(schema.url(), "sslmode=require"),
        with(schema.url(), "verify-ca", &known),
        with(&by_name, "verify-full", &known),
    ] {
        let name = format!("tls {}", crate::support::next());
        let config = PostgresConfig::new(&url_with(&url, &format!("application_name={name}"))).unwrap();
        let store = PostgresStore::open(config.with_schema(schema.name())).await.unwrap();
        store.append(commit(&order("1"), name.clone())).await.unwrap();
        let encrypted = format!(
            "SELECT bool_and(s.ssl) FROM pg_stat_ssl AS s JOIN pg_stat_activity AS a USING (pid) \
             WHERE a.application_name = '{name}'"
        );
        assert!(schema.value::<bool>(&encrypted).await, "every connection is encrypted: {url}");
        store.close().await.unwrap();
    }
    for (claim, url) in [
        ("an authority that nobody knows", with(schema.url(), "verify-ca", &unknown)),
        ("a certificate for another name", with(schema.url(), "verify-full", &known)),
    ] {
        let refused = PostgresStore::open(PostgresConfig::new(&url).unwrap()).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Misconfigured { .. }), "{claim}: {refused:?}");
    }
}
