CREATE TABLE role_bindings (
    subject    text COLLATE "C" NOT NULL,
    role       text COLLATE "C" NOT NULL,
    object     text COLLATE "C" NOT NULL,
    effect     text        NOT NULL CHECK (effect IN ('allow', 'deny')),
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text        NOT NULL DEFAULT '',
    PRIMARY KEY (subject, object, role, effect)
);
CREATE INDEX role_bindings_object_idx ON role_bindings (object);

-- One row. Any change to a binding moves it, so that a replica whose notification got lost sees by polling that it is behind.
CREATE TABLE policy_version (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    version bigint NOT NULL
);
INSERT INTO policy_version (version) VALUES (1);

CREATE FUNCTION role_bindings_changed() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TABLE audit_log (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT now(),
    tenant_id  text COLLATE "C" NOT NULL,
    actor      text        NOT NULL,
    action     text        NOT NULL,
    object     text        NOT NULL,
    outcome    text        NOT NULL CHECK (outcome IN ('allowed', 'denied', 'replayed')),
    request_id text        NOT NULL DEFAULT '',
    details    jsonb       NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_log_tenant_idx ON audit_log (tenant_id, id DESC);
