DELETE FROM machine_reservations WHERE bootstrap_id IS NULL;
ALTER TABLE machine_reservations
    DROP CONSTRAINT machine_reservations_has_owner,
    DROP COLUMN orphan_id,
    ALTER COLUMN bootstrap_id SET NOT NULL;
DROP TABLE orphans;
DROP INDEX bootstraps_joined_idx;
DROP INDEX bootstraps_orders_idx;
ALTER TABLE bootstraps DROP COLUMN retry_of;
ALTER TABLE provider_accounts
    DROP COLUMN swept_at,
    DROP COLUMN refused_at,
    DROP COLUMN refused_stamp,
    DROP COLUMN last_check;
