-- Identifiers are text with byte order, so that a page by name sorts the same in Go and in SQL.

CREATE TABLE provider_accounts (
    id          text COLLATE "C" PRIMARY KEY,
    tenant_id   text COLLATE "C" NOT NULL,
    provider    text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    config      jsonb       NOT NULL DEFAULT '{}',
    version     bigint      NOT NULL DEFAULT 1,
    created_by  text        NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT provider_accounts_tenant_name_key UNIQUE (tenant_id, name)
);
-- A filter by provider pages by name too.
CREATE INDEX provider_accounts_tenant_provider_idx ON provider_accounts (tenant_id, provider, name);

CREATE TABLE pools (
    id          text COLLATE "C" PRIMARY KEY,
    tenant_id   text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    class       text        NOT NULL CHECK (class IN ('vps-host', 'metal-host', 'vps', 'metal', 'container')),
    agent       text        NOT NULL CHECK (agent IN ('bcd', 'none')),
    -- Archiving drops the reference, so that an archived pool never holds an account back.
    account_id  text COLLATE "C" REFERENCES provider_accounts (id) ON DELETE RESTRICT,
    archived_at timestamptz,
    created_at  timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pools_archived_drops_account CHECK (archived_at IS NULL OR account_id IS NULL)
);
CREATE UNIQUE INDEX pools_tenant_name_key ON pools (tenant_id, name) WHERE archived_at IS NULL;
CREATE INDEX pools_tenant_name_id_idx ON pools (tenant_id, name, id);
CREATE INDEX pools_account_idx ON pools (account_id) WHERE account_id IS NOT NULL;

CREATE TABLE instances (
    id          text COLLATE "C" PRIMARY KEY,
    tenant_id   text COLLATE "C" NOT NULL,
    pool_id     text COLLATE "C" NOT NULL REFERENCES pools (id) ON DELETE RESTRICT,
    account_id  text COLLATE "C" REFERENCES provider_accounts (id) ON DELETE RESTRICT,
    name        text COLLATE "C" NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    deleted_at  timestamptz,
    CONSTRAINT instances_deleted_drops_account CHECK (deleted_at IS NULL OR account_id IS NULL)
);
CREATE INDEX instances_account_idx ON instances (account_id) WHERE account_id IS NOT NULL;
CREATE INDEX instances_pool_idx ON instances (pool_id);

CREATE TABLE bootstraps (
    id               text COLLATE "C" PRIMARY KEY,
    tenant_id        text COLLATE "C" NOT NULL,
    account_id       text COLLATE "C" NOT NULL,
    pool_id          text COLLATE "C" NOT NULL REFERENCES pools (id) ON DELETE RESTRICT,
    created_by       text        NOT NULL,
    -- Exactly one of these was named by the caller; machine_id is filled in later for a run that names an offer.
    offer_id         text COLLATE "C",
    machine_id       text COLLATE "C",
    status           text        NOT NULL CHECK (status IN
                     ('claiming', 'identifying', 'preparing', 'installing', 'installed', 'joined', 'failed')),
    step             text        NOT NULL DEFAULT '',
    wait_reason      text,
    failure          jsonb,
    cleanup          text        NOT NULL DEFAULT 'none' CHECK (cleanup IN
                     ('none', 'pending', 'releasing', 'released', 'kept', 'blocked')),
    attempt          integer     NOT NULL DEFAULT 0,
    host_id          text COLLATE "C",
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    state_since      timestamptz NOT NULL DEFAULT now(),
    deadline_at      timestamptz,
    joined_at        timestamptz,
    cancel_requested_at timestamptz,

    -- The order protocol: what was meant to be ordered, written before the provider hears of it.
    operation_id     text COLLATE "C" NOT NULL UNIQUE,
    order_intent     jsonb,
    order_intent_at  timestamptz,
    -- Written just before the call that costs money: from here on the order may have been sent.
    order_attempt_at timestamptz,
    order_ref        text,
    claim_resolution text        CHECK (claim_resolution IN ('machine', 'nothing-ordered')),

    -- What was learnt of the machine: identity, boot, architecture. Never a secret.
    machine          jsonb,
    boot_id          text,

    -- The join token of the present install generation. Only its hash is ever stored.
    generation       integer     NOT NULL DEFAULT 0,
    token_hash       bytea       UNIQUE,
    token_expires_at timestamptz,
    token_used_at    timestamptz,
    token_key_hash   bytea,
    delivered_at     timestamptz,
    install_ref      text,

    -- The lease: database time only. Every write of the reconciler names the epoch it holds.
    lease_holder     text,
    lease_epoch      bigint      NOT NULL DEFAULT 0,
    lease_until      timestamptz,
    next_at          timestamptz NOT NULL DEFAULT now(),
    job_id           bigint,
    -- What the provider said last, for the failure message of a deadline.
    last_error       text        NOT NULL DEFAULT '',

    CONSTRAINT bootstraps_names_a_machine CHECK (offer_id IS NOT NULL OR machine_id IS NOT NULL),
    CONSTRAINT bootstraps_joined_has_host CHECK (status <> 'joined' OR (host_id IS NOT NULL AND joined_at IS NOT NULL)),
    CONSTRAINT bootstraps_failed_has_failure CHECK (status <> 'failed' OR failure IS NOT NULL),
    -- The account that the run still needs: gone from here once it is final and has nothing left to clean up.
    live_account_id  text COLLATE "C" GENERATED ALWAYS AS (
        CASE WHEN status = 'joined' OR (status = 'failed' AND cleanup IN ('none', 'released', 'kept'))
             THEN NULL ELSE account_id END
    ) STORED REFERENCES provider_accounts (id) ON DELETE RESTRICT
);
-- Ids derive from idempotency keys, so they do not sort by time.
CREATE INDEX bootstraps_tenant_idx ON bootstraps (tenant_id, created_at DESC, id DESC);
CREATE INDEX bootstraps_account_idx ON bootstraps (tenant_id, account_id, created_at DESC, id DESC);
CREATE INDEX bootstraps_pool_idx ON bootstraps (tenant_id, pool_id, created_at DESC, id DESC);
CREATE INDEX bootstraps_live_account_idx ON bootstraps (live_account_id) WHERE live_account_id IS NOT NULL;
CREATE INDEX bootstraps_due_idx ON bootstraps (next_at) WHERE live_account_id IS NOT NULL;

