INSERT INTO {log}
                    (partition, position, tenant, id, version, command_id, committed_at, size, metadata, events)
                SELECT p_partition, v_position + a.ord, a.tenant, a.id, v_heads[a.ord] + p_ranks[a.ord] + 1,
                       a.command_id, v_at, p_sizes[a.ord], a.metadata::jsonb, a.events::json
                FROM ROWS FROM (
                    unnest(p_tenants), unnest(p_ids), unnest(p_commands), unnest(p_metadata), unnest(p_events)
                ) WITH ORDINALITY AS a(tenant, id, command_id, metadata, events, ord)
