package authz

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
)

// follow starts Run of a Decider and waits until its cache is trusted.
func follow(t testing.TB, d *Decider) *Decider {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = d.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	eventually(t, "the cache is trusted", func() bool { return d.trusted() })
	return d
}

func (d *Decider) trusted() bool {
	d.cache.mu.Lock()
	defer d.cache.mu.Unlock()
	return !d.cache.provenAt.IsZero() && d.now().Sub(d.cache.provenAt) <= trust
}

// eventually polls; how long it took is never judged.
// patience bounds every wait for what happens by itself, on a machine that is busy. Success waits for nothing.
const patience = 3 * time.Minute

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (d *Decider) may(t testing.TB, subject string, groups ...string) bool {
	t.Helper()
	held, err := d.Permissions(as(context.Background(), subject, groups...), Tenant("t"))
	if err != nil {
		t.Fatal(err)
	}
	return len(held) > 0
}

// warm makes sure that the next decision would come from the cache.
func warm(t testing.TB, d *Decider, subject string, want bool) {
	t.Helper()
	eventually(t, "a cached decision", func() bool {
		if got := d.may(t, subject); got != want {
			t.Fatalf("%s may = %v before the change", subject, got)
		}
		return d.cache.holds(subject, d.now())
	})
}

// wantWithinASecond decides until the answer is the new one. No decision that began a second after the commit
// may give the old one, however busy the machine is.
func wantWithinASecond(t testing.TB, d *Decider, subject string, want bool) {
	t.Helper()
	committed := time.Now()
	eventually(t, "the change is followed", func() bool {
		began := time.Now()
		got := d.may(t, subject)
		if got != want && began.Sub(committed) > time.Second {
			t.Fatalf("a decision %v after the change did not know of it", began.Sub(committed))
		}
		return got == want
	})
}

var viewer = allow("user:v", "provider-viewer", "compute-tenant/t")

func TestReplicaFollowsAChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replica := follow(t, newDecider(t, b.db))
	for range 10 {
		warm(t, replica, "user:v", false)
		b.insert(t, viewer)
		wantWithinASecond(t, replica, "user:v", true)
		warm(t, replica, "user:v", true)
		b.delete(t, viewer)
		wantWithinASecond(t, replica, "user:v", false)
	}
	b.insert(t, viewer)
	wantWithinASecond(t, replica, "user:v", true)
	b.exec(t, "UPDATE role_bindings SET subject = 'user:w'")
	wantWithinASecond(t, replica, "user:v", false)
	wantWithinASecond(t, replica, "user:w", true)
	b.exec(t, "TRUNCATE role_bindings")
	wantWithinASecond(t, replica, "user:w", false)
	b.exec(t, "INSERT INTO role_bindings SELECT 'user:' || n, 'provider-viewer', 'compute-tenant/t', 'allow' FROM generate_series(1, 1000) n")
	wantWithinASecond(t, replica, "user:777", true)
	b.exec(t, "DELETE FROM role_bindings")
	wantWithinASecond(t, replica, "user:777", false)
}

func TestCachedDecisionAsksNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, viewer, deny("user:other", "provider-viewer", "compute-tenant/t"))
	replica := follow(t, newDecider(t, b.db))
	warm(t, replica, "user:v", true)
	count := pgtest.CountQueries(b.db)
	// Under load the proof may be late, and then a decision reads: so count decisions that asked nothing.
	eventually(t, "a decision without a statement", func() bool {
		before := count()
		return replica.may(t, "user:v") && count() == before
	})
	b.delete(t, deny("user:other", "provider-viewer", "compute-tenant/t"))
	eventually(t, "the other subject's change", func() bool {
		return !replica.cache.holds("user:other", replica.now())
	})
}

func TestReplicaFollowsAChangeWhenItsLinkIsKilled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replica := follow(t, newDecider(t, b.db))
	for i := range 5 {
		b.insert(t, viewer)
		wantWithinASecond(t, replica, "user:v", true)
		warm(t, replica, "user:v", true)
		if i%2 == 0 {
			b.killLink(t)
			b.delete(t, viewer)
		} else {
			b.delete(t, viewer)
			b.killLink(t)
		}
		wantWithinASecond(t, replica, "user:v", false)
	}
	eventually(t, "the cache is trusted again", replica.trusted)
}

const killLink = `SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
	WHERE application_name = 'compute-api authz' AND datname = current_database()`

func (b *bundle) killLink(t testing.TB) {
	t.Helper()
	b.exec(t, killLink)
}

// silent is a connection on which nothing arrives any more, though it stands: a cable that was pulled.
type silent struct {
	net.Conn
	pulled *atomic.Bool
}

func (s silent) Read(b []byte) (int, error) {
	for {
		n, err := s.Conn.Read(b)
		if err != nil || !s.pulled.Load() {
			return n, err
		}
	}
}

