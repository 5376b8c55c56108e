-- Credentials of programs. An empty tenant_id is the fleet's. Only the SHA-256 of a token is here.
CREATE TABLE api_tokens (
    id           text COLLATE "C" PRIMARY KEY,
    tenant_id    text COLLATE "C" NOT NULL,
    name         text COLLATE "C" NOT NULL,
    subject      text COLLATE "C" NOT NULL,
    description  text        NOT NULL DEFAULT '',
    token_hash   bytea       NOT NULL CHECK (octet_length(token_hash) = 32),
    created_by   text        NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    last_used_at timestamptz,
    revoked_at   timestamptz,
    revoked_by   text        NOT NULL DEFAULT ''
);
CREATE UNIQUE INDEX api_tokens_hash_idx ON api_tokens (token_hash);
CREATE INDEX api_tokens_page_idx ON api_tokens (tenant_id, created_at DESC, id DESC);

-- A token that ends, or ends at another time, moves the policy's version as a change of bindings does, under the name
-- "token:<id>". Its use does not, and neither does a new one, which no replica can have asked about.
CREATE FUNCTION api_tokens_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    names   text[];
    reached bigint;
BEGIN
    IF TG_OP = 'UPDATE' THEN
        SELECT array_agg('token:' || o.id) INTO names
        FROM old_rows o LEFT JOIN new_rows n ON n.id = o.id
        WHERE n.id IS NULL OR n.revoked_at IS DISTINCT FROM o.revoked_at OR n.expires_at IS DISTINCT FROM o.expires_at;
    ELSIF TG_OP = 'DELETE' THEN
        SELECT array_agg('token:' || id) INTO names FROM old_rows;
    ELSE
        names := ARRAY['*'];
    END IF;
    IF names IS NULL THEN
        RETURN NULL; -- nothing that counts
    END IF;
    IF cardinality(names) > 100 THEN
        names := ARRAY['*'];
    END IF;
    UPDATE policy_version SET version = version + 1 RETURNING version INTO reached;
    PERFORM pg_notify('authz', name) FROM unnest(names) AS name;
    PERFORM pg_notify('authz', '=' || reached);
    RETURN NULL;
END $$;

CREATE TRIGGER api_tokens_updated AFTER UPDATE ON api_tokens
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION api_tokens_changed();
CREATE TRIGGER api_tokens_deleted AFTER DELETE ON api_tokens
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION api_tokens_changed();
CREATE TRIGGER api_tokens_truncated AFTER TRUNCATE ON api_tokens
    FOR EACH STATEMENT EXECUTE FUNCTION api_tokens_changed();
