package host_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/uptrace/bun"

	"better/compute/bootstrap"
	"better/compute/host"
	"better/compute/internal/pki"
	"better/compute/internal/problem"
	"better/compute/model"
)

func TestJoinMakesAHost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	runID, token := b.run(t)
	b.exec(t, `UPDATE bootstraps SET status = 'installing'`)
	in := joinRequest(t, token, newKey(t))
	in.Machine.Hostname = `h'"\?0 ?` // nothing in it means anything to SQL
	out, err := b.hosts.Join(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	leaf := leafOf(t, out.Certificate)
	tenantID, hostID, ok := b.ca.HostOf(leaf)
	if !ok || tenantID != tenant || hostID != out.HostID || out.TenantID != tenant {
		t.Errorf("the certificate is for %q, %q; the answer for %q, %q", tenantID, hostID, out.TenantID, out.HostID)
	}
	if life := time.Until(leaf.NotAfter).Round(time.Minute); life != 24*time.Hour || !out.NotAfter.Equal(leaf.NotAfter) {
		t.Errorf("the certificate lives %s, and ends at %s, not %s", life, leaf.NotAfter, out.NotAfter)
	}
	if out.CABundle != string(b.ca.Bundle()) || out.HeartbeatSeconds != 30 {
		t.Errorf("heartbeat %d, bundle %s", out.HeartbeatSeconds, out.CABundle)
	}

	h, err := b.hosts.Get(b.admin, host.GetInput{TenantID: tenant, HostID: out.HostID})
	if err != nil {
		t.Fatal(err)
	}
	want := model.Host{
		ID: out.HostID, TenantID: tenant, PoolID: b.pool, BootstrapID: runID, AccountID: "pacct_1", MachineID: runID, AgentVersion: "1.0",
	}
	if !h.CertificateNotAfter.Equal(leaf.NotAfter) {
		t.Errorf("certificateNotAfter %s, want %s", h.CertificateNotAfter, leaf.NotAfter)
	}
	h.JoinedAt, h.LastSeenAt, h.CertificateNotAfter = model.Time{}, model.Time{}, nil
	if diff := cmp.Diff(want, *h); diff != "" {
		t.Errorf("host (-want +got):\n%s", diff)
	}
	for what, query := range map[string]string{
		"the run joined":             `SELECT count(*) FROM bootstraps WHERE status = 'joined' AND host_id = ?0 AND token_used_at IS NOT NULL`,
		"the reservation moved":      `SELECT count(*) FROM machine_reservations WHERE host_id = ?0 AND machine_key = (SELECT bootstrap_id FROM hosts WHERE id = ?0)`,
		"the certificate is written": `SELECT count(*) FROM host_certificates WHERE host_id = ?0 AND serial = '` + pki.SerialText(leaf) + `'`,
		"the audit row":              `SELECT count(*) FROM audit_log WHERE action = 'host.join' AND outcome = 'allowed' AND details->>'hostId' = ?0`,
	} {
		if n := b.count(t, query, out.HostID); n != 1 {
			t.Errorf("%s: %d rows, want 1", what, n)
		}
	}
	facts := b.texts(t, `SELECT facts->>'hostname' || ' ' || (facts->>'cpus') FROM hosts`)
	if diff := cmp.Diff([]string{in.Machine.Hostname + " 2"}, facts); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	got := b.texts(t, `SELECT from_status || ' -> ' || to_status FROM bootstrap_transitions ORDER BY id`)
	if diff := cmp.Diff([]string{"installing -> installed", "installed -> joined"}, got); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	got = b.texts(t, `SELECT type FROM events ORDER BY id`)
	if diff := cmp.Diff([]string{bootstrap.EventInstalled, bootstrap.EventJoined}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	for _, table := range []string{"bootstraps", "hosts", "host_certificates", "audit_log", "events", "bootstrap_transitions"} {
		if n := b.count(t, `SELECT count(*) FROM `+table+` x WHERE x::text LIKE ?`, "%"+token[len(token)-43:]+"%"); n != 0 {
			t.Errorf("the token is in %s", table)
		}
	}
}

func TestOneTokenMakesOneHostHoweverManyAsk(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const tokens, asking = 20, 32
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[any]int{}
	certificates := map[string]bool{}
	for range tokens {
		_, token := b.run(t)
		for range asking {
			in := joinRequest(t, token, newKey(t))
			wg.Go(func() {
				out, err := b.hosts.Join(context.WithoutCancel(t.Context()), in)
				mu.Lock()
				defer mu.Unlock()
				if err != nil && reasonOf(err) != "TOKEN_USED" {
					t.Error(err)
				}
				answers[reasonOf(err)]++
				if out != nil {
					certificates[out.Certificate] = true
				}
			})
		}
	}
	wg.Wait()
	want := map[any]int{nil: tokens, "TOKEN_USED": tokens * (asking - 1)}
	if diff := cmp.Diff(want, answers); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	hosts, certs := b.count(t, `SELECT count(*) FROM hosts`), b.count(t, `SELECT count(*) FROM host_certificates`)
	if len(certificates) != tokens || hosts != tokens || certs != tokens {
		t.Errorf("%d certificates given, %d stored, %d hosts; want %d each", len(certificates), certs, hosts, tokens)
	}
	if n := b.count(t, `SELECT count(*) FROM audit_log WHERE action = 'host.join.refused' AND outcome = 'denied'`); n != tokens*(asking-1) {
		t.Errorf("%d alarms, want one for each that came too late", n)
	}
}

func TestTheSameJoinGetsTheSameCertificate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, token := b.run(t)
	key := newKey(t)
	var wg sync.WaitGroup
	answers := make([]*host.JoinResponse, 32)
	for i := range answers {
		in := joinRequest(t, token, key)
		wg.Go(func() {
			out, err := b.hosts.Join(context.WithoutCancel(t.Context()), in)
			if err != nil {
				t.Error(err)
			}
			answers[i] = out
		})
	}
	wg.Wait()
	for _, a := range answers {
		if diff := cmp.Diff(answers[0], a); diff != "" {
			t.Fatalf("two answers (-one +other):\n%s", diff)
		}
	}
	b.exec(t, `UPDATE bootstraps SET token_used_at = now() - interval '9 minutes', token_expires_at = now() - interval '1 minute'`)
	if _, err := b.hosts.Join(t.Context(), joinRequest(t, token, key)); err != nil {
		t.Errorf("after nine minutes: %v", err)
	}
	b.exec(t, `UPDATE bootstraps SET token_used_at = now() - interval '11 minutes'`)
	if _, err := b.hosts.Join(t.Context(), joinRequest(t, token, key)); reasonOf(err) != "TOKEN_USED" {
		t.Errorf("after eleven minutes: %v", err)
	}
	b.exec(t, `UPDATE bootstraps SET token_used_at = now()`)
	if _, err := b.hosts.Remove(b.admin, model.RemoveHostInput{TenantID: tenant, HostID: answers[0].HostID}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.hosts.Join(t.Context(), joinRequest(t, token, key)); reasonOf(err) != "HOST_REMOVED" {
		t.Errorf("after the removal: %v", err)
	}
}

// A thief who joins first loses the host when the machine itself comes, since nobody can tell which of the two is honest: the run has failed, and
// an event says so.
func TestAThiefWhoJoinsFirst(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		arrange string
		change  func(*host.JoinRequest)
		trusted bool
	}{
		"soon":                     {},
		"soon, with a clock off":   {change: func(in *host.JoinRequest) { in.Clock = clockAt(3 * time.Hour) }},
		"late in the token's life": {arrange: `UPDATE bootstraps SET token_used_at = now() - interval '50 minutes'`},
		"soon, after its life":     {arrange: `UPDATE bootstraps SET token_used_at = now() - interval '9 minutes', token_expires_at = now()`},
		"after an install that took long": {
			arrange: `UPDATE bootstraps SET token_used_at = now() - interval '23 hours', token_expires_at = now()`,
		},
		"long after its life": {
			arrange: `UPDATE bootstraps SET token_used_at = now() - interval '25 hours', token_expires_at = now()`, trusted: true,
		},
		"of another machine":       {change: func(in *host.JoinRequest) { in.Machine.Serial = "another" }, trusted: true},
		"when the account is gone": {arrange: `DELETE FROM provider_accounts`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			runID, token := b.run(t)
			b.exec(t, `UPDATE bootstraps SET status = 'installing'`)
			first, err := b.hosts.Join(t.Context(), joinRequest(t, token, newKey(t)))
			if err != nil {
				t.Fatal(err)
			}
			if tc.arrange != "" {
				b.exec(t, tc.arrange)
			}
			in := joinRequest(t, token, newKey(t))
			if tc.change != nil {
				tc.change(&in)
			}
			for range 2 {
				if _, err := b.hosts.Join(t.Context(), in); reasonOf(err) != "TOKEN_USED" {
					t.Errorf("the second agent: %v", err)
				}
			}
			_, err = b.hosts.Heartbeat(t.Context(), peerOf(t, b, first), host.HeartbeatRequest{AgentVersion: "1.0", Clock: clockAt(0)})
			if trusted := err == nil; trusted != tc.trusted {
				t.Errorf("the first agent's heartbeat: %v", err)
			}
			removals := b.count(t, `SELECT count(*) FROM audit_log WHERE action = 'removeHost' AND actor = 'system'
				AND details->>'bootstrapId' = ? AND details->>'reason' = 'TOKEN_USED'`, runID)
			reserved := b.count(t, `SELECT count(*) FROM machine_reservations WHERE machine_key = bootstrap_id OR host_id IS NULL`)
			if want := 1; !tc.trusted && (removals != want || reserved != 0) || tc.trusted && (removals != 0 || reserved != want) {
				t.Errorf("%d removals, %d reservations", removals, reserved)
			}
			want := []string{"installed", "joined", "failed IDENTITY_MISMATCH"}
			if tc.trusted {
				want = want[:2]
			}
			for what, query := range map[string]string{
				"events":  `SELECT concat_ws(' ', data->'data'->>'to', data->'data'->>'reason') FROM events ORDER BY xid, id`,
				"history": `SELECT concat_ws(' ', to_status, reason) FROM bootstrap_transitions ORDER BY id`,
			} {
				if diff := cmp.Diff(want, b.texts(t, query)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", what, diff)
				}
			}
			state := "failed IDENTITY_MISMATCH kept"
			if tc.trusted {
				state = "joined none"
			}
			got := b.texts(t, `SELECT concat_ws(' ', status, failure->>'reason', cleanup) FROM bootstraps`)
			if diff := cmp.Diff([]string{state}, got); diff != "" {
				t.Errorf("run (-want +got):\n%s", diff)
			}
		})
	}
}

func TestJoinIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		arrange string // SQL on the only run
		change  func(*host.JoinRequest)
		reason  string
		code    problem.Code
	}{
		"unknown":                 {change: func(in *host.JoinRequest) { in.Token = in.Token[:len(in.Token)-2] + "__" }, reason: "TOKEN_UNKNOWN", code: problem.Unauthenticated},
		"no token":                {change: func(in *host.JoinRequest) { in.Token = "" }, reason: "TOKEN_UNKNOWN", code: problem.Unauthenticated},
		"not of our form":         {change: func(in *host.JoinRequest) { in.Token = "x.y.z" }, reason: "TOKEN_UNKNOWN", code: problem.Unauthenticated},
		"quotes":                  {change: func(in *host.JoinRequest) { in.Token = `' OR '1'='1` }, reason: "TOKEN_UNKNOWN", code: problem.Unauthenticated},
		"expired":                 {arrange: `UPDATE bootstraps SET token_expires_at = now()`, reason: "TOKEN_EXPIRED", code: problem.Unauthenticated},
		"superseded":              {arrange: `UPDATE bootstraps SET token_hash = '\x01', generation = 2`, reason: "TOKEN_SUPERSEDED", code: problem.Unauthenticated},
		"failed":                  {arrange: `UPDATE bootstraps SET status = 'failed', failure = '{}', token_hash = NULL`, reason: "RUN_FAILED", code: problem.InvalidState},
		"failed with its hash":    {arrange: `UPDATE bootstraps SET status = 'failed', failure = '{}'`, reason: "RUN_FAILED", code: problem.InvalidState},
		"used":                    {arrange: `UPDATE bootstraps SET token_used_at = now(), token_key_hash = '\x01'`, reason: "TOKEN_USED", code: problem.Unauthenticated},
		"cancelled":               {arrange: `UPDATE bootstraps SET cancel_requested_at = now()`, reason: "RUN_FAILED", code: problem.InvalidState},
		"another machine id":      {change: func(in *host.JoinRequest) { in.Machine.MachineID = "f" + machineID[1:] }, reason: "WRONG_MACHINE", code: problem.Forbidden},
		"another serial":          {change: func(in *host.JoinRequest) { in.Machine.Serial = "SN-2" }, reason: "WRONG_MACHINE", code: problem.Forbidden},
		"serial left out":         {change: func(in *host.JoinRequest) { in.Machine.Serial = "" }, reason: "WRONG_MACHINE", code: problem.Forbidden},
		"clock 3 h ahead":         {change: func(in *host.JoinRequest) { in.Clock = clockAt(3 * time.Hour) }, reason: "CLOCK_SKEW", code: problem.Forbidden},
		"clock 6 min behind":      {change: func(in *host.JoinRequest) { in.Clock = clockAt(-6 * time.Minute) }, reason: "CLOCK_SKEW", code: problem.Forbidden},
		"clock in 1970":           {change: func(in *host.JoinRequest) { in.Clock = "1970-01-01T00:00:00Z" }, reason: "CLOCK_SKEW", code: problem.Forbidden},
		"clock in the year 9999":  {change: func(in *host.JoinRequest) { in.Clock = "9999-12-31T23:59:59Z" }, reason: "CLOCK_SKEW", code: problem.Forbidden},
		"no clock":                {change: func(in *host.JoinRequest) { in.Clock = "" }, code: problem.InvalidInput},
		"clock in the year 0":     {change: func(in *host.JoinRequest) { in.Clock = "0000-01-01T00:00:00Z" }, code: problem.InvalidInput},
		"clock in the year 10000": {change: func(in *host.JoinRequest) { in.Clock = "9999-12-31T23:59:59-23:59" }, code: problem.InvalidInput},
		"no CSR":                  {change: func(in *host.JoinRequest) { in.CSR = "" }, code: problem.InvalidInput},
		"long fact":               {change: func(in *host.JoinRequest) { in.Machine.Kernel = strings.Repeat("k", 257) }, code: problem.InvalidInput},
		"control in a fact":       {change: func(in *host.JoinRequest) { in.Machine.Hostname = "h\x1b[2J" }, code: problem.InvalidInput},
		"negative CPUs":           {change: func(in *host.JoinRequest) { in.Machine.CPUs = -1 }, code: problem.InvalidInput},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			_, token := b.run(t)
			if tc.arrange != "" {
				b.exec(t, tc.arrange)
			}
			in := joinRequest(t, token, newKey(t))
			if tc.change != nil {
				tc.change(&in)
			}
			const run = `SELECT (to_jsonb(b) - '{wait_reason,last_error,updated_at}'::text[])::text FROM bootstraps b`
			before := b.texts(t, run)
			out, err := b.hosts.Join(t.Context(), in)
			if out != nil || !problem.Is(err, tc.code) || (tc.reason != "" && reasonOf(err) != tc.reason) {
				t.Errorf("Join = %v, want %s %s", err, tc.code, tc.reason)
			}
			if err != nil && in.Token != "" && strings.Contains(err.Error(), in.Token) {
				t.Error("the error repeats the token")
			}
			if diff := cmp.Diff(before, b.texts(t, run)); diff != "" {
				t.Errorf("the refusal changed the run:\n%s", diff)
			}
			told := b.count(t, `SELECT count(*) FROM bootstraps WHERE wait_reason = 'CLOCK_SKEW' AND last_error <> ''`)
			if (told == 1) != (tc.reason == "CLOCK_SKEW") {
				t.Errorf("%d runs wait for a clock", told)
			}
			if n := b.count(t, `SELECT (SELECT count(*) FROM hosts) + (SELECT count(*) FROM host_certificates)`); n != 0 {
				t.Errorf("the refusal left %d rows", n)
			}
			if tc.reason == "CLOCK_SKEW" && name == "clock 3 h ahead" {
				if skew, _ := problem.From(err).Details["skewSeconds"].(int64); skew < 10790 || skew > 10800 {
					t.Errorf("skewSeconds %d, want about 10800", skew)
				}
			}
		})
	}
}