func TestReplicaFollowsAChangeWhenItsLinkFallsSilent(t *testing.T) {
	t.Parallel()
	b := setup(t, viewer)
	var mu sync.Mutex
	var pulled *atomic.Bool // of the newest link
	config := b.db.Pool.Config()
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		mu.Lock()
		defer mu.Unlock()
		pulled = new(atomic.Bool)
		return silent{conn, pulled}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	replica := follow(t, newDecider(t, &postgres.DB{DB: b.db.DB, Pool: pool})) // Pool is only asked for its configuration
	for range 3 {
		eventually(t, "the cache is trusted", replica.trusted)
		warm(t, replica, "user:v", true)
		mu.Lock()
		pulled.Store(true)
		mu.Unlock()
		b.delete(t, viewer)
		wantWithinASecond(t, replica, "user:v", false)
		b.insert(t, viewer)
		wantWithinASecond(t, replica, "user:v", true)
	}
	eventually(t, "the cache is trusted again", replica.trusted)
}

// Nothing tells of this change, neither a notification nor the version: only forgetting everything finds it.
func TestNothingFromBeforeAReconnectIsTrusted(t *testing.T) {
	t.Parallel()
	b := setup(t, viewer)
	replica := follow(t, newDecider(t, b.db))
	warm(t, replica, "user:v", true)
	b.exec(t, "ALTER TABLE role_bindings DISABLE TRIGGER USER")
	b.delete(t, viewer)
	b.killLink(t)
	wantWithinASecond(t, replica, "user:v", false)
	eventually(t, "the cache is trusted again", replica.trusted)
	if replica.may(t, "user:v") {
		t.Error("the new link trusts what the old one left")
	}
}

// A notification that got lost, on a link that lives.
func TestPollFindsALostNotification(t *testing.T) {
	t.Parallel()
	b := setup(t, viewer)
	replica := follow(t, newDecider(t, b.db))
	warm(t, replica, "user:v", true)
	changes := replica.Changes(t.Context(), Actor{Subject: "user:v"}, "t")
	b.exec(t, "ALTER TABLE role_bindings DISABLE TRIGGER USER")
	b.exec(t, "WITH gone AS (DELETE FROM role_bindings) UPDATE policy_version SET version = version + 1")
	wantWithinASecond(t, replica, "user:v", false)
	receive(t, changes)
}

// A notification that got lost, and a statement that saw the change before the next poll.
func TestNoDecisionIsOfBeforeAVersionThatWasSeen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replica := follow(t, newDecider(t, b.db))
	b.exec(t, "ALTER TABLE role_bindings DISABLE TRIGGER USER")
	for range 20 {
		b.exec(t, "WITH given AS (INSERT INTO role_bindings VALUES ('user:v', 'provider-viewer', 'compute-tenant/t', 'allow')) UPDATE policy_version SET version = version + 1")
		eventually(t, "a cached decision", func() bool { return replica.may(t, "user:v") && replica.cache.holds("user:v", replica.now()) })
		b.exec(t, "WITH gone AS (DELETE FROM role_bindings) UPDATE policy_version SET version = version + 1")
		var version int64
		if err := b.db.NewRaw("SELECT "+PolicyVersion).Scan(t.Context(), &version); err != nil {
			t.Fatal(err)
		}
		replica.Reached(version)
		if replica.may(t, "user:v") {
			t.Fatal("a right is good after its end was seen")
		}
	}
}

func TestWithoutALinkEveryDecisionReads(t *testing.T) {
	t.Parallel()
	b := setup(t, viewer)
	for range 3 {
		if !b.d.may(t, "user:v") {
			t.Fatal("not allowed")
		}
		b.delete(t, viewer)
		if b.d.may(t, "user:v") {
			t.Fatal("still allowed")
		}
		b.insert(t, viewer)
	}
}

func receive(t testing.TB, changes <-chan struct{}) {
	t.Helper()
	select {
	case <-changes:
	case <-time.After(patience):
		t.Fatal("no signal")
	}
}

