package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/uptrace/bun"

	"better/compute/internal/postgres/pgtest"
)

// tampering is a change by somebody who may do anything to the database, but not to the heads that were kept outside. Its parts run in
// a transaction; ?0 and ?1 are the numbers of two rows of one tenant, the first before the second.
type tampering map[string][]string

// edits changes one column at a time.
func edits() map[string]string {
	return map[string]string{
		"at":         "at = at + interval '1 microsecond'",
		"at forever": "at = 'infinity'",
		"xid":        "xid = (xid::text::numeric + 1)::text::xid8",
		"tenant":     "tenant_id = tenant_id || 'x'",
		"no tenant":  "tenant_id = CASE tenant_id WHEN '' THEN 'a' ELSE '' END",
		"actor":      "actor = 'user:' || actor",
		"action":     "action = 'deletePool'",
		"object":     "object = object || '0'",
		"outcome":    "outcome = CASE outcome WHEN 'allowed' THEN 'denied' ELSE 'allowed' END",
		"request":    "request_id = ''",
		"details":    `details = details || '{"n": -1}'`,
		"a digit":    `details = details || '{"n": 1.0}'`,
		"no details": "details = '{}'",
		"a shift":    "actor = actor || left(action, 1), action = substr(action, 2)",
	}
}

func tamperings() tampering {
	all := tampering{
		"a row is deleted":                {"DELETE FROM audit_log WHERE id = ?0"},
		"many rows are deleted":           {"DELETE FROM audit_log WHERE id >= ?0"},
		"a row and its entry are deleted": {"DELETE FROM audit_log WHERE id = ?0", "DELETE FROM audit_chain WHERE audit_id = ?0"},
		"an entry is deleted":             {"DELETE FROM audit_chain WHERE audit_id = ?0"},
		"a row gets another number":       {"UPDATE audit_log SET id = DEFAULT WHERE id = ?0"},
		"a row and entry get a new number": {
			`WITH moved AS (UPDATE audit_log SET id = DEFAULT WHERE id = ?0 RETURNING id)
				UPDATE audit_chain SET audit_id = (SELECT id FROM moved) WHERE audit_id = ?0`,
		},
		"an entry's hash is changed":        {"UPDATE audit_chain SET hash = sha256(hash) WHERE audit_id = ?0"},
		"an entry's transaction is changed": {"UPDATE audit_chain SET xid = (xid::text::numeric + 1)::text::xid8 WHERE audit_id = ?0"},
		"an entry is another tenant's":      {"UPDATE audit_chain SET tenant_id = tenant_id || 'x' WHERE audit_id = ?0"},
		"an entry is moved to the end":      {"UPDATE audit_chain SET seq = seq + 1000000 WHERE audit_id = ?0"},
		"two entries change rows": {
			"UPDATE audit_chain SET audit_id = -audit_id WHERE audit_id IN (?0, ?1)",
			"UPDATE audit_chain SET audit_id = CASE audit_id WHEN -?0 THEN ?1 ELSE ?0 END WHERE audit_id IN (-?0, -?1)",
		},
		"two entries change places": {
			"CREATE TEMPORARY TABLE taken ON COMMIT DROP AS SELECT * FROM audit_chain WHERE audit_id IN (?0, ?1)",
			"DELETE FROM audit_chain WHERE audit_id IN (?0, ?1)",
			`INSERT INTO audit_chain SELECT a.tenant_id, b.seq, a.audit_id, a.xid, a.hash FROM taken a, taken b WHERE a.audit_id <> b.audit_id`,
		},
		"two rows change their content": {
			`UPDATE audit_log AS a SET at = b.at, xid = b.xid, actor = b.actor, action = b.action, object = b.object, outcome = b.outcome,
				request_id = b.request_id, details = b.details FROM audit_log AS b WHERE (a.id, b.id) IN ((?0, ?1), (?1, ?0))`,
		},
		"a row is slipped in where the chains were already": {
			`INSERT INTO audit_log (id, at, tenant_id, actor, action, object, outcome, xid) OVERRIDING SYSTEM VALUE
				SELECT -id, at, tenant_id, actor, action, object, outcome, xid FROM audit_log WHERE id = ?0`,
		},
		"a row is slipped in that no chain will reach": {
			`INSERT INTO audit_log (tenant_id, actor, action, object, outcome, xid)
				SELECT tenant_id, actor, action, object, outcome, '1000000000000' FROM audit_log WHERE id = ?0`,
		},
		"a row of an hour ago is slipped in": {slipIn("interval '-1 hour'"), seal},
		"a row of tomorrow is slipped in, and an honest one follows": {
			slipIn("interval '1 day'"), slipIn("interval '1 second'"), seal,
		},
		"the end is cut off": {
			`DELETE FROM audit_log WHERE id IN (SELECT c.audit_id FROM audit_chain c JOIN audit_chain o USING (tenant_id) WHERE o.audit_id = ?0 AND c.seq >= o.seq)`,
			"DELETE FROM audit_chain AS c USING audit_chain AS o WHERE o.audit_id = ?0 AND c.tenant_id = o.tenant_id AND c.seq >= o.seq",
		},
		"a tenant's chain is deleted with its rows": {
			"DELETE FROM audit_log WHERE tenant_id = (SELECT tenant_id FROM audit_chain WHERE audit_id = ?0)",
			"DELETE FROM audit_chain WHERE tenant_id = (SELECT tenant_id FROM audit_chain WHERE audit_id = ?0)",
		},
		"all is deleted": {"DELETE FROM audit_log", "DELETE FROM audit_chain"},
	}
	for column, set := range edits() {
		all["edited: "+column] = []string{"UPDATE audit_log SET " + set + " WHERE id = ?0"}
		all["edited and chained anew: "+column] = []string{"UPDATE audit_log SET " + set + " WHERE id = ?0", rechain}
	}
	return all
}

