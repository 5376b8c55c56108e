-- What operators look for: runs by what they wait for, over all tenants too, and what became of a person's word about an orphan.
ALTER TABLE orphans ADD COLUMN release_dropped_at timestamptz;

CREATE INDEX orphans_seen_idx ON orphans (first_seen_at DESC, id DESC);
CREATE INDEX bootstraps_created_idx ON bootstraps (created_at DESC, id DESC);
-- Few runs wait, or have something to clean up, at a time.
CREATE INDEX bootstraps_waiting_idx ON bootstraps (wait_reason, tenant_id) WHERE wait_reason IS NOT NULL;
CREATE INDEX bootstraps_cleanup_idx ON bootstraps (cleanup, tenant_id) WHERE cleanup IN ('pending', 'releasing', 'blocked');
