//! The statements on tables that every store has.

use crate::{names::Schema, pool::Sql};

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $sql:literal;)+) => {
        /// Written once for the schema.
        pub(crate) struct Statements {
            $($(#[$doc])* pub(crate) $name: Sql,)+
        }

        impl Statements {
            pub(crate) fn new(schema: &Schema) -> Self {
                Self { $($name: Sql::from(schema.sql($sql)),)+ }
            }
        }
    };
}

statements! {
    now = "SELECT {now}";

    /// A row of epoch 0 only holds a place: no lease is known.
    lease_share = r#"
        SELECT owner, epoch, expires_at FROM {wow_lease}
        WHERE "group" = $1 AND context = $2 AND partition = $3 FOR SHARE"#;
    lease_place = r#"
        INSERT INTO {wow_lease} ("group", context, partition, owner, epoch, expires_at)
        VALUES ($1, $2, $3, NULL, 0, 'epoch') ON CONFLICT DO NOTHING"#;
    lease_put = r#"
        UPDATE {wow_lease} SET owner = $4, epoch = $5, expires_at = $6
        WHERE "group" = $1 AND context = $2 AND partition = $3"#;
    lease_get = r#"
        SELECT owner, epoch, expires_at FROM {wow_lease}
        WHERE "group" = $1 AND context = $2 AND partition = $3 AND epoch > 0"#;
    /// The row is locked before it is looked at, and the clock is read after that.
    lease_acquire = r#"
        INSERT INTO {wow_lease} AS l ("group", context, partition, owner, epoch, expires_at)
        VALUES ($1, $2, $3, $4, 1, {now}
                                   + $5::bigint * interval '1 millisecond')
        ON CONFLICT ("group", context, partition) DO UPDATE
        SET owner = EXCLUDED.owner, epoch = l.epoch + 1,
            expires_at = {now}
                         + $5::bigint * interval '1 millisecond'
        WHERE l.owner IS NULL
              OR l.expires_at <= {now}
        RETURNING l.epoch, l.expires_at"#;
    /// All in one step: locked in one order, then judged by one reading of the clock.
    lease_renew = r#"
        WITH asked AS (
            SELECT DISTINCT a."group", a.context, a.partition, a.member, a.epoch
            FROM ROWS FROM (unnest($1::text[]), unnest($2::text[]), unnest($3::integer[]), unnest($4::text[]),
                            unnest($5::bigint[])) AS a("group", context, partition, member, epoch)
        ), locked AS MATERIALIZED (
            SELECT l."group", l.context, l.partition, l.owner, l.epoch, l.expires_at
            FROM {wow_lease} AS l JOIN asked AS a
                 ON a."group" = l."group" AND a.context = l.context AND a.partition = l.partition
                    AND a.member = l.owner AND a.epoch = l.epoch
            ORDER BY l."group", l.context, l.partition FOR UPDATE OF l
        ), clock AS MATERIALIZED (
            SELECT pg_catalog.count(*),
                   {now} AS now
            FROM locked
        )
        UPDATE {wow_lease} AS l SET expires_at = c.now + $6::bigint * interval '1 millisecond'
        FROM locked AS k CROSS JOIN clock AS c
        WHERE l."group" = k."group" AND l.context = k.context AND l.partition = k.partition
              AND l.owner = k.owner AND l.epoch = k.epoch AND l.expires_at > c.now
        RETURNING l."group", l.context, l.partition, l.owner, l.epoch, l.expires_at"#;
    lease_release = r#"
        UPDATE {wow_lease} SET owner = NULL
        WHERE "group" = $1 AND context = $2 AND partition = $3 AND owner = $4 AND epoch = $5"#;
    leases = r#"
        SELECT owner, epoch, expires_at, partition FROM {wow_lease}
        WHERE "group" = $1 AND context = $2 AND epoch > 0 ORDER BY partition"#;
    heartbeat = r#"
        WITH clock AS (SELECT {now} AS now)
        INSERT INTO {wow_lease_member} AS m ("group", member, joined_at, expires_at)
        SELECT $1, $2, c.now, c.now + $3::bigint * interval '1 millisecond' FROM clock AS c
        ON CONFLICT ("group", member) DO UPDATE
        SET joined_at = CASE WHEN m.expires_at > EXCLUDED.joined_at THEN m.joined_at ELSE EXCLUDED.joined_at END,
            expires_at = EXCLUDED.expires_at
        RETURNING m.joined_at, m.expires_at"#;
    members = r#"
        SELECT member, joined_at, expires_at FROM {wow_lease_member}
        WHERE "group" = $1 AND expires_at > {now}
        ORDER BY member"#;
    leave = r#"
        DELETE FROM {wow_lease_member} WHERE "group" = $1 AND member = $2
        RETURNING expires_at > {now}"#;

    checkpoint = r#"
        SELECT position, epoch, saved_at FROM {wow_checkpoint}
        WHERE subscription = $1 AND context = $2 AND partition = $3"#;
    checkpoints = r#"
        SELECT position, epoch, saved_at, subscription, partition FROM {wow_checkpoint}
        WHERE context = $1 ORDER BY subscription, partition"#;
    /// Checks the fence and saves, in one step. No row comes back where a rule refuses it; which one is asked then.
    checkpoint_save = r#"
        WITH known AS MATERIALIZED (
            SELECT epoch FROM {wow_lease}
            WHERE "group" = $1 AND context = $2 AND partition = $3 AND $5::bigint IS NOT NULL FOR SHARE
        ), raised AS (
            INSERT INTO {wow_lease} AS l ("group", context, partition, owner, epoch, expires_at)
            SELECT $1, $2, $3, NULL, $5, 'epoch'
            WHERE $5 > 0 AND NOT EXISTS (SELECT 1 FROM known AS k WHERE k.epoch >= $5)
                  AND NOT EXISTS (SELECT 1 FROM {wow_checkpoint} AS c
                                  WHERE c.subscription = $1 AND c.context = $2 AND c.partition = $3 AND c.epoch > $5)
            ON CONFLICT ("group", context, partition) DO UPDATE
            SET owner = NULL, epoch = EXCLUDED.epoch, expires_at = EXCLUDED.expires_at
            WHERE l.epoch < EXCLUDED.epoch
            RETURNING 1
        )
        INSERT INTO {wow_checkpoint} AS c (subscription, context, partition, position, epoch, saved_at)
        SELECT $1, $2, $3, $4, coalesce($5, 0),
               {now}
        WHERE $5 IS NULL OR EXISTS (SELECT 1 FROM known AS k WHERE k.epoch = $5) OR EXISTS (SELECT 1 FROM raised)
              OR ($5 = 0 AND NOT EXISTS (SELECT 1 FROM known))
        ON CONFLICT (subscription, context, partition) DO UPDATE
        SET position = CASE WHEN $6::boolean THEN EXCLUDED.position ELSE greatest(c.position, EXCLUDED.position) END,
            epoch = greatest(c.epoch, EXCLUDED.epoch), saved_at = EXCLUDED.saved_at
        WHERE $5 IS NULL OR c.epoch <= $5
        RETURNING c.position"#;

    /// Checks the fence and counts, in one step. No row comes back where the aggregate is parked or a rule refuses it;
    /// which one is asked then.
    failure_count = r#"
        WITH known AS MATERIALIZED (
            SELECT epoch FROM {wow_lease}
            WHERE "group" = $1 AND context = $2 AND partition = $6 AND $9::bigint IS NOT NULL FOR SHARE
        ), raised AS (
            INSERT INTO {wow_lease} AS l ("group", context, partition, owner, epoch, expires_at)
            SELECT $1, $2, $6, NULL, $9, 'epoch'
            WHERE $9 > 0 AND NOT EXISTS (SELECT 1 FROM known AS k WHERE k.epoch >= $9)
            ON CONFLICT ("group", context, partition) DO UPDATE
            SET owner = NULL, epoch = EXCLUDED.epoch, expires_at = EXCLUDED.expires_at
            WHERE l.epoch < EXCLUDED.epoch
            RETURNING 1
        )
        INSERT INTO {wow_failure_ledger} AS f
            (subscription, context, aggregate, tenant, id, partition, state, position, version, from_version, attempts,
             since, updated_at)
        SELECT $1, $2, $3, $4, $5, $6, 'trying', $7, $8, $8, 1, c.now, c.now FROM (SELECT {now} AS now) AS c
        WHERE $9 IS NULL OR EXISTS (SELECT 1 FROM known AS k WHERE k.epoch = $9) OR EXISTS (SELECT 1 FROM raised)
              OR ($9 = 0 AND NOT EXISTS (SELECT 1 FROM known))
        ON CONFLICT (subscription, context, aggregate, tenant, id) DO UPDATE
        SET position = EXCLUDED.position, version = EXCLUDED.version,
            from_version = CASE f.state WHEN 'retrying' THEN f.from_version ELSE EXCLUDED.from_version END,
            attempts = least(f.attempts + 1, 4294967295), updated_at = {now}
        WHERE f.state <> 'parked'
        RETURNING context, aggregate, tenant, id, partition, state, position, version, from_version, attempts, event,
                  error, since, updated_at"#;
    /// An entry, and the highest epoch of the subscription's lease.
    failure_and_epoch = r#"
        SELECT context, aggregate, tenant, id, partition, state, position, version, from_version, attempts, event, error,
               since, updated_at,
               coalesce((SELECT l.epoch FROM {wow_lease} AS l
                         WHERE l."group" = $1 AND l.context = $2 AND l.partition = $6), 0)
        FROM {wow_failure_ledger}
        WHERE subscription = $1 AND context = $2 AND aggregate = $3 AND tenant = $4 AND id = $5"#;
    failure_lock = r#"
        SELECT context, aggregate, tenant, id, partition, state, position, version, from_version, attempts, event, error,
               since, updated_at
        FROM {wow_failure_ledger}
        WHERE subscription = $1 AND context = $2 AND aggregate = $3 AND tenant = $4 AND id = $5 FOR UPDATE"#;
    failure_get = r#"
        SELECT context, aggregate, tenant, id, partition, state, position, version, from_version, attempts, event, error,
               since, updated_at
        FROM {wow_failure_ledger}
        WHERE subscription = $1 AND context = $2 AND aggregate = $3 AND tenant = $4 AND id = $5"#;
    failures = r#"
        SELECT context, aggregate, tenant, id, partition, state, position, version, from_version, attempts, event, error,
               since, updated_at
        FROM {wow_failure_ledger}
        WHERE subscription = $1 AND ($2::text IS NULL OR (context = $2 AND partition = $3)) AND ($4::text IS NULL OR state = $4)
              AND ($5::text IS NULL OR (context, aggregate, tenant, id) > ($5, $6, $7, $8))
        ORDER BY subscription, context, aggregate, tenant, id LIMIT $9"#;
    failure_insert = r#"
        INSERT INTO {wow_failure_ledger}
            (subscription, context, aggregate, tenant, id, partition, state, position, version, from_version, attempts,
             event, error, since, updated_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT DO NOTHING"#;
    failure_update = r#"
        UPDATE {wow_failure_ledger}
        SET partition = $6, state = $7, position = $8, version = $9, from_version = $10, attempts = $11, event = $12,
            error = $13, since = $14, updated_at = $15
        WHERE subscription = $1 AND context = $2 AND aggregate = $3 AND tenant = $4 AND id = $5"#;
    failure_delete = r#"
        DELETE FROM {wow_failure_ledger}
        WHERE subscription = $1 AND context = $2 AND aggregate = $3 AND tenant = $4 AND id = $5"#;
    failure_counts = r#"
        SELECT pg_catalog.count(*) FILTER (WHERE state = 'trying'), pg_catalog.count(*) FILTER (WHERE state = 'parked'),
               pg_catalog.count(*) FILTER (WHERE state = 'retrying'),
               (SELECT pg_catalog.count(*) FROM {wow_failure_discarded} AS d WHERE d.subscription = $1)
        FROM {wow_failure_ledger} WHERE subscription = $1"#;
    discarded_insert = r#"
        INSERT INTO {wow_failure_discarded}
            (subscription, context, aggregate, tenant, id, position, version, event, error, discarded_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"#;
    discarded = r#"
        SELECT context, aggregate, tenant, id, position, version, event, error, discarded_at
        FROM {wow_failure_discarded} WHERE subscription = $1 ORDER BY number DESC LIMIT $2"#;

    /// Holds the place of a key that is free: expired long ago, and nobody's.
    reservation_place = r#"
        INSERT INTO {wow_reservation} (scope, key, owner, expires_at, reserved_at)
        VALUES ($1, $2, '', 'epoch', 'epoch') ON CONFLICT DO NOTHING"#;
    reservation_lock = r#"
        SELECT scope, key, owner, expires_at, reserved_at FROM {wow_reservation}
        WHERE scope = $1 AND key = $2 FOR UPDATE"#;
    reservation_put = r#"
        UPDATE {wow_reservation} SET owner = $3, expires_at = $4, reserved_at = $5 WHERE scope = $1 AND key = $2"#;
    reservation_delete = "DELETE FROM {wow_reservation} WHERE scope = $1 AND key = $2";
    reservation = r#"
        SELECT scope, key, owner, expires_at, reserved_at FROM {wow_reservation}
        WHERE scope = $1 AND key = $2 AND (expires_at IS NULL
              OR expires_at > {now})"#;
    reservations = r#"
        SELECT scope, key, owner, expires_at, reserved_at FROM {wow_reservation}
        WHERE ($1::text IS NULL OR scope = $1) AND ($2::text IS NULL OR (scope, key) > ($2, $3))
              AND (expires_at IS NULL
                   OR expires_at > {now})
        ORDER BY scope, key LIMIT $4"#;
}
