//! The numbered lines of the contract, and whether the suite has to have a case for each.

/// One numbered line of the contract.
#[derive(Debug, Clone, Copy)]
pub struct Guarantee {
    /// Its number, e.g. `L5`.
    pub id: &'static str,
    /// What it says, in a few words.
    pub claim: &'static str,
    /// Whether every store is held to it here.
    pub status: Status,
}

/// Where a guarantee is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// By at least one case of this suite.
    Suite,
    /// Elsewhere: it needs a certain server, or belongs to how a store is configured and opened.
    Elsewhere {
        /// By whose tests.
        by: &'static str,
    },
    /// Nowhere yet.
    NotYet {
        /// What is missing.
        what: &'static str,
    },
}

const fn suite(id: &'static str, claim: &'static str) -> Guarantee {
    Guarantee { id, claim, status: Status::Suite }
}

const fn elsewhere(id: &'static str, claim: &'static str, by: &'static str) -> Guarantee {
    Guarantee { id, claim, status: Status::Elsewhere { by } }
}

const fn not_yet(id: &'static str, claim: &'static str, what: &'static str) -> Guarantee {
    Guarantee { id, claim, status: Status::NotYet { what } }
}

/// The contract, line by line.
pub const GUARANTEES: &[Guarantee] = &[
    suite("NAMES", "names and ids: one rule on every backend, refused up front"),
    suite("PAYLOAD", "payloads come back equal in value, or are refused before anything is written"),
    suite("ERRORS", "every error has a kind and says whether it applied"),
    suite("L1", "a commit is stored whole or not at all"),
    suite("L2", "versions are dense; the expected version holds"),
    suite("L3", "a command id stores one commit"),
    suite("L4", "what was acknowledged is durable"),
    suite("L5", "positions are gapless and in commit order"),
    suite("L6", "errors say whether they applied"),
    suite("L7", "a writer whose lease was overtaken is fenced"),
    suite("L8", "group commit is invisible"),
    suite("L9", "load, head, as of, read, heads"),
    suite("L10", "new aggregate types appear on first use"),
    suite("L11", "several commits, all or nothing"),
    suite("T1", "the tail delivers in order, at least once, without end"),
    suite("T2", "in batches, with back-pressure"),
    suite("T3", "pushed; a lost notification only delays"),
    elsewhere(
        "T4",
        "one notification connection per store",
        "`store-postgres/tests/store/push.rs`: twelve tails; on the others there is none, or it is not counted",
    ),
    suite("T5", "filtered by the store; the position advances"),
    suite("S1", "the latest snapshot wins"),
    suite("S2", "a snapshot of another revision is not returned"),
    suite("S3", "a snapshot ahead of its log is not used"),
    suite("S4", "snapshots can be dropped"),
    suite("C1", "checkpoints move forward only"),
    suite("C2", "checkpoints are fenced"),
    elsewhere(
        "C3",
        "a checkpoint inside the caller's own transaction",
        "`store-postgres/tests/store/own_transaction.rs`, `store-mongo/tests/store/schema.rs`",
    ),
    suite("E1", "at most one live owner"),
    suite("E2", "epochs rise and never repeat"),
    suite("E3", "members share partitions evenly"),
    suite("F1", "a failing aggregate is parked alone"),
    suite("F2", "a parked aggregate waits, then goes on in order"),
    suite("F3", "list, retry, discard, counts"),
    suite("R1", "a key has at most one owner"),
    suite("R2", "reserve, then confirm or release; expired is free"),
    suite("R3", "only the owner confirms or releases"),
    suite("R4", "swap in one step"),
    suite("R5", "reservations and timers ride in an append"),
    suite("M1", "timers fire at least once, not before their time"),
    suite("M2", "replace only if asked; cancel says whether it was there"),
    suite("Q1", "filters, sort, pages, count, projection"),
    elsewhere(
        "Q2",
        "read preferences",
        "`store-postgres/tests/store/replica.rs`: a standby; `store-mongo/tests/faults/lag.rs`: secondaries that lag",
    ),
    suite("Q3", "a query waits for a version"),
    elsewhere(
        "D1",
        "ddl modes",
        "`store-postgres/tests/store/ddl.rs`, `store-mongo/tests/store/schema.rs`: in each mode, with what is missing or different",
    ),
    elsewhere(
        "D2",
        "names of tables and collections",
        "`store-postgres/tests/store/ddl.rs`, `store-mongo/tests/store/limits.rs`: the longest names, not cut, none like another",
    ),
    suite("D3", "formats are recorded"),
    elsewhere(
        "D4",
        "many nodes start at once",
        "`store-postgres/tests/store/nodes.rs`, `store-mongo/tests/store/schema.rs`: on an empty database",
    ),
    elsewhere(
        "D5",
        "a standalone MongoDB is refused",
        "`store-mongo/tests/faults/answers.rs`: a server without a replica set",
    ),
    not_yet("N1", "named stores from one configuration", "not built yet"),
    elsewhere(
        "N2",
        "two log stores cannot share one place",
        "`store-embedded/tests/store.rs`, `store-postgres/tests/store/formats.rs`, `store-mongo/tests/store/formats.rs`",
    ),
    suite("N3", "no credentials or payloads in errors and debug output"),
];
