package host_test

import (
	"context"
	"crypto"
	"crypto/x509"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/authz"
	"better/compute/host"
	"better/compute/internal/id"
	"better/compute/internal/pki"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
	"better/compute/model"
)

// joined makes a host.
func (b *bundle) joined(t *testing.T) (host.Peer, crypto.Signer) {
	t.Helper()
	_, token := b.run(t)
	key := newKey(t)
	out, err := b.hosts.Join(t.Context(), joinRequest(t, token, key))
	if err != nil {
		t.Fatal(err)
	}
	return peerOf(t, b, out), key
}

func TestHeartbeat(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.joined(t)
	b.exec(t, `UPDATE hosts SET last_seen_at = now() - interval '1 hour'`)
	out, err := b.hosts.Heartbeat(t.Context(), p, host.HeartbeatRequest{AgentVersion: "1.1"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&host.HeartbeatResponse{HeartbeatSeconds: 30}, out); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if n := b.count(t, `SELECT count(*) FROM hosts WHERE last_seen_at > now() - interval '1 minute' AND agent_version = '1.1'`); n != 1 {
		t.Error("the heartbeat is not written down")
	}
	b.exec(t, `UPDATE host_certificates SET issued_at = now() - interval '17 hours', not_after = now() + interval '7 hours'`)
	if out, err = b.hosts.Heartbeat(t.Context(), p, host.HeartbeatRequest{}); err != nil || !out.Renew {
		t.Errorf("after 17 of 24 hours: %v, %v; want to be told to renew", out, err)
	}
	if _, err := b.hosts.Heartbeat(t.Context(), p, host.HeartbeatRequest{AgentVersion: "\n"}); !problem.Is(err, problem.InvalidInput) {
		t.Errorf("a version with a line break = %v", err)
	}
}

func TestRenew(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, key := b.joined(t)
	b.age(t, p.HostID)
	out, err := b.hosts.Renew(t.Context(), p, host.RenewRequest{CSR: csrFor(t, key, x509.CertificateRequest{})})
	if err != nil {
		t.Fatal(err)
	}
	leaf := leafOf(t, out.Certificate)
	next := host.Peer{TenantID: p.TenantID, HostID: p.HostID, Serial: pki.SerialText(leaf)}
	if next == p {
		t.Error("the serial is the old one")
	}
	for name, peer := range map[string]host.Peer{"old": p, "new": next} {
		if _, err := b.hosts.Heartbeat(t.Context(), peer, host.HeartbeatRequest{}); err != nil {
			t.Errorf("a heartbeat with the %s certificate: %v", name, err)
		}
	}
	if n := b.count(t, `SELECT count(*) FROM host_certificates WHERE host_id = ?`, p.HostID); n != 2 {
		t.Errorf("%d certificates are written down, want 2", n)
	}
	if _, err := b.hosts.Renew(t.Context(), p, host.RenewRequest{CSR: "x"}); !problem.Is(err, problem.InvalidInput) {
		t.Errorf("a bad request = %v", err)
	}
}

// A host that renews at every turn gets the certificate that it has.
func TestRenewBeforeItIsTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, key := b.joined(t)
	var first string
	for range 5 {
		out, err := b.hosts.Renew(t.Context(), p, host.RenewRequest{CSR: csrFor(t, key, x509.CertificateRequest{})})
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = out.Certificate
		}
		if out.Certificate != first || pki.SerialText(leafOf(t, out.Certificate)) != p.Serial {
			t.Error("an early renewal gave another certificate")
		}
	}
	_, err := b.hosts.Renew(t.Context(), p, host.RenewRequest{CSR: csrFor(t, newKey(t), x509.CertificateRequest{})})
	if after, _ := problem.From(err).Details["retryAfterSeconds"].(int); !problem.Is(err, problem.RateLimited) || after <= 0 || after > 12*3600 {
		t.Errorf("an early renewal with another key = %v", err)
	}
	if n := b.count(t, `SELECT count(*) FROM host_certificates WHERE host_id = ?`, p.HostID); n != 1 {
		t.Errorf("%d certificates are written down, want 1", n)
	}
	if n := b.count(t, `SELECT count(*) FROM audit_log WHERE action = 'host.renew'`); n != 0 {
		t.Errorf("%d renewals are in the audit log, want none", n)
	}
}

