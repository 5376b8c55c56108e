-- Roles that an administrator of the fleet defined, beside the built-in ones, which are in no table.
CREATE TABLE roles (
    name        text COLLATE "C" PRIMARY KEY CHECK (name ~ '^[a-z][a-z0-9-]{0,62}$'),
    description text        NOT NULL DEFAULT '',
    permissions text[]      NOT NULL CHECK (cardinality(permissions) > 0),
    created_at  timestamptz NOT NULL DEFAULT now(),
    created_by  text        NOT NULL,
    updated_at  timestamptz NOT NULL DEFAULT now(),
    updated_by  text        NOT NULL
);

-- A change of a role concerns whoever is bound to it: it moves the policy's version as a change of bindings does, and every subject
-- is to be read anew.
CREATE FUNCTION roles_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    reached bigint;
BEGIN
    UPDATE policy_version SET version = version + 1 RETURNING version INTO reached;
    PERFORM pg_notify('authz', '*');
    PERFORM pg_notify('authz', '=' || reached);
    RETURN NULL;
END $$;
CREATE TRIGGER roles_changed AFTER INSERT OR UPDATE OR DELETE ON roles
    FOR EACH ROW EXECUTE FUNCTION roles_changed();
CREATE TRIGGER roles_truncated AFTER TRUNCATE ON roles
    FOR EACH STATEMENT EXECUTE FUNCTION roles_changed();

-- Who is bound to a role, and the pages of bindings in their order.
CREATE INDEX role_bindings_role_idx ON role_bindings (role);
CREATE INDEX role_bindings_page_idx ON role_bindings (object, subject, role, effect);
DROP INDEX role_bindings_object_idx;
