-- The book of an account's machines asks for its hosts each time that offers are read.
CREATE INDEX hosts_account_idx ON hosts (account_id) WHERE removed_at IS NULL;