func TestChangesAreTold(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replica := follow(t, newDecider(t, b.db))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	actor := Actor{Subject: "user:v", Groups: []string{"group:ops"}}
	changes := replica.Changes(ctx, actor, "t")

	b.insert(t, viewer)
	receive(t, changes)
	if !replica.may(t, "user:v") {
		t.Error("told of a change that a decision does not see yet")
	}
	b.delete(t, viewer)
	receive(t, changes)
	ops := allow("group:ops", "provider-viewer", "compute-tenant/t")
	b.insert(t, ops)
	receive(t, changes)
	if !replica.may(t, "user:v", "group:ops") {
		t.Error("the group's binding is not seen")
	}
	b.killLink(t)
	receive(t, changes)
	b.exec(t, "TRUNCATE role_bindings")
	receive(t, changes)

	// Told in order: once the other one is told, this one would have been.
	other := replica.Changes(ctx, Actor{Subject: "user:w"}, "t")
	b.insert(t, allow("user:w", "provider-viewer", "compute-tenant/t"))
	receive(t, other)
	eventually(t, "signals for everybody, after the reconnect, are over", func() bool {
		select {
		case <-changes:
			return false
		default:
			return true
		}
	})
	cancel()
	eventually(t, "the watchers are gone", func() bool {
		replica.watchers.mu.Lock()
		defer replica.watchers.mu.Unlock()
		return len(replica.watchers.byKey) == 0
	})
}

// What is bound in one tenant is told to nobody who asks about another.
func TestChangesAreToldWhereTheyCount(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.withItems(t)
	replica := follow(t, newDecider(t, b.db))
	eventually(t, "the link stands", replica.trusted)
	watch := func(subject, tenantID string) <-chan struct{} {
		return replica.Changes(t.Context(), Actor{Subject: subject}, tenantID)
	}
	inA, inB, last := watch("user:v", "a"), watch("user:v", "b"), watch("user:last", "a")
	for object, want := range map[string][2]int{
		"compute-tenant/a": {1, 0}, "compute-provider-account/" + account1: {1, 0}, "compute-pool/" + pool1: {1, 0},
		"compute-tenant/b": {0, 1}, "compute-provider-account/" + account2: {0, 1},
		"compute-fleet": {1, 1}, "compute-pool/pool_that_is_not_there": {1, 1},
	} {
		for what, change := range map[string]string{
			"made":    "INSERT INTO role_bindings (subject, role, object, effect) VALUES ('user:v', 'provider-viewer', ?, 'allow')",
			"changed": "UPDATE role_bindings SET effect = 'deny' WHERE subject = 'user:v' AND object = ?",
			"removed": "DELETE FROM role_bindings WHERE subject = 'user:v' AND object = ?",
		} {
			b.exec(t, "DELETE FROM role_bindings")
			if what != "made" {
				b.insert(t, allow("user:v", "provider-viewer", object))
			}
			b.settle(t, last)
			empty(inA, inB)
			b.exec(t, change, object)
			b.settle(t, last) // told in order
			if got := [...]int{len(inA), len(inB)}; got != want {
				t.Errorf("a binding on %s was %s: told %v, want %v", object, what, got, want)
			}
		}
	}
}

// settle waits until all that was changed before is told.
func (b *bundle) settle(t testing.TB, last <-chan struct{}) {
	t.Helper()
	empty(last)
	binding := allow("user:last", "provider-viewer", "compute-tenant/a")
	b.delete(t, binding)
	b.insert(t, binding)
	receive(t, last)
}

func empty(signals ...<-chan struct{}) {
	for _, c := range signals {
		select {
		case <-c:
		default:
		}
	}
}

func TestSignalsComeAsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := &Decider{cache: newPolicyCache(10, 10)}
		ctx, cancel := context.WithCancel(t.Context())
		one := d.Changes(ctx, Actor{Subject: "user:a", Groups: []string{"group:g", "ignored"}}, "t")
		two := d.Changes(ctx, Actor{Subject: "user:b", Groups: []string{"group:g"}}, "t")
		for _, payload := range []string{"user:a", "~t user:a", "~ group:g", "*", "=x"} {
			d.notified(payload)
		}
		if len(one) != 1 || len(two) != 1 {
			t.Errorf("%d and %d signals wait", len(one), len(two))
		}
		<-one
		<-two
		for _, payload := range []string{"user:a", "~t user:a", "~u user:b", "~t ignored", "group:g"} {
			d.notified(payload)
		}
		if len(one) != 1 || len(two) != 0 {
			t.Errorf("%d and %d signals wait", len(one), len(two))
		}
		cancel()
		synctest.Wait()
		if n := len(d.watchers.byKey); n != 0 {
			t.Errorf("%d subjects are still watched", n)
		}
	})
}

// Many decisions beside many changes: for the race detector, and for the rule that what was read
// before a change is not kept after it.
func TestDecisionsBesideChanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	replica := follow(t, newDecider(t, b.db))
	ctx, cancel := context.WithCancel(t.Context())
	var deciders sync.WaitGroup
	for range 4 {
		deciders.Go(func() {
			for ctx.Err() == nil {
				if _, err := replica.Permissions(as(ctx, "user:v", "group:g"), Tenant("t")); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 100 {
		b.insert(t, viewer)
		b.delete(t, viewer)
		wantWithinASecond(t, replica, "user:v", false)
	}
	cancel()
	deciders.Wait()
}
