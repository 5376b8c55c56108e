DROP TRIGGER role_bindings_inserted ON role_bindings;
DROP TRIGGER role_bindings_updated ON role_bindings;
DROP TRIGGER role_bindings_deleted ON role_bindings;
DROP TRIGGER role_bindings_truncated ON role_bindings;

CREATE OR REPLACE FUNCTION role_bindings_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE policy_version SET version = version + 1;
    IF TG_OP = 'TRUNCATE' THEN
        PERFORM pg_notify('authz', '*');
    ELSIF TG_OP = 'DELETE' THEN
        PERFORM pg_notify('authz', OLD.subject);
    ELSE
        PERFORM pg_notify('authz', NEW.subject);
        IF TG_OP = 'UPDATE' AND OLD.subject <> NEW.subject THEN
            PERFORM pg_notify('authz', OLD.subject);
        END IF;
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER role_bindings_changed AFTER INSERT OR UPDATE OR DELETE ON role_bindings
    FOR EACH ROW EXECUTE FUNCTION role_bindings_changed();
CREATE TRIGGER role_bindings_truncated AFTER TRUNCATE ON role_bindings
    FOR EACH STATEMENT EXECUTE FUNCTION role_bindings_changed();
