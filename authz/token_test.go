package authz

import (
	"context"
	"testing"
	"time"

	"better/compute/internal/problem"
	"better/compute/model"
)

// addToken makes a token; the SQL says when it expires.
func (b *bundle) addToken(t testing.TB, id, expires string) {
	t.Helper()
	b.exec(t, `INSERT INTO api_tokens (id, tenant_id, name, subject, token_hash, created_by, expires_at)
		VALUES (?, 't', ?, 'service:s', sha256(?::bytea), '', `+expires+`)`, id, id, id)
}

func withToken(ctx context.Context, subject, id string) context.Context {
	return WithActor(ctx, Actor{Subject: subject, Credential: id})
}

func TestTokenThatCountsOrDoesNot(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("service:s", "fleet-admin", "compute-fleet"))
	b.addToken(t, "live", "NULL")
	b.addToken(t, "long", "'infinity'")
	b.addToken(t, "later", "now() + interval '1 hour'")
	b.addToken(t, "expired", "now() - interval '1 ms'")
	b.addToken(t, "revoked", "NULL")
	b.exec(t, "UPDATE api_tokens SET revoked_at = now() WHERE id = 'revoked'")
	replica := follow(t, newDecider(t, b.db))
	for id, want := range map[string]bool{"live": true, "long": true, "later": true, "expired": false, "revoked": false, "gone": false} {
		for range 2 {
			for name, d := range map[string]*Decider{"reading": b.d, "caching": replica} {
				if got, err := d.Live(t.Context(), id); got != want || err != nil {
					t.Errorf("%s: %s is live = %v (%v), want %v", name, id, got, err, want)
				}
				b.wantCaller(t, d, id, want)
			}
		}
	}
	b.db.Close()
	_, err := b.d.Live(t.Context(), "live")
	wantCode(t, err, problem.Unavailable)
	_, err = b.d.Authenticated(withToken(t.Context(), "service:s", "live"))
	wantCode(t, err, problem.Unavailable)
}

// wantCaller asks everything that somebody with the token could.
func (b *bundle) wantCaller(t *testing.T, d *Decider, id string, want bool) {
	t.Helper()
	ctx := withToken(t.Context(), "service:s", id)
	_, authenticated := d.Authenticated(ctx)
	_, viewed := d.Viewer(ctx)
	_, permissions := d.ViewerPermissions(ctx, nil, nil)
	_, filtered := d.Filter(ctx, ProvidersRead, "t", Pools)
	_, held := d.Holds(ctx, ProvidersRead, Fleet())
	_, listed := d.Roles(ctx)
	_, paged := d.Bindings(ctx, BindingsInput{})
	_, granted := d.GrantRole(ctx, grantInput(allow("user:x", "fleet-admin", "compute-fleet")))
	_, revoked := d.RevokeRole(ctx, revokeInput(allow("user:x", "fleet-admin", "compute-fleet")))
	_, defined := d.DefineRole(ctx, roleInput("made", PoolsRead))
	_, deleted := d.DeleteRole(ctx, model.DeleteRoleInput{Name: "made"})
	for i, err := range []error{
		authenticated, viewed, permissions, filtered, held, listed, paged, granted, revoked, defined, deleted, d.Check(ctx, ProvidersRead, Fleet()),
	} {
		if want && err != nil || !want && !problem.Is(err, problem.Unauthenticated) {
			t.Errorf("call %d with the token %s: %v", i, id, err)
		}
	}
	scope, err := d.Scope(ctx)
	if wantScope := map[bool]string{true: "*", false: "{}"}[want]; err != nil || scope.String() != wantScope {
		t.Errorf("the token %s gives the scope %s (%v), want %s", id, scope, err, wantScope)
	}
}

