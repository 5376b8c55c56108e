DO $$ DECLARE
    policy record;
BEGIN
    FOR policy IN SELECT tablename, policyname FROM pg_policies
        WHERE schemaname = current_schema() AND policyname IN ('owner', 'tenants', 'anybody_adds')
    LOOP
        EXECUTE format('DROP POLICY %I ON %I', policy.policyname, policy.tablename);
        EXECUTE format('ALTER TABLE %I NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY', policy.tablename);
    END LOOP;
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %I REVOKE ALL ON TABLES FROM compute_app', current_schema());
    EXECUTE format('ALTER DEFAULT PRIVILEGES IN SCHEMA %I REVOKE ALL ON SEQUENCES FROM compute_app', current_schema());
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA %I FROM compute_app', current_schema());
    EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA %I FROM compute_app', current_schema());
    EXECUTE format('REVOKE USAGE ON SCHEMA %I FROM compute_app', current_schema());
END $$;
-- The role stays: other databases of the cluster may use it.