func TestJoinIsTolerant(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		arrange string
		change  func(*host.JoinRequest)
	}{
		"clock 4 min behind":    {change: func(in *host.JoinRequest) { in.Clock = clockAt(-4 * time.Minute) }},
		"clock 4 min ahead":     {change: func(in *host.JoinRequest) { in.Clock = clockAt(4 * time.Minute) }},
		"serial not identified": {`UPDATE bootstraps SET machine = machine - 'serial'`, func(in *host.JoinRequest) { in.Machine.Serial = "any" }},
		"nothing identified":    {`UPDATE bootstraps SET machine = NULL`, func(in *host.JoinRequest) { in.Machine = host.Machine{} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			_, token := b.run(t)
			if tc.arrange != "" {
				b.exec(t, tc.arrange)
			}
			in := joinRequest(t, token, newKey(t))
			tc.change(&in)
			if _, err := b.hosts.Join(t.Context(), in); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestJoinIsOneTransaction(t *testing.T) {
	t.Parallel()
	broken := errors.New("killed")
	fail := true
	b := setup(t, func(d *host.Deps) {
		d.MarkJoined = func(ctx context.Context, tx bun.IDB, runID, hostID string) error {
			if err := bootstrap.MarkJoined(ctx, tx, runID, hostID); err != nil {
				return err
			}
			if fail {
				return broken
			}
			return nil
		}
	})
	_, token := b.run(t)
	key := newKey(t)
	if _, err := b.hosts.Join(t.Context(), joinRequest(t, token, key)); !errors.Is(err, broken) {
		t.Fatalf("Join = %v", err)
	}
	n := b.count(t, `SELECT (SELECT count(*) FROM hosts) + (SELECT count(*) FROM host_certificates) + (SELECT count(*) FROM events)
		+ (SELECT count(*) FROM audit_log WHERE action LIKE 'host.%') + (SELECT count(*) FROM bootstraps WHERE token_used_at IS NOT NULL OR host_id IS NOT NULL)`)
	if n != 0 {
		t.Errorf("%d rows are left of a join that did not happen", n)
	}
	fail = false
	if _, err := b.hosts.Join(t.Context(), joinRequest(t, token, key)); err != nil {
		t.Errorf("the token is gone with it: %v", err)
	}
}

func TestAKeyBelongsToOneHost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := newKey(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers := map[any]int{}
	var other string
	for range 8 {
		_, token := b.run(t)
		in := joinRequest(t, token, key)
		wg.Go(func() {
			out, err := b.hosts.Join(context.WithoutCancel(t.Context()), in)
			mu.Lock()
			defer mu.Unlock()
			if out != nil {
				other = out.HostID
			}
			answers[reasonOf(err)]++
		})
	}
	wg.Wait()
	if diff := cmp.Diff(map[any]int{nil: 1, "KEY_IN_USE": 7}, answers); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if n := b.count(t, `SELECT count(*) FROM bootstraps WHERE token_used_at IS NOT NULL`); n != 1 {
		t.Errorf("%d tokens were used up, want 1", n)
	}
	// Nor may a host take another's key when it renews.
	_, token := b.run(t)
	out, err := b.hosts.Join(t.Context(), joinRequest(t, token, newKey(t)))
	if err != nil {
		t.Fatal(err)
	}
	b.age(t, peerOf(t, b, out).HostID)
	_, err = b.hosts.Renew(t.Context(), peerOf(t, b, out), host.RenewRequest{CSR: csrFor(t, key, x509.CertificateRequest{})})
	if reasonOf(err) != "KEY_IN_USE" {
		t.Errorf("renewing with the key of %s = %v", other, err)
	}
}

// The second join with a key must wait for the first to end, not look beside it.
func TestJoinsWithOneKeyWaitForEachOther(t *testing.T) {
	t.Parallel()
	var b *bundle
	var second host.JoinRequest
	key, result := newKey(t), make(chan error, 1)
	entered := false
	b = setup(t, func(d *host.Deps) {
		d.MarkJoined = func(ctx context.Context, tx bun.IDB, runID, hostID string) error {
			if entered {
				return errors.New("both joins are past the look at the key")
			}
			entered = true
			go func() {
				_, err := b.hosts.Join(context.WithoutCancel(t.Context()), second)
				result <- err
			}()
			deadline := time.Now().Add(patience)
			for b.count(t, `SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
				WHERE d.datname = current_database() AND locktype = 'advisory' AND NOT granted`) == 0 {
				if time.Now().After(deadline) || len(result) > 0 {
					return errors.New("the second join does not wait")
				}
			}
			return bootstrap.MarkJoined(ctx, tx, runID, hostID)
		}
	})
	_, token := b.run(t)
	_, other := b.run(t)
	second = joinRequest(t, other, key)
	if _, err := b.hosts.Join(t.Context(), joinRequest(t, token, key)); err != nil {
		t.Error(err)
	}
	if err := <-result; reasonOf(err) != "KEY_IN_USE" {
		t.Errorf("the second join = %v, want KEY_IN_USE", err)
	}
}

func TestOnlyTheKeyOfARequestCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, token := b.run(t)
	key := newKey(t)
	in := joinRequest(t, token, key)
	in.CSR = csrFor(t, key, x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "root", Organization: []string{"evil"}}, DNSNames: []string{"evil.test"},
		IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}, EmailAddresses: []string{"a@evil.test"},
	})
	out, err := b.hosts.Join(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	leaf := leafOf(t, out.Certificate)
	if leaf.Subject.String() != "CN="+out.HostID || len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.EmailAddresses) != 0 || leaf.IsCA {
		t.Errorf("the certificate says more than the server meant: %s, %v", leaf.Subject, leaf.DNSNames)
	}
}

func TestJoinWithoutPKI(t *testing.T) {
	t.Parallel()
	b := setup(t, func(d *host.Deps) { d.CA = nil })
	_, token := b.run(t)
	if _, err := b.hosts.Join(t.Context(), joinRequest(t, token, newKey(t))); !problem.Is(err, problem.InvalidConfig) {
		t.Errorf("Join = %v, want INVALID_CONFIG", err)
	}
}

func TestMintTokenIsLongAndNew(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		token, hash := host.MintToken("boot_01hzy3v7k8m9n0p1q2r3s4t5v6", 3)
		parts := strings.Split(token, ".")
		if len(parts) != 4 || len(parts[3]) != 43 || len(hash) != 32 || seen[parts[3]] {
			t.Fatalf("token of %d parts, hash of %d bytes", len(parts), len(hash))
		}
		seen[parts[3]] = true
	}
}

func peerOf(t *testing.T, b *bundle, out *host.JoinResponse) host.Peer {
	t.Helper()
	return host.Peer{TenantID: out.TenantID, HostID: out.HostID, Serial: pki.SerialText(leafOf(t, out.Certificate))}
}
