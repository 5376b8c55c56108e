DROP INDEX hosts_account_idx;