// slipIn adds a row that says that it was written that long after another one; the servers will chain it.
func slipIn(later string) string {
	return `INSERT INTO audit_log (at, tenant_id, actor, action, object, outcome)
		SELECT at + ` + later + `, tenant_id, 'user:forged', action, object, outcome FROM audit_log WHERE id = ?0`
}

// seal stands for the servers' next turn at the chains, once the forger has committed.
const seal = "seal"

// rechain stands for a forger who knows how the chain is made, and makes it anew after the forgery.
const rechain = "rechain"

// TestTamperingIsDetected changes the log behind its back a thousand times, each time from the same honest state.
func TestTamperingIsDetected(t *testing.T) {
	t.Parallel()
	const times = 1000
	db := pgtest.New(t)
	write(t, db, 25, "", "a", "b", "c")
	sealAll(t, db)
	heads := keptHeads(t, db)
	write(t, db, 2, "a") // not chained yet, so that this is not what gives anything away
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	all := tamperings()
	names := slices.Sorted(maps.Keys(all))
	detected := 0
	for i := range times {
		name := names[i%len(names)]
		first := rnd.IntN(96)
		ids := []int{first + 1, first + 1 + 4*(1+rnd.IntN((99-first)/4))} // rows of one tenant are four apart
		undone := errors.New("undone")
		err := db.RunInTx(t.Context(), func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.ExecContext(ctx, "SET LOCAL ROLE NONE"); err != nil {
				return err
			}
			for _, part := range all[name] {
				if err := apply(ctx, tx, part, ids); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			found := 0
			v := verifier{in: VerifyInput{Heads: heads}, found: func(Finding) error { found++; return nil }}
			if err := v.run(ctx, tx); err != nil {
				return fmt.Errorf("verifying after %s: %w", name, err)
			}
			if found == 0 {
				t.Errorf("%s, rows %v: not detected (seed %d)", name, ids, seed)
			} else {
				detected++
			}
			return undone
		})
		if !errors.Is(err, undone) {
			t.Fatal(err)
		}
	}
	if found, sum := findings(t, db, VerifyInput{Heads: heads}); len(found) > 0 || sum.Rows != 100 {
		t.Errorf("the honest log: %+v %v", sum, found)
	}
	verdict := "PASS"
	if detected != times {
		verdict = "FAIL"
	}
	t.Logf("audit-tampering detected=%d of=%d kinds=%d false=0 %s seed=%d", detected, times, len(names), verdict, seed)
}

func apply(ctx context.Context, tx bun.Tx, part string, ids []int) error {
	var links []*link
	switch part {
	case rechain:
	case seal:
		if err := tx.NewRaw(`SELECT l.tenant_id AS chain_tenant, l.id AS audit_id, l.xid::text AS chain_xid, `+rowColumns+`
			FROM audit_log AS l WHERE NOT EXISTS (SELECT FROM audit_chain AS c WHERE c.audit_id = l.id) ORDER BY l.xid, l.id`).Scan(ctx, &links); err != nil {
			return err
		}
		if err := chain(ctx, tx, links); err != nil {
			return err
		}
		return insertLinks(ctx, tx, links)
	default:
		_, err := tx.NewRaw(part, ids[0], ids[1]).Exec(ctx)
		return err
	}
	if err := tx.NewRaw(`SELECT l.tenant_id AS chain_tenant, l.id AS audit_id, l.xid::text AS chain_xid, `+rowColumns+`
		FROM audit_log AS l JOIN audit_chain AS c ON c.audit_id = l.id ORDER BY l.xid, l.id`).Scan(ctx, &links); err != nil {
		return err
	}
	if _, err := tx.NewRaw("DELETE FROM audit_chain").Exec(ctx); err != nil {
		return err
	}
	if err := chain(ctx, tx, links); err != nil {
		return err
	}
	return insertLinks(ctx, tx, links)
}
