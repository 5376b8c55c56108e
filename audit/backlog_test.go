package audit

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
)

// TestABacklogIsChainedInBoundedMemory chains and verifies as many rows as AUDIT_ROWS says, a few thousand by default.
func TestABacklogIsChainedInBoundedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes many rows")
	}
	rows := 20_000
	if n, err := strconv.Atoi(os.Getenv("AUDIT_ROWS")); err == nil {
		rows = n
	}
	db := pgtest.New(t)
	fill(t, db, rows)
	const most = 64 << 20
	peak, ended := watchHeap()
	begun := time.Now()
	s := newSealer(db)
	waitUntil(t, "every row is chained", func() bool {
		n := batch
		for n == batch {
			var err error
			if n, err = s.sealBatch(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return unsealed(t, db) == 0
	})
	sealed := time.Since(begun)
	begun = time.Now()
	found, sum := findings(t, db, VerifyInput{})
	verified := time.Since(begun)
	ended()
	verdict := "PASS"
	if len(found) > 0 || sum.Rows != rows || peak.Load() > most {
		verdict = "FAIL"
		t.Errorf("%+v, at most %d bytes of heap: %v", sum, peak.Load(), found)
	}
	t.Logf("audit-backlog rows=%d tenants=%d sealed=%.0f/s verified=%.0f/s verify=%s heap=%dMiB %s", rows, sum.Tenants,
		float64(rows)/sealed.Seconds(), float64(rows)/verified.Seconds(), verified.Round(time.Millisecond), peak.Load()>>20, verdict)
}

// fill writes rows as the version before did: without a word about transactions.
func fill(t *testing.T, db *postgres.DB, rows int) {
	t.Helper()
	for from := 0; from < rows; from += 10_000 {
		_, err := db.NewRaw(`INSERT INTO audit_log (tenant_id, actor, action, object, outcome, request_id, details)
			SELECT 'tenant-' || n % 1000, 'user:' || n % 50, 'createPool', 'compute-pool/pool_' || n, 'allowed', md5(n::text),
				jsonb_build_object('name', 'n' || n, 'class', 'vps-host') FROM generate_series(?::int, ?::int) AS n`,
			from, min(from+10_000, rows)-1).Exec(t.Context())
		if err != nil {
			t.Fatal(err)
		}
	}
}

// watchHeap looks for the highest use of memory until it is ended.
func watchHeap() (peak *atomic.Uint64, end func()) {
	peak = new(atomic.Uint64)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapAlloc))
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return peak, func() { cancel(); <-done }
}
