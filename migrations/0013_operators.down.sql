DROP INDEX bootstraps_cleanup_idx, bootstraps_waiting_idx, bootstraps_created_idx, orphans_seen_idx;
ALTER TABLE orphans DROP COLUMN release_dropped_at;
