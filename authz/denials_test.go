package authz

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"better/compute/internal/problem"
)

func TestDenialsOfACallerAreLimited(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:eve", "provider-viewer", "compute-tenant/hers"))
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	b.d.now = func() time.Time { return noon }
	b.d.Denials = DenialLimits{PerSecond: 2, AtMost: 3}
	eve, other := as(t.Context(), "user:eve"), as(t.Context(), "user:other")
	denied := func(tenant string) error { return b.d.Check(eve, ProvidersRead, Tenant(tenant)) }
	for i := range 3 {
		wantCode(t, denied(fmt.Sprint("t", i)), problem.Forbidden)
	}
	err := denied("t3")
	wantCode(t, err, problem.RateLimited)
	if got := problem.From(err).Details["retryAfterSeconds"]; got != 1 {
		t.Errorf("retryAfterSeconds is %v, want 1", got)
	}
	_, err = b.d.Filter(eve, ProvidersRead, "t4", ProviderAccounts)
	wantCode(t, err, problem.RateLimited)
	if rows := b.auditRows(t); len(rows) != 3 {
		t.Errorf("%d rows for 3 denials that were told", len(rows))
	}
	if err := b.d.Check(eve, ProvidersRead, Tenant("hers")); err != nil {
		t.Errorf("what the caller may do: %v", err)
	}
	wantCode(t, b.d.Check(other, ProvidersRead, Tenant("t")), problem.Forbidden)

	noon = noon.Add(500 * time.Millisecond)
	wantCode(t, denied("t5"), problem.Forbidden)
	wantCode(t, denied("t6"), problem.RateLimited)
}

// A tenant's administrators make services at will, and each must not bring denials of its own.
func TestServicesOfATenantShareTheirDenials(t *testing.T) {
	t.Parallel()
	var d denials
	l := DenialLimits{PerSecond: 1, AtMost: 2}
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	take := func(caller Subject) error { return d.take(l, caller, noon) }
	for _, caller := range []Subject{"service:evil/1", "service:evil/2", "service:other/1", "service:1", "user:evil/1", "user:evil"} {
		if err := take(caller); err != nil {
			t.Errorf("%s: %v", caller, err)
		}
	}
	err := take("service:evil/3")
	wantCode(t, err, problem.RateLimited)
	if got := problem.From(err).Details["limit"]; got != "tenant" {
		t.Errorf("the limit is of the %v", got)
	}
}

func TestDenialsForgetCallersThatHaveThemBack(t *testing.T) {
	t.Parallel()
	var d denials
	l := DenialLimits{PerSecond: 1, AtMost: 2}
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for i := range 3 * sweepDenialsAt {
		if err := d.take(l, fmt.Sprint("user:", i), noon.Add(time.Duration(i)*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	if len(d.left) > sweepDenialsAt {
		t.Errorf("%d callers are remembered", len(d.left))
	}
}

func TestDenialNamesTheAPIToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.addToken(t, "tok_1", "NULL")
	wantCode(t, b.d.Check(withToken(t.Context(), "service:s", "tok_1"), ProvidersRead, Fleet()), problem.Forbidden)
	wantCode(t, b.d.Check(as(t.Context(), "user:eve"), ProvidersRead, Fleet()), problem.Forbidden)
	var details []string
	if err := b.db.NewRaw("SELECT details::text FROM audit_log ORDER BY id").Scan(t.Context(), &details); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`{"apiToken": "tok_1"}`, `{}`}, details); diff != "" {
		t.Error(diff)
	}
}