CREATE TABLE bootstrap_transitions (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bootstrap_id text COLLATE "C" NOT NULL REFERENCES bootstraps (id) ON DELETE CASCADE,
    from_status  text,
    to_status    text        NOT NULL,
    at           timestamptz NOT NULL DEFAULT now(),
    reason       text
);
CREATE INDEX bootstrap_transitions_bootstrap_idx ON bootstrap_transitions (bootstrap_id, id);
-- A run enters each state at most once, so a transition that is written twice is refused by the database.
CREATE UNIQUE INDEX bootstrap_transitions_once ON bootstrap_transitions (bootstrap_id, to_status);

CREATE TABLE hosts (
    id           text COLLATE "C" PRIMARY KEY,
    tenant_id    text COLLATE "C" NOT NULL,
    pool_id      text COLLATE "C" NOT NULL REFERENCES pools (id) ON DELETE RESTRICT,
    bootstrap_id text COLLATE "C" NOT NULL UNIQUE REFERENCES bootstraps (id) ON DELETE RESTRICT,
    account_id   text COLLATE "C" NOT NULL,
    machine_id   text COLLATE "C" NOT NULL,
    facts        jsonb       NOT NULL DEFAULT '{}',
    joined_at    timestamptz NOT NULL DEFAULT now(),
    last_seen_at timestamptz NOT NULL DEFAULT now(),
    agent_version text       NOT NULL DEFAULT '',
    removed_at   timestamptz
);
CREATE INDEX hosts_tenant_idx ON hosts (tenant_id, id DESC);
CREATE INDEX hosts_pool_idx ON hosts (tenant_id, pool_id, id DESC);

-- Every certificate ever signed, written in the transaction that decides to sign it.
CREATE TABLE host_certificates (
    serial      text COLLATE "C" PRIMARY KEY,
    host_id     text COLLATE "C" NOT NULL REFERENCES hosts (id) ON DELETE RESTRICT,
    tenant_id   text COLLATE "C" NOT NULL,
    key_hash    bytea       NOT NULL,
    certificate bytea       NOT NULL,
    issued_at   timestamptz NOT NULL DEFAULT now(),
    not_after   timestamptz NOT NULL
);
CREATE INDEX host_certificates_host_idx ON host_certificates (host_id, issued_at DESC);
CREATE INDEX host_certificates_key_idx ON host_certificates (key_hash);

-- One row for each machine in the world that a live run or a host holds, whichever account or tenant it came through.
CREATE TABLE machine_reservations (
    machine_key  text COLLATE "C" PRIMARY KEY,
    bootstrap_id text COLLATE "C" NOT NULL REFERENCES bootstraps (id) ON DELETE RESTRICT,
    host_id      text COLLATE "C" REFERENCES hosts (id) ON DELETE RESTRICT,
    reserved_at  timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX machine_reservations_bootstrap_idx ON machine_reservations (bootstrap_id);
CREATE INDEX machine_reservations_host_idx ON machine_reservations (host_id) WHERE host_id IS NOT NULL;

-- Which machine of an account without an ordering API a run has taken. The operation id makes a repeat harmless.
CREATE TABLE inventory_claims (
    account_id   text COLLATE "C" NOT NULL REFERENCES provider_accounts (id) ON DELETE CASCADE,
    machine_id   text COLLATE "C" NOT NULL,
    operation_id text COLLATE "C" NOT NULL UNIQUE,
    claimed_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (account_id, machine_id)
);

-- The outbox: CloudEvents, read behind the commit horizon in the order (xid, id).
CREATE TABLE events (
    xid          xid8        NOT NULL DEFAULT pg_current_xact_id(),
    id           bigint GENERATED ALWAYS AS IDENTITY,
    tenant_id    text COLLATE "C" NOT NULL,
    type         text        NOT NULL,
    bootstrap_id text COLLATE "C" NOT NULL,
    account_id   text COLLATE "C" NOT NULL,
    data         jsonb       NOT NULL,
    at           timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (xid, id)
);
CREATE INDEX events_tenant_idx ON events (tenant_id, xid, id);
CREATE INDEX events_bootstrap_idx ON events (bootstrap_id, xid, id);
CREATE INDEX events_at_idx ON events (at);

CREATE TABLE secrets (
    tenant_id   text COLLATE "C" NOT NULL,
    name        text COLLATE "C" NOT NULL,
    key_id      text        NOT NULL,
    sealed      bytea       NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    updated_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, name)
);
