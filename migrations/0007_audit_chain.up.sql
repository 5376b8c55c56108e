-- The number of the writing transaction, which is what tells the order of rows behind the commit horizon. Rows of before get that of this
-- migration, and so come first, in the order of their ids.
ALTER TABLE audit_log ADD COLUMN xid xid8 NOT NULL DEFAULT pg_current_xact_id();
CREATE INDEX audit_log_xid_idx ON audit_log (xid, id);

-- Newest first, for each filter that may stand alone.
DROP INDEX audit_log_tenant_idx;
CREATE INDEX audit_log_tenant_at_idx ON audit_log (tenant_id, at DESC, id DESC);
CREATE INDEX audit_log_actor_idx ON audit_log (tenant_id, actor, at DESC, id DESC);
CREATE INDEX audit_log_action_idx ON audit_log (tenant_id, action, at DESC, id DESC);
CREATE INDEX audit_log_object_idx ON audit_log (tenant_id, object, at DESC, id DESC);
CREATE INDEX audit_log_outcome_idx ON audit_log (tenant_id, outcome, at DESC, id DESC);
CREATE INDEX audit_log_request_idx ON audit_log (tenant_id, request_id, at DESC, id DESC);

-- The hash chain of each tenant. No reference to audit_log: it would lock each row, and what is to be found is that one is gone.
CREATE TABLE audit_chain (
    tenant_id text COLLATE "C" NOT NULL,
    seq       bigint NOT NULL CHECK (seq > 0),
    audit_id  bigint NOT NULL,
    xid       xid8   NOT NULL,
    hash      bytea  NOT NULL CHECK (octet_length(hash) = 32),
    PRIMARY KEY (tenant_id, seq),
    CONSTRAINT audit_chain_once UNIQUE (audit_id)
);
-- The newest entry is how far the log is chained.
CREATE INDEX audit_chain_xid_idx ON audit_chain (xid, audit_id);
