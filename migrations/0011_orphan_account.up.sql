-- What an account was at its provider when it showed a machine without an owner: as another project it can say nothing about the machine.
-- Empty for one that the version before wrote down.
ALTER TABLE orphans ADD COLUMN account_stamp text NOT NULL DEFAULT '';
