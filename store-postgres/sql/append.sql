CREATE OR REPLACE FUNCTION {function}(
    p_partition integer,
    p_lock_ms integer,
    p_slots integer[],
    p_tenants text[],
    p_ids text[],
    p_expected bigint[],
    p_commands text[],
    p_sizes integer[],
    p_metadata text[],
    p_events text[]
) RETURNS TABLE (o_ord bigint, o_outcome integer, o_version bigint, o_position bigint, o_committed_at timestamp with time zone)
LANGUAGE plpgsql VOLATILE AS $wow$
DECLARE
    v_position bigint;
    v_at timestamp with time zone;
BEGIN
    -- Nobody waits for the lock longer than the callers do, and what was acknowledged is on disk.
    PERFORM pg_catalog.set_config('lock_timeout', p_lock_ms::text, true);
    IF pg_catalog.current_setting('synchronous_commit') = 'off' THEN
        PERFORM pg_catalog.set_config('synchronous_commit', 'on', true);
    END IF;
    -- Lock: from here on nobody else writes to this partition. The clock is read under the lock.
    SELECT c.position, c.committed_at INTO v_position, v_at
    FROM {counter} AS c WHERE c.partition = p_partition FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'partition without a counter' USING ERRCODE = 'P0002';
    END IF;
    v_at := greatest(v_at, {now});
    -- Look, then write: a statement of its own, so that it sees everything that was committed before the lock.
    RETURN QUERY
    WITH asked AS (
        SELECT a.*, coalesce(h.version, 0) AS head,
               r.version AS r_version, r.position AS r_position, r.committed_at AS r_committed_at,
               r.version IS NULL AND (a.expected < 0 OR a.expected = coalesce(h.version, 0)) AS accepted
        FROM ROWS FROM (
            unnest(p_slots), unnest(p_tenants), unnest(p_ids), unnest(p_expected), unnest(p_commands),
            unnest(p_sizes), unnest(p_metadata), unnest(p_events)
        ) WITH ORDINALITY AS a(slot, tenant, id, expected, command_id, size, metadata, events, ord)
        LEFT JOIN LATERAL (
            SELECT l.version FROM {log} AS l
            WHERE l.tenant = a.tenant AND l.id = a.id
            ORDER BY l.version DESC LIMIT 1
        ) AS h ON true
        LEFT JOIN LATERAL (
            SELECT l.version, l.position, l.committed_at FROM {log} AS l
            WHERE h.version IS NOT NULL AND l.tenant = a.tenant AND l.id = a.id AND l.command_id = a.command_id
            LIMIT 1
        ) AS r ON true
    ), decided AS MATERIALIZED (
        SELECT a.*,
               a.head + pg_catalog.count(*) FILTER (WHERE a.accepted) OVER (PARTITION BY a.slot ORDER BY a.ord) AS version,
               v_position + pg_catalog.count(*) FILTER (WHERE a.accepted) OVER (ORDER BY a.ord) AS position
        FROM asked AS a
    ), stored AS (
        INSERT INTO {log}
            (partition, position, tenant, id, version, command_id, committed_at, size, metadata, events)
        SELECT p_partition, d.position, d.tenant, d.id, d.version, d.command_id, v_at, d.size,
               d.metadata::jsonb, d.events::jsonb
        FROM decided AS d WHERE d.accepted
    ), counted AS (
        UPDATE {counter} AS c
        SET position = (SELECT pg_catalog.max(d.position) FROM decided AS d WHERE d.accepted), committed_at = v_at
        WHERE c.partition = p_partition AND EXISTS (SELECT 1 FROM decided AS d WHERE d.accepted)
    )
    SELECT d.ord,
           CASE WHEN d.accepted THEN 0 WHEN d.r_version IS NOT NULL THEN 1 ELSE 2 END,
           CASE WHEN d.accepted THEN d.version ELSE coalesce(d.r_version, d.head) END,
           coalesce(d.r_position, d.position),
           coalesce(d.r_committed_at, v_at)
    FROM decided AS d;
END
$wow$
