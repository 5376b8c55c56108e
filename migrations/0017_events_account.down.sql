DROP INDEX events_account_idx;
