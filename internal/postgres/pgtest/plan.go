package pgtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
)

// Plan is how the database runs a prepared statement once it plans it for whatever arguments may come, under the scope of ctx. It needs ANALYZE
// before it to say anything.
func Plan(ctx context.Context, t testing.TB, db *postgres.DB, query string, args ...any) string {
	t.Helper()
	unknown := strings.TrimSuffix(strings.Repeat("NULL, ", len(args)), ", ")
	var plan []string
	err := db.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		for _, statement := range []string{"SET LOCAL plan_cache_mode = force_generic_plan", "PREPARE planned AS " + query} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		if err := tx.NewRaw(fmt.Sprintf("EXPLAIN EXECUTE planned (%s)", unknown)).Scan(ctx, &plan); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "DEALLOCATE planned")
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return strings.Join(plan, "\n")
}
