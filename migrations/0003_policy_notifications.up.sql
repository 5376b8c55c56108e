-- One change of bindings is one statement, not one row: loading ten thousand bindings moves the version once. A notification
-- names each subject, and the last one of a statement is "=<version>", so that a listener knows when it missed some.
DROP TRIGGER role_bindings_changed ON role_bindings;
DROP TRIGGER role_bindings_truncated ON role_bindings;

CREATE OR REPLACE FUNCTION role_bindings_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    subjects text[];
    reached  bigint;
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT array_agg(DISTINCT subject) INTO subjects FROM new_rows;
    ELSIF TG_OP = 'DELETE' THEN
        SELECT array_agg(DISTINCT subject) INTO subjects FROM old_rows;
    ELSIF TG_OP = 'UPDATE' THEN
        SELECT array_agg(subject) INTO subjects
        FROM (SELECT subject FROM old_rows UNION SELECT subject FROM new_rows) AS both_rows;
    ELSE
        subjects := ARRAY['*'];
    END IF;
    IF subjects IS NULL THEN
        RETURN NULL; -- the statement touched no row
    END IF;
    IF cardinality(subjects) > 100 THEN
        subjects := ARRAY['*'];
    END IF;
    UPDATE policy_version SET version = version + 1 RETURNING version INTO reached;
    PERFORM pg_notify('authz', subject) FROM unnest(subjects) AS subject;
    PERFORM pg_notify('authz', '=' || reached);
    RETURN NULL;
END $$;

CREATE TRIGGER role_bindings_inserted AFTER INSERT ON role_bindings
    REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION role_bindings_changed();
CREATE TRIGGER role_bindings_updated AFTER UPDATE ON role_bindings
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION role_bindings_changed();
CREATE TRIGGER role_bindings_deleted AFTER DELETE ON role_bindings
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION role_bindings_changed();
CREATE TRIGGER role_bindings_truncated AFTER TRUNCATE ON role_bindings
    FOR EACH STATEMENT EXECUTE FUNCTION role_bindings_changed();
