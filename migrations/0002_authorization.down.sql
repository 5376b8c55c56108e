DROP TABLE audit_log, policy_version, role_bindings;
DROP FUNCTION role_bindings_changed();
