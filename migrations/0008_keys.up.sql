-- Keys that all replicas share and that outlive restarts. Each is made at random by whoever needs it first.
CREATE TABLE server_keys (
    name        text COLLATE "C" PRIMARY KEY,
    key         bytea       NOT NULL CHECK (octet_length(key) = 32),
    created_at  timestamptz NOT NULL DEFAULT now()
);
