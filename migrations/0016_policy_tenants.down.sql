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

DROP FUNCTION binding_notices(text, text);
