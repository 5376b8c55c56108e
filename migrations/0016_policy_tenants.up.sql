-- A change of bindings says in which tenant too, as "~<tenant> <subject>", or "~ <subject>" for the fleet and for what is not there: what asks
-- about another tenant need not look again. It comes after the name alone, which is sent as before, and before the version. One statement may name 1,000
-- subjects before it stands for all of them, since everybody then reads anew.
CREATE OR REPLACE FUNCTION role_bindings_changed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    names   text[];
    reached bigint;
BEGIN
    IF TG_OP = 'INSERT' THEN
        SELECT array_agg(name ORDER BY name COLLATE "C") INTO names FROM (SELECT DISTINCT binding_notices(subject, object) AS name FROM new_rows) AS each;
    ELSIF TG_OP = 'DELETE' THEN
        SELECT array_agg(name ORDER BY name COLLATE "C") INTO names FROM (SELECT DISTINCT binding_notices(subject, object) AS name FROM old_rows) AS each;
    ELSIF TG_OP = 'UPDATE' THEN
        SELECT array_agg(name ORDER BY name COLLATE "C") INTO names FROM (
            SELECT binding_notices(subject, object) AS name FROM old_rows UNION SELECT binding_notices(subject, object) FROM new_rows) AS each;
    ELSE
        names := ARRAY['*'];
    END IF;
    IF names IS NULL THEN
        RETURN NULL; -- the statement touched no row
    END IF;
    IF cardinality(names) > 2000 THEN -- two for each subject
        names := ARRAY['*'];
    END IF;
    UPDATE policy_version SET version = version + 1 RETURNING version INTO reached;
    PERFORM pg_notify('authz', name) FROM unnest(names) AS name;
    PERFORM pg_notify('authz', '=' || reached);
    RETURN NULL;
END $$;

CREATE FUNCTION binding_notices(subject text, object text) RETURNS SETOF text STABLE LANGUAGE sql AS $$
    SELECT subject
    UNION ALL
    SELECT '~' || coalesce(CASE split_part(object, '/', 1)
        WHEN 'compute-tenant' THEN split_part(object, '/', 2)
        WHEN 'compute-provider-account' THEN (SELECT tenant_id FROM provider_accounts WHERE id = split_part(object, '/', 2))
        WHEN 'compute-pool' THEN (SELECT tenant_id FROM pools WHERE id = split_part(object, '/', 2))
    END, '') || ' ' || subject
$$;
