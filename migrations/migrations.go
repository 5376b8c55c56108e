// Package migrations owns the SQL of the database schema, as numbered pairs of files.
//
// It refuses to know how or when they run. The invariant: the code of one version before a migration still runs
// after it, so a rolling deploy may run them first.
package migrations

import "embed"

// FS holds NNNN_name.up.sql and NNNN_name.down.sql.
//
//go:embed *.sql
var FS embed.FS

// Loses says what is lost for good with a migration that is taken back; empty for one that is not known.
func Loses(name string) string { return losses[name] }

var losses = map[string]string{
	"0001_core":                 "everything: accounts, pools, runs, hosts, certificates, secrets, events",
	"0002_authorization":        "all role bindings and the whole audit log",
	"0003_policy_notifications": "nothing; replicas see changed bindings later",
	"0004_hosts_account":        "nothing; the hosts of an account are found more slowly",
	"0005_roles":                "all roles beside the built-in ones; bindings to them stay and give nothing",
	"0006_api_tokens":           "all API tokens: every program that comes with one is shut out",
	"0007_audit_chain":          "the chains of the audit log: what happened to it until now can be verified no more",
	"0008_keys":                 "the key of cursors: lists that are being read have to be read anew",
	"0009_row_security":         "the wall between tenants in the database",
	"0010_operations":           "all orphans, what was found by checks of accounts, and which run a run retries",
	"0011_orphan_account":       "nothing; an orphan of an account that became another project counts as gone",
	"0012_machine_identity":     "nothing; runs through accounts that know one machine by different names do not see each other",
	"0013_operators":            "which releases of machines without an owner were given up",
	"0014_audit_wall":           "nothing; rows about what was done are no longer held to the tenants that a caller sees",
	"0015_without_serial":       "nothing; runs through accounts that know one machine without a serial number by different names do not see each other",
	"0016_policy_tenants":       "nothing; a change of bindings makes every stream of its subjects look again",
	"0017_events_account":       "nothing; resuming on a quiet account of a busy tenant reads the events of the others",
}
