package authz

import (
	"testing"

	"better/compute/audit/journal"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
	"better/compute/model"
)

func TestHoldingAtOnceNeedsAYesOfTheVeryVersion(t *testing.T) {
	t.Parallel()
	b := setup(t, viewer, deny("user:other", "provider-viewer", "compute-tenant/t"))
	alone := newDecider(t, b.db)
	replica := follow(t, newDecider(t, b.db))
	warm(t, replica, "user:v", true)
	warm(t, replica, "user:other", false)
	count := pgtest.CountQueries(b.db)
	note := func(more ...string) func(*postgres.Batch) error {
		return func(b *postgres.Batch) error {
			for _, statement := range more {
				b.Queue(statement)
			}
			return journal.Queue(b, journal.Caller{Actor: "user:v"}, journal.Entry{TenantID: "t", Action: t.Name(), Outcome: journal.Allowed})
		}
	}
	const change = "DELETE FROM role_bindings WHERE subject = 'user:other'"
	for _, c := range []struct {
		name    string
		d       *Decider
		subject Subject
		fill    func(*postgres.Batch) error
		want    bool
	}{
		{"without memory", alone, "user:v", note(), false},
		{"who holds it", replica, "user:v", note(), true},
		{"who does not", replica, "user:other", note(), false},
		{"a change of the policy before its end", replica, "user:v", note(change), false},
	} {
		noted := func() int64 {
			t.Helper()
			n, err := b.db.NewSelect().Table("audit_log").Where("action = ?", t.Name()).Count(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		before := noted()
		var done bool
		eventually(t, c.name, func() bool { // the proof of what is in memory may be late under load
			statements := count()
			var err error
			done, err = c.d.HoldingAtOnce(as(t.Context(), c.subject), Need(model.ProvidersRead, Tenant("t")), c.fill)
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if c.d == alone && count() != statements {
				t.Errorf("%s: statements were sent in vain", c.name)
			}
			return done == c.want
		})
		if after := noted(); (after == before+1) != c.want {
			t.Errorf("%s: done is %v, with %d rows before and %d after", c.name, done, before, after)
		}
	}
	if got, err := b.db.NewSelect().Table("role_bindings").Where("subject = 'user:other'").Count(t.Context()); err != nil || got != 1 {
		t.Errorf("what was not done left %d bindings: %v", got, err)
	}
}
