CREATE INDEX role_bindings_object_idx ON role_bindings (object);
DROP INDEX role_bindings_page_idx;
DROP INDEX role_bindings_role_idx;
DROP TABLE roles;
DROP FUNCTION roles_changed();
