//! The log (L1 to L11).

use wow_store_api::{ErrorKind, ExpectedVersion, Outcome, StoreExt as _};

use crate::{
    case::topic,
    env::{Env, append_many, commit, order},
};

topic! { "log":
    append_rejects_every_other_expected_version [L2],
}

async fn append_rejects_every_other_expected_version(env: Env) {
    let (store, id) = (env.store(), order("1"));
    append_many(store, &id, "c", 3).await;
    for expected in [0, 1, 2, 4, 5, 100, u64::MAX] {
        let stale = commit(&id, format!("stale-{expected}")).expect(ExpectedVersion::Exact(expected));
        let error = store.append(stale).await.expect_err("only the head's version is right");
        let ErrorKind::VersionConflict { actual, .. } = error.kind() else { panic!("{error:?}") };
        assert_eq!((*actual, error.outcome()), (3, Outcome::NotApplied), "it says what the version is");
    }
    // The stream is as it was, and the right expectation works.
    let receipt =
        store.append(commit(&id, "next").expect(ExpectedVersion::Exact(3))).await.expect("3 is right");
    assert_eq!(receipt.version, 4);
}
