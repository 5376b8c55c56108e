-- The second wall between tenants. The server works as the role compute_app, which sees only rows of the tenants that the setting
-- app.tenants names: * for all, else an array of text; nothing when it is not set. The setting's two readings are subqueries, so
-- that a statement evaluates them once and keeps its indexes.

-- A role belongs to the whole cluster: several databases may make it at the same time, and a managed cluster may not let us.
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'compute_app') THEN
        BEGIN
            CREATE ROLE compute_app NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
        EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END IF;
    -- Since version 16 who makes a role is its member and may yet not become it.
    IF NOT pg_has_role(current_user, 'compute_app', CASE WHEN current_setting('server_version_num')::int < 160000 THEN 'MEMBER' ELSE 'SET' END) THEN
        BEGIN
            EXECUTE format('GRANT compute_app TO %I', current_user);
        EXCEPTION WHEN unique_violation THEN NULL;
        END;
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO compute_app', current_schema());
END $$;

-- What only grows is not changed by anybody, and what nobody deletes is not deleted.
DO $$ DECLARE
    may record;
BEGIN
    FOR may IN SELECT privileges, unnest(tables) AS walled FROM (VALUES
        ('SELECT, INSERT, UPDATE, DELETE', ARRAY['provider_accounts', 'pools', 'instances', 'bootstraps', 'hosts', 'machine_reservations',
            'inventory_claims', 'secrets', 'role_bindings', 'roles']),
        ('SELECT, INSERT, UPDATE', ARRAY['api_tokens']),
        ('SELECT, INSERT, DELETE', ARRAY['events']),
        ('SELECT, INSERT', ARRAY['bootstrap_transitions', 'host_certificates', 'audit_log', 'audit_chain', 'server_keys']),
        ('SELECT, UPDATE', ARRAY['policy_version']),
        ('SELECT', ARRAY['bun_migrations'])
    ) AS grants (privileges, tables) LOOP
        EXECUTE format('GRANT %s ON %I TO compute_app', may.privileges, may.walled);
    END LOOP;
END $$;

-- The job queue has migrations of its own, before this one or after.
DO $$ DECLARE
    queue name;
BEGIN
    FOR queue IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename LIKE 'river\_%' LOOP
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO compute_app', queue);
    END LOOP;
    FOR queue IN SELECT sequencename FROM pg_sequences WHERE schemaname = current_schema() AND sequencename LIKE 'river\_%' LOOP
        EXECUTE format('GRANT USAGE, SELECT ON SEQUENCE %I TO compute_app', queue);
    END LOOP;
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %I GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO compute_app', current_schema());
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %I GRANT USAGE, SELECT ON SEQUENCES TO compute_app', current_schema());
END $$;

-- The owner works on everything, by a policy and not because it owns: migrations, operators' commands, the code of the version before.
DO $$ DECLARE
    walled text;
BEGIN
    FOREACH walled IN ARRAY ARRAY[
        'provider_accounts', 'pools', 'instances', 'bootstraps', 'bootstrap_transitions', 'hosts', 'host_certificates', 'inventory_claims',
        'events', 'secrets', 'role_bindings', 'api_tokens', 'audit_log', 'audit_chain'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', walled);
        EXECUTE format('CREATE POLICY owner ON %I TO %I USING (true)', walled, current_user);
    END LOOP;
    FOREACH walled IN ARRAY ARRAY[
        'provider_accounts', 'pools', 'instances', 'bootstraps', 'hosts', 'host_certificates', 'events', 'secrets', 'api_tokens', 'audit_chain'
    ] LOOP
        EXECUTE format($policy$
            CREATE POLICY tenants ON %I TO compute_app USING (
                (SELECT current_setting('app.tenants', true) = '*')
                OR tenant_id = ANY ((SELECT nullif(nullif(current_setting('app.tenants', true), '*'), '')::text[])::text[]))
        $policy$, walled);
    END LOOP;
END $$;

-- A denial is written down with the tenant that was asked for, which the caller need not see.
CREATE POLICY tenants ON audit_log FOR SELECT TO compute_app USING (
    (SELECT current_setting('app.tenants', true) = '*')
    OR tenant_id = ANY ((SELECT nullif(nullif(current_setting('app.tenants', true), '*'), '')::text[])::text[]));
CREATE POLICY anybody_adds ON audit_log FOR INSERT TO compute_app WITH CHECK (true);

-- A row without a tenant of its own is seen with its parent, whose own policy counts in the subquery. The OFFSET keeps that a look-up for
-- each row: the planner would else read all parents where it expects few.
CREATE POLICY tenants ON bootstrap_transitions TO compute_app USING (
    (SELECT current_setting('app.tenants', true) = '*')
    OR EXISTS (SELECT FROM bootstraps b WHERE b.id = bootstrap_id OFFSET 0));
CREATE POLICY tenants ON inventory_claims TO compute_app USING (
    (SELECT current_setting('app.tenants', true) = '*')
    OR EXISTS (SELECT FROM provider_accounts a WHERE a.id = account_id OFFSET 0));

-- A binding is seen with the tenant or the item that it is on; those of the fleet by who sees all.
CREATE POLICY tenants ON role_bindings TO compute_app USING (
    (SELECT current_setting('app.tenants', true) = '*')
    OR object = ANY ((SELECT array_agg('compute-tenant/' || tenant)
        FROM unnest(nullif(nullif(current_setting('app.tenants', true), '*'), '')::text[]) AS tenant)::text[])
    OR EXISTS (SELECT FROM provider_accounts a WHERE a.id = split_part(object, 'compute-provider-account/', 2) OFFSET 0)
    OR EXISTS (SELECT FROM pools p WHERE p.id = split_part(object, 'compute-pool/', 2) OFFSET 0));