func wantLiveWithinASecond(t testing.TB, d *Decider, id string, want bool) {
	t.Helper()
	committed := time.Now()
	eventually(t, "the change of the token is followed", func() bool {
		began := time.Now()
		got, err := d.Live(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if got != want && began.Sub(committed) > time.Second {
			t.Fatalf("an answer %v after the change did not know of it", began.Sub(committed))
		}
		return got == want
	})
}

func TestReplicaFollowsAToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replica := follow(t, newDecider(t, b.db))
	for i, end := range []string{
		"UPDATE api_tokens SET revoked_at = now() WHERE id = 'tok'",
		"DELETE FROM api_tokens WHERE id = 'tok'",
		"UPDATE api_tokens SET expires_at = now() WHERE id = 'tok'",
		"TRUNCATE api_tokens",
		"UPDATE api_tokens SET revoked_at = now()",
	} {
		b.addToken(t, "tok", "NULL")
		// It may have been asked for before, and then is known as gone until a second later.
		wantLiveWithinASecond(t, replica, "tok", true)
		changes := replica.Changes(t.Context(), Actor{Subject: "service:s", Credential: "tok"}, "t")
		eventually(t, "a cached answer", func() bool {
			live, err := replica.Live(t.Context(), "tok")
			if !live || err != nil {
				t.Fatalf("live = %v, %v", live, err)
			}
			_, ok, _ := replica.cache.get(question{credential: "tok"}, replica.now())
			return ok
		})
		if i%2 == 1 {
			b.killLink(t)
		}
		b.exec(t, end)
		wantLiveWithinASecond(t, replica, "tok", false)
		receive(t, changes)
		b.exec(t, "DELETE FROM api_tokens")
		b.exec(t, "UPDATE policy_version SET version = version + 1") // ids come once; the one of this test comes again
		eventually(t, "that is heard of", func() bool {
			_, ok, _ := replica.cache.get(question{credential: "tok"}, replica.now())
			return !ok
		})
	}
}

// Its end needs no change in the database, and is told by the database's clock.
func TestCachedTokenExpires(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.addToken(t, "tok", "now() + interval '1 hour'")
	var ahead time.Duration
	replica := newDecider(t, b.db)
	now := func() time.Time { return time.Now().Add(24 * time.Hour) } // this process's clock is wrong
	replica.now = now
	follow(t, replica)
	eventually(t, "a cached answer", func() bool {
		if live, err := replica.Live(t.Context(), "tok"); !live || err != nil {
			t.Fatalf("live = %v, %v", live, err)
		}
		_, ok, _ := replica.cache.get(question{credential: "tok"}, now())
		return ok
	})
	answer, _, _ := replica.cache.get(question{credential: "tok"}, now())
	if ahead = answer.token.ends.Sub(now()); ahead > time.Hour || ahead < 55*time.Minute {
		t.Errorf("the token ends in %v", ahead)
	}
	if !answer.token.live(answer.token.ends.Add(-1)) || answer.token.live(answer.token.ends) {
		t.Error("a token counts until it ends")
	}
}

// A token that is revoked between a decision and the lock gives nothing away any more.
func TestTokenIsJudgedAgainUnderTheLock(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("service:s", "fleet-admin", "compute-fleet"))
	b.addToken(t, "tok", "NULL")
	tx, err := b.owner.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "UPDATE api_tokens SET revoked_at = now()"); err != nil { // moves the version, so holds the lock
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := b.d.GrantRole(withToken(t.Context(), "service:s", "tok"), grantInput(allow("user:x", "fleet-admin", "compute-fleet")))
		done <- err
	}()
	eventually(t, "the grant waits for the lock", func() bool {
		var waits bool
		err := b.owner.NewRaw("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(t.Context(), &waits)
		return err == nil && waits
	})
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, <-done, problem.Unauthenticated)
	if got := b.bindings(t); len(got) != 1 {
		t.Errorf("bindings are %v", got)
	}
}

// What was withdrawn is nobody's credential, on a connection that is open too.
func TestCredentialThatIsWithdrawn(t *testing.T) {
	t.Parallel()
	b := setup(t, allow("user:u", "fleet-admin", "compute-fleet"))
	withdrawn := make(chan struct{})
	actor := Actor{Subject: "user:u", Withdrawn: withdrawn}
	ctx := WithActor(t.Context(), actor)
	told := make(chan struct{})
	b.d.AfterEnd(ctx, actor, func() { close(told) })
	if err := b.d.Check(ctx, ProvidersRead, Fleet()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-told:
		t.Fatal("told before the end")
	default:
	}
	close(withdrawn)
	<-told
	wantCode(t, b.d.Check(ctx, ProvidersRead, Fleet()), problem.Unauthenticated)
	_, err := b.d.Authenticated(ctx)
	wantCode(t, err, problem.Unauthenticated)
}
