package authz

import (
	"context"
	"fmt"
	"testing"

	"better/compute/internal/postgres/pgtest"
)

// BenchmarkCheck shows that a decision costs the same with ten tenants or 100,000, of five bindings each:
//
//	go test -run - -bench Check ./authz
//
// "hit" decides for the same callers again and again, "miss" for one that is not in the cache.
func BenchmarkCheck(b *testing.B) {
	for _, tenants := range []int{10, 100_000} {
		db := pgtest.New(b)
		_, err := db.ExecContext(b.Context(), `INSERT INTO role_bindings (subject, role, object, effect)
			SELECT 'user:' || t || '-' || u, 'provider-viewer', 'compute-tenant/' || t, 'allow'
			FROM generate_series(1, ?) t, generate_series(1, 5) u`, tenants)
		if err != nil {
			b.Fatal(err)
		}
		d := follow(b, newDecider(b, db))
		b.Run(fmt.Sprintf("tenants=%d/hit", tenants), func(b *testing.B) {
			ctx := as(context.Background(), "user:7-3", "group:everybody")
			object := ProviderAccount("7", account1)
			for b.Loop() {
				if err := d.Check(ctx, ProvidersRead, object); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("tenants=%d/miss", tenants), func(b *testing.B) {
			n := 0
			for b.Loop() {
				n++
				tenant := fmt.Sprint(n%tenants + 1)
				d.cache.drop("user:" + tenant + "-1")
				if err := d.Check(as(context.Background(), "user:"+tenant+"-1"), ProvidersRead, Tenant(tenant)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
