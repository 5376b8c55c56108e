ALTER TABLE orphans DROP COLUMN account_stamp;
