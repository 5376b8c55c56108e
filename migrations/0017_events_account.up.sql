-- For who resumes and may read few accounts of a busy tenant, or asks for one.
CREATE INDEX events_account_idx ON events (account_id, xid, id);