func TestOnlyTheTrustedAreHeard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, key := b.joined(t)
	other, _ := b.joined(t)
	for name, peer := range map[string]host.Peer{
		"a serial never issued":   {TenantID: p.TenantID, HostID: p.HostID, Serial: strings.Repeat("0", 32)},
		"another host's serial":   {TenantID: p.TenantID, HostID: p.HostID, Serial: other.Serial},
		"another tenant":          {TenantID: "other", HostID: p.HostID, Serial: p.Serial},
		"a host that never was":   {TenantID: p.TenantID, HostID: id.New("host"), Serial: p.Serial},
		"a quote in the identity": {TenantID: "'", HostID: "'", Serial: "'"},
	} {
		if _, err := b.hosts.Heartbeat(t.Context(), peer, host.HeartbeatRequest{}); reasonOf(err) != "HOST_REMOVED" {
			t.Errorf("%s: heartbeat = %v", name, err)
		}
		in := host.RenewRequest{CSR: csrFor(t, key, x509.CertificateRequest{})}
		if _, err := b.hosts.Renew(t.Context(), peer, in); reasonOf(err) != "HOST_REMOVED" {
			t.Errorf("%s: renew = %v", name, err)
		}
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, key := b.joined(t)
	in := model.RemoveHostInput{TenantID: tenant, HostID: p.HostID}
	out, err := b.hosts.Remove(b.admin, in)
	if err != nil {
		t.Fatal(err)
	}
	if out.Host.RemovedAt == nil || out.Host.ID != p.HostID {
		t.Errorf("the payload is %+v", out.Host)
	}
	if _, err := b.hosts.Heartbeat(t.Context(), p, host.HeartbeatRequest{}); reasonOf(err) != "HOST_REMOVED" {
		t.Errorf("heartbeat = %v", err)
	}
	if _, err := b.hosts.Renew(t.Context(), p, host.RenewRequest{CSR: csrFor(t, key, x509.CertificateRequest{})}); reasonOf(err) != "HOST_REMOVED" {
		t.Errorf("renew = %v", err)
	}
	if n := b.count(t, `SELECT count(*) FROM machine_reservations`); n != 0 {
		t.Error("the machine is still reserved")
	}
	again, err := b.hosts.Remove(b.admin, in)
	if err != nil || !again.Host.RemovedAt.Equal(out.Host.RemovedAt.Time) {
		t.Errorf("removing again = %v", err)
	}
	got := b.texts(t, `SELECT outcome FROM audit_log WHERE action = 'removeHost' AND actor = 'user:admin' ORDER BY id`)
	if diff := cmp.Diff([]string{"allowed", "replayed"}, got); diff != "" {
		t.Errorf("audit (-want +got):\n%s", diff)
	}
}

