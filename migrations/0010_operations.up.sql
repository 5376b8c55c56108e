-- What an operator needs around bootstraps: checks of accounts, retries, orphans and the cap on orders.

ALTER TABLE provider_accounts
    -- How the last check by hand ended. An update clears it.
    ADD COLUMN last_check jsonb,
    -- The breaker: what the account was at its provider when that refused its credentials. While it still is, no call goes out.
    ADD COLUMN refused_stamp text,
    ADD COLUMN refused_at timestamptz,
    -- When the account's machines were last compared with ours.
    ADD COLUMN swept_at timestamptz NOT NULL DEFAULT now();
CREATE INDEX provider_accounts_swept_idx ON provider_accounts (swept_at);
CREATE INDEX provider_accounts_refused_idx ON provider_accounts (refused_at) WHERE refused_at IS NOT NULL;

ALTER TABLE bootstraps ADD COLUMN retry_of text COLLATE "C";
-- The cap counts a tenant's orders of an hour. A retry takes over an order that was counted with the run that sent it.
CREATE INDEX bootstraps_orders_idx ON bootstraps (tenant_id, order_attempt_at) WHERE order_attempt_at IS NOT NULL AND retry_of IS NULL;
-- How long the last ones took.
CREATE INDEX bootstraps_joined_idx ON bootstraps (account_id, joined_at DESC) WHERE joined_at IS NOT NULL;

-- Machines without an owner on one of the two sides.
CREATE TABLE orphans (
    id            text COLLATE "C" PRIMARY KEY,
    tenant_id     text COLLATE "C" NOT NULL,
    account_id    text COLLATE "C" NOT NULL REFERENCES provider_accounts (id) ON DELETE CASCADE,
    kind          text        NOT NULL CHECK (kind IN ('not-ours', 'not-there')),
    machine_id    text COLLATE "C" NOT NULL,
    operation_id  text COLLATE "C",
    bootstrap_id  text COLLATE "C",
    host_id       text COLLATE "C",
    price         jsonb,
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    last_seen_at  timestamptz NOT NULL DEFAULT now(),
    resolved_at   timestamptz,
    -- A person's word that the machine is to be given back, and how far that is.
    release_asked_at timestamptz,
    release_asked_by text     NOT NULL DEFAULT '',
    release_at       timestamptz,
    release_attempt  integer  NOT NULL DEFAULT 0,
    release_error    text     NOT NULL DEFAULT ''
);
-- One open row for each machine.
CREATE UNIQUE INDEX orphans_open_key ON orphans (account_id, kind, machine_id) WHERE resolved_at IS NULL;
CREATE INDEX orphans_tenant_idx ON orphans (tenant_id, first_seen_at DESC, id DESC);
CREATE INDEX orphans_account_idx ON orphans (tenant_id, account_id, first_seen_at DESC, id DESC);
CREATE INDEX orphans_release_idx ON orphans (release_at) WHERE release_at IS NOT NULL;

-- While an orphan is given back nobody can take its machine, so its reservation is the orphan's.
ALTER TABLE machine_reservations
    ALTER COLUMN bootstrap_id DROP NOT NULL,
    ADD COLUMN orphan_id text COLLATE "C" REFERENCES orphans (id) ON DELETE CASCADE,
    ADD CONSTRAINT machine_reservations_has_owner CHECK (bootstrap_id IS NOT NULL OR orphan_id IS NOT NULL);
CREATE INDEX machine_reservations_orphan_idx ON machine_reservations (orphan_id) WHERE orphan_id IS NOT NULL;

GRANT SELECT, INSERT, UPDATE, DELETE ON orphans TO compute_app;
ALTER TABLE orphans ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
DO $$ BEGIN
    EXECUTE format('CREATE POLICY owner ON orphans TO %I USING (true)', current_user);
END $$;
CREATE POLICY tenants ON orphans TO compute_app USING (
    (SELECT current_setting('app.tenants', true) = '*')
    OR tenant_id = ANY ((SELECT nullif(nullif(current_setting('app.tenants', true), '*'), '')::text[])::text[]));
