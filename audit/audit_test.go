package audit

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"better/compute/authz"
	"better/compute/internal/leaktest"
	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { leaktest.Main(m, pgtest.IgnoreServer()) }

type row struct {
	TenantID, Actor, Action, Object, Outcome, RequestID string
	Details                                             json.RawMessage
}

func rows(t *testing.T, db *postgres.DB) []row {
	t.Helper()
	var all []row
	err := db.NewRaw("SELECT tenant_id, actor, action, object, outcome, request_id, details FROM audit_log ORDER BY id").Scan(t.Context(), &all)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestRecordTakesCallerAndRequestFromTheContext(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := authz.WithRequestID(authz.WithActor(t.Context(), authz.Actor{Subject: "user:it's \\ ?"}), "req-1")
	entry := Entry{
		TenantID: "t", Action: "createPool", Object: "compute-pool/x", Outcome: Allowed,
		Details: map[string]any{"name": `a "quoted" ? 'name' \u00e9`, "n": 1},
	}
	if err := Record(ctx, db.DB, entry); err != nil {
		t.Fatal(err)
	}
	if err := Record(t.Context(), db.DB, Entry{Action: "release", Object: "compute-fleet", Outcome: Replayed}); err != nil {
		t.Fatal(err)
	}
	want := []row{
		{
			"t", "user:it's \\ ?", "createPool", "compute-pool/x", "allowed", "req-1",
			json.RawMessage(`{"n": 1, "name": "a \"quoted\" ? 'name' \\u00e9"}`),
		},
		{"", "system", "release", "compute-fleet", "replayed", "", json.RawMessage(`{}`)},
	}
	if diff := cmp.Diff(want, rows(t, db)); diff != "" {
		t.Error(diff)
	}
}

func TestRecordStandsOrFallsWithItsTransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	undo := errors.New("undo")
	for _, end := range []error{undo, nil} {
		err := db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			if err := Record(ctx, tx, Entry{Action: "a", Object: "o", Outcome: Denied}); err != nil {
				return err
			}
			return end
		})
		if !errors.Is(err, end) {
			t.Fatal(err)
		}
	}
	if got := rows(t, db); len(got) != 1 {
		t.Errorf("%d rows, want that of the transaction that was committed", len(got))
	}
}

func TestRecordRefusesWhatCannotBeStored(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for name, e := range map[string]Entry{
		"details that are no JSON": {Outcome: Allowed, Details: map[string]any{"f": func() {}}},
		"no outcome":               {},
		"an unknown outcome":       {Outcome: "maybe"},
	} {
		if err := Record(t.Context(), db.DB, e); err == nil {
			t.Errorf("%s was stored", name)
		}
	}
}
