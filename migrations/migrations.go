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