func TestWhoMay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	p, _ := b.joined(t)
	as := func(name string) context.Context {
		return authz.WithActor(t.Context(), authz.Actor{Subject: "user:" + name})
	}
	b.bind(t, "user:viewer", "provider-viewer", authz.Tenant(tenant), model.Allow)
	b.bind(t, "user:pool-viewer", "provider-viewer", authz.Pool(tenant, b.pool), model.Allow)
	b.bind(t, "user:denied", "tenant-admin", authz.Tenant(tenant), model.Allow)
	b.bind(t, "user:denied", "tenant-admin", authz.Pool(tenant, b.pool), model.Deny)
	b.bind(t, "user:other", "tenant-admin", authz.Tenant("other"), model.Allow)

	calls := map[string]func(ctx context.Context, tenantID string) error{
		"get": func(ctx context.Context, tenantID string) error {
			_, err := b.hosts.Get(ctx, host.GetInput{TenantID: tenantID, HostID: p.HostID})
			return err
		},
		"page": func(ctx context.Context, tenantID string) error {
			c, err := b.hosts.Page(ctx, host.PageInput{TenantID: tenantID, PoolID: b.pool})
			if err == nil && len(c.Edges) == 0 {
				return problem.New(problem.NotFound, "nothing on the page")
			}
			return err
		},
		"node": func(ctx context.Context, _ string) error {
			h, err := b.hosts.Node(ctx, p.HostID)
			if err == nil && h == nil {
				return problem.New(problem.NotFound, "no node")
			}
			return err
		},
		"remove": func(ctx context.Context, tenantID string) error {
			_, err := b.hosts.Remove(ctx, model.RemoveHostInput{TenantID: tenantID, HostID: p.HostID})
			return err
		},
	}
	const ok = ""
	type codes = map[string]problem.Code
	for name, tc := range map[string]struct {
		ctx    context.Context
		tenant string
		want   codes
	}{
		"no caller":        {t.Context(), tenant, codes{"get": problem.Unauthenticated, "page": problem.Unauthenticated, "node": problem.Unauthenticated, "remove": problem.Unauthenticated}},
		"nobody":           {as("nobody"), tenant, codes{"get": problem.Forbidden, "page": problem.Forbidden, "node": problem.NotFound, "remove": problem.Forbidden}},
		"viewer":           {as("viewer"), tenant, codes{"get": ok, "page": ok, "node": ok, "remove": problem.Forbidden}},
		"viewer of a pool": {as("pool-viewer"), tenant, codes{"get": ok, "page": ok, "node": ok, "remove": problem.Forbidden}},
		"denied the pool":  {as("denied"), tenant, codes{"get": problem.NotFound, "page": problem.Forbidden, "node": problem.NotFound, "remove": problem.NotFound}},
		"another tenant":   {as("other"), "other", codes{"get": problem.NotFound, "page": problem.NotFound, "node": problem.NotFound, "remove": problem.NotFound}},
		"foreign tenant":   {as("other"), tenant, codes{"get": problem.Forbidden, "page": problem.Forbidden, "node": problem.NotFound, "remove": problem.Forbidden}},
		"malformed":        {b.admin, "a/b", codes{"get": problem.InvalidInput, "page": problem.InvalidInput, "node": ok, "remove": problem.InvalidInput}},
	} {
		got := codes{}
		for call, do := range calls {
			got[call] = ok
			if err := do(tc.ctx, tc.tenant); err != nil {
				got[call] = problem.From(err).Code
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if n := b.count(t, `SELECT count(*) FROM hosts WHERE removed_at IS NOT NULL`); n != 0 {
		t.Error("a refused removal removed the host")
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []string // newest first
	for range 5 {
		p, _ := b.joined(t)
		ids = append(ids, p.HostID)
	}
	// Two ids of one millisecond have no order of their own.
	slices.Sort(ids)
	slices.Reverse(ids)
	if _, err := b.hosts.Remove(b.admin, model.RemoveHostInput{TenantID: tenant, HostID: ids[2]}); err != nil {
		t.Fatal(err)
	}
	list := func(removed bool, first int) []string {
		got := []string{}
		var after *string
		for {
			c, err := b.hosts.Page(b.admin, host.PageInput{
				TenantID: tenant, PoolID: b.pool, IncludeRemoved: &removed, First: &first, After: after,
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range c.Nodes() {
				got = append(got, h.ID)
			}
			if !c.PageInfo.HasNextPage {
				return got
			}
			after = c.PageInfo.EndCursor
		}
	}
	for _, first := range []int{1, 2, 5, 100} {
		if diff := cmp.Diff(ids, list(true, first)); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", first, diff)
		}
		trusted := []string{ids[0], ids[1], ids[3], ids[4]}
		if diff := cmp.Diff(trusted, list(false, first)); diff != "" {
			t.Errorf("pages of %d without removed ones (-want +got):\n%s", first, diff)
		}
	}
	zero, one, many, bad, otherPool := 0, 1, 101, "bad", id.New("pool")
	page, err := b.hosts.Page(b.admin, host.PageInput{TenantID: tenant, PoolID: b.pool, First: &one})
	if err != nil {
		t.Fatal(err)
	}
	good, all := page.PageInfo.EndCursor, true
	for _, in := range []host.PageInput{
		{TenantID: tenant, PoolID: b.pool, First: &zero},
		{TenantID: tenant, PoolID: b.pool, First: &many},
		{TenantID: tenant, PoolID: b.pool, After: &bad},
		{TenantID: tenant, PoolID: b.pool, IncludeRemoved: &all, After: good},
		{TenantID: tenant, PoolID: otherPool, After: good},
		{TenantID: tenant, PoolID: "pool"},
	} {
		if _, err := b.hosts.Page(b.admin, in); !problem.Is(err, problem.InvalidInput) {
			t.Errorf("Page(%+v) = %v", in, err)
		}
	}
	count := pgtest.CountQueries(b.db)
	list(true, 100)
	few := count()
	b.joined(t)
	before := count()
	list(true, 100)
	if got := count() - before; got != few {
		t.Errorf("a longer page takes %d statements, a shorter one %d", got, few)
	}
}
