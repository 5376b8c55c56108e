package event

import "github.com/uptrace/bun"

// QueryOf is what Read sends.
func QueryOf(r Range, db bun.IDB) *bun.SelectQuery { return r.query(db) }
