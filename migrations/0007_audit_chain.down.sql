DROP TABLE audit_chain;
DROP INDEX audit_log_tenant_at_idx, audit_log_actor_idx, audit_log_action_idx, audit_log_object_idx, audit_log_outcome_idx,
    audit_log_request_idx, audit_log_xid_idx;
ALTER TABLE audit_log DROP COLUMN xid;
CREATE INDEX audit_log_tenant_idx ON audit_log (tenant_id, id DESC);
