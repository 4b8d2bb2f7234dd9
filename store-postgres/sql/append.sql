CREATE OR REPLACE FUNCTION {function}(
    p_partition integer,
    p_lock_ms integer,
    p_ranks integer[],
    p_tenants text[],
    p_ids text[],
    p_expected bigint[],
    p_commands text[],
    p_sizes integer[],
    p_metadata text[],
    p_events text[],
    p_known bigint[],
    p_seen bigint,
    p_seen_at timestamp with time zone,
    p_seen_command text
) RETURNS TABLE (
    o_ord bigint, o_outcome integer, o_version bigint, o_position bigint, o_committed_at timestamp with time zone,
    o_heads bigint[]
)
LANGUAGE plpgsql VOLATILE AS $wow$
DECLARE
    v_count bigint := pg_catalog.cardinality(p_ids);
    v_position bigint;
    v_at timestamp with time zone;
    v_heads bigint[];
    v_accepted boolean;
    v_trusts boolean := p_known IS NOT NULL;
BEGIN
    -- Nobody waits for the lock longer than the callers do, and what was acknowledged is on disk.
    PERFORM pg_catalog.set_config('lock_timeout', p_lock_ms::text, true);
    IF pg_catalog.current_setting('synchronous_commit') = 'off' THEN
        PERFORM pg_catalog.set_config('synchronous_commit', 'on', true);
    END IF;
    -- Lock: from here on nobody else writes to this partition. Counts as if all were accepted, as they mostly are: a row
    -- that is changed once costs less than one that is locked first. The clock is read under the lock: who had to wait
    -- for it reads again.
    UPDATE {counter} AS c SET position = c.position + v_count, committed_at = greatest(c.committed_at, {now})
    WHERE c.partition = p_partition
    RETURNING c.position - v_count, c.committed_at INTO v_position, v_at;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'partition without a counter' USING ERRCODE = 'P0002';
    END IF;
    -- What the caller knows of heads holds in a log that has the commit which it saw last: heads only rise, unless the
    -- database was replaced by an older one.
    IF v_trusts AND p_seen IS NOT NULL THEN
        PERFORM FROM {log} AS l
        WHERE l.partition = p_partition AND l.position = p_seen
              AND l.committed_at = p_seen_at AND l.command_id = p_seen_command;
        IF NOT FOUND THEN
            v_trusts := false;
            o_ord := 0;
            o_outcome := 4;
            RETURN NEXT;
        END IF;
    END IF;
    LOOP
        -- Look, then write: a statement of its own, so that it sees everything that was committed before the lock.
        IF v_trusts AND pg_catalog.array_position(p_known, NULL) IS NULL THEN
            v_heads := p_known;
            v_accepted := true;
        ELSE
            SELECT pg_catalog.array_agg(b.head),
                   pg_catalog.bool_and((b.expected < 0 OR b.expected = b.head) AND b.stored IS NULL)
            INTO v_heads, v_accepted
            FROM (
                SELECT a.expected, coalesce(a.known, h.version, 0) AS head, r.stored
                FROM ROWS FROM (
                    unnest(p_tenants), unnest(p_ids), unnest(p_expected), unnest(p_commands),
                    unnest(CASE WHEN v_trusts THEN p_known END)
                ) WITH ORDINALITY AS a(tenant, id, expected, command_id, known, ord)
                LEFT JOIN LATERAL (
                    SELECT l.version FROM {log} AS l
                    WHERE a.known IS NULL AND l.tenant = a.tenant AND l.id = a.id
                    ORDER BY l.version DESC LIMIT 1
                ) AS h ON true
                -- Not EXISTS, which may be planned as one look at the whole log.
                LEFT JOIN LATERAL (
                    SELECT true AS stored FROM {log} AS l
                    WHERE h.version IS NOT NULL
                          AND l.tenant = a.tenant AND l.id = a.id AND l.command_id = a.command_id
                    LIMIT 1
                ) AS r ON true
                ORDER BY a.ord
            ) AS b;
        END IF;
        IF v_accepted THEN
            o_ord := 0;
            o_outcome := 3;
            o_position := v_position;
            o_committed_at := v_at;
            o_heads := v_heads;
            IF NOT v_trusts THEN
                {insert};
                RETURN NEXT;
                RETURN;
            END IF;
            -- A head that was known may not be the last one any more, and nobody looked for the command: the unique
            -- indexes tell.
            BEGIN
                {insert};
                -- One row for all: what each came to follows from it.
                RETURN NEXT;
                RETURN;
            EXCEPTION WHEN unique_violation THEN
                o_outcome := 5;
                o_heads := NULL;
                RETURN NEXT;
            END;
        END IF;
        EXIT WHEN NOT v_trusts;
        -- Again, and nothing is believed.
        v_trusts := false;
    END LOOP;
    -- One by one, where some are refused or were stored before.
    RETURN QUERY
    WITH asked AS (
        SELECT a.*, r.version AS r_version, r.position AS r_position, r.committed_at AS r_committed_at,
               r.version IS NULL AND (a.expected < 0 OR a.expected = a.head) AS accepted
        FROM ROWS FROM (
            unnest(p_tenants), unnest(p_ids), unnest(p_expected), unnest(p_commands), unnest(p_sizes),
            unnest(p_metadata), unnest(p_events), unnest(v_heads)
        ) WITH ORDINALITY AS a(tenant, id, expected, command_id, size, metadata, events, head, ord)
        LEFT JOIN LATERAL (
            SELECT l.version, l.position, l.committed_at FROM {log} AS l
            WHERE a.head > 0 AND l.tenant = a.tenant AND l.id = a.id AND l.command_id = a.command_id
            LIMIT 1
        ) AS r ON true
    ), decided AS MATERIALIZED (
        SELECT a.*,
               a.head + pg_catalog.count(*) FILTER (WHERE a.accepted)
                   OVER (PARTITION BY a.tenant, a.id ORDER BY a.ord) AS version,
               v_position + pg_catalog.count(*) FILTER (WHERE a.accepted) OVER (ORDER BY a.ord) AS position
        FROM asked AS a
    ), stored AS (
        INSERT INTO {log}
            (partition, position, tenant, id, version, command_id, committed_at, size, metadata, events)
        SELECT p_partition, d.position, d.tenant, d.id, d.version, d.command_id, v_at, d.size,
               d.metadata::jsonb, d.events::json
        FROM decided AS d WHERE d.accepted
    ), counted AS (
        UPDATE {counter} AS c
        SET position = v_position + (SELECT pg_catalog.count(*) FROM decided AS d WHERE d.accepted)
        WHERE c.partition = p_partition
    )
    SELECT d.ord,
           CASE WHEN d.accepted THEN 0 WHEN d.r_version IS NOT NULL THEN 1 ELSE 2 END,
           CASE WHEN d.accepted THEN d.version ELSE coalesce(d.r_version, d.head) END,
           coalesce(d.r_position, d.position),
           coalesce(d.r_committed_at, v_at),
           NULL::bigint[]
    FROM decided AS d;
END
$wow$
