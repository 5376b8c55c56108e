package authz

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"

	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

var (
	stormTime = flag.Duration("storm", 5*time.Second, "how long roles, bindings and tokens change beside decisions")
	stormSeed = flag.Uint64("seed", 0, "the seed of the storm; 0: a new one")
)

// Roles, bindings and an API token change while replicas decide. Each answer must be what the whole policy said at one moment, no earlier than
// a second before the question and no later than the answer: not one mixed from two moments. Two of the changes that come again
// and again are such that roles of one moment with bindings of the other would give what neither gives.
func TestPolicyStorm(t *testing.T) {
	t.Parallel()
	seed := *stormSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	b := setup(t)
	b.addToken(t, "tok", "NULL")
	s := &storm{b: b, ended: make(chan struct{})}
	s.commit(moment{live: true}, time.Now())
	replicas := []*Decider{b.d, follow(t, newDecider(t, b.db)), follow(t, newDecider(t, farAway(t, b.db)))}
	var deciders sync.WaitGroup
	for i := range 2 * len(replicas) {
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		deciders.Go(func() { s.decide(t, replicas[i%len(replicas)], rnd) })
	}
	cutter := rand.New(rand.NewPCG(seed, 1000))
	deciders.Go(func() { s.cutLinks(t, cutter) })
	s.change(t, rand.New(rand.NewPCG(seed, 2000)))
	close(s.ended)
	deciders.Wait()
	verdict := "PASS"
	if s.wrong > 0 || s.decisions == 0 {
		verdict = "FAIL"
	}
	fmt.Printf("authz-storm changes=%d decisions=%d wrong=%d %s seed=%d\n", len(s.history)-1, s.decisions, s.wrong, verdict, seed)
}

// farAway is the database for a replica that hears of changes late.
func farAway(t *testing.T, db *postgres.DB) *postgres.DB {
	t.Helper()
	config := db.Pool.Config()
	dial := config.ConnConfig.DialFunc
	config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return late{conn}, err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return &postgres.DB{DB: db.DB, Pool: pool} // Pool is only asked for its configuration
}

type late struct{ net.Conn }

func (l late) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	time.Sleep(20 * time.Millisecond) // on its way
	return n, err
}

// moment is the whole policy between two changes.
type moment struct {
	reference
	live       bool // the token
	begun, end time.Time
}

type storm struct {
	b     *bundle
	ended chan struct{}

	mu               sync.Mutex
	history          []moment
	next             *moment // what may be committed already
	decisions, wrong int
}

// Callers of which one is read, and cached, while the other is cached already.
var (
	stormActors  = []Actor{{Subject: "user:a", Groups: []string{"group:g"}}, {Subject: "user:a"}, {Subject: "user:b", Groups: []string{"group:g"}}}
	stormTenants = []string{"t", "u"}
)

// change makes one change after another: most at random, some as a walk through policies of which no two may be mixed.
func (s *storm) change(t *testing.T, rnd *rand.Rand) {
	t.Helper()
	deadline := time.Now().Add(*stormTime)
	for time.Now().Before(deadline) && !t.Failed() {
		if rnd.IntN(2) == 0 {
			for _, m := range notToBeMixed {
				s.become(t, moment{reference: m, live: true})
			}
			continue
		}
		s.become(t, randomMoment(rnd))
	}
}

// notToBeMixed: in no step does anybody hold compute:iam:manage, though the role has it while nobody is bound, and somebody is bound
// while it has not; the user is allowed only while the group holds it back.
var notToBeMixed = []reference{
	{[]model.RoleBinding{allow("user:a", "made", "compute-tenant/t")}, map[string][]Permission{"made": {PoolsRead}}},
	{nil, map[string][]Permission{"made": {PoolsRead}}},
	{nil, map[string][]Permission{"made": {IAMManage}}},
	{nil, map[string][]Permission{"made": {PoolsRead}}},
	{[]model.RoleBinding{allow("user:a", "tenant-admin", "compute-tenant/t"), deny("group:g", "fleet-admin", "compute-fleet")}, nil},
	{[]model.RoleBinding{deny("group:g", "fleet-admin", "compute-fleet")}, nil},
	{nil, nil},
}

func randomMoment(rnd *rand.Rand) moment {
	m := moment{live: rnd.IntN(4) > 0, reference: reference{defined: map[string][]Permission{}}}
	for _, name := range []string{"made", "made-too"} {
		chosen := slices.DeleteFunc(AllPermissions(), func(p Permission) bool { return p == IAMManage || rnd.IntN(2) == 0 })
		if len(chosen) > 0 {
			m.defined[name] = chosen
		}
	}
	for _, subject := range []string{"user:a", "group:g"} {
		for _, role := range []string{"made", "made-too", "provider-viewer"} {
			for _, object := range []string{"compute-fleet", "compute-tenant/t", "compute-tenant/u"} {
				switch rnd.IntN(8) {
				case 0, 1:
					m.bindings = append(m.bindings, allow(subject, role, object))
				case 2:
					m.bindings = append(m.bindings, deny(subject, role, object))
				}
			}
		}
	}
	return m
}

func (s *storm) become(t *testing.T, m moment) {
	t.Helper()
	s.mu.Lock()
	m.begun = time.Now()
	s.next = &m // from now on it may be seen
	s.mu.Unlock()
	err := s.b.db.RunInTx(context.WithoutCancel(t.Context()), func(ctx context.Context, tx bun.Tx) error {
		if err := lockPolicy(ctx, tx); err != nil {
			return err
		}
		if err := m.write(ctx, tx); err != nil {
			return err
		}
		_, err := tx.NewRaw("UPDATE api_tokens SET revoked_at = CASE WHEN ? THEN NULL ELSE now() END WHERE (revoked_at IS NULL) <> ?", m.live, m.live).Exec(ctx)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	s.commit(m, time.Now())
}

// commit ends the moment before, and begins one.
func (s *storm) commit(m moment, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.history) > 0 {
		s.history[len(s.history)-1].end = at
	}
	s.history, s.next = append(s.history, m), nil
}

func (s *storm) decide(t *testing.T, d *Decider, rnd *rand.Rand) {
	t.Helper()
	for {
		select {
		case <-s.ended:
			return
		default:
		}
		actor := stormActors[rnd.IntN(len(stormActors))]
		if rnd.IntN(2) == 0 {
			actor.Credential = "tok"
		}
		tenant := stormTenants[rnd.IntN(len(stormTenants))]
		asked := time.Now()
		held, err := d.Permissions(WithActor(t.Context(), actor), Tenant(tenant))
		if err != nil && !problem.Is(err, problem.Unauthenticated) {
			t.Error(err)
			return
		}
		s.judge(t, actor, tenant, asked, held, err == nil)
	}
}

// judge looks for a moment that says the same.
func (s *storm) judge(t *testing.T, a Actor, tenant string, asked time.Time, held []Permission, authenticated bool) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decisions++
	possible := s.history
	for len(possible) > 1 && asked.Sub(possible[0].end) > time.Second {
		possible = possible[1:]
	}
	if s.next != nil {
		possible = append(slices.Clip(possible), *s.next)
	}
	for _, m := range slices.Backward(possible) {
		live := m.live || a.Credential == ""
		if live != authenticated {
			continue
		}
		if !live || slices.Equal(held, m.held(a, tenant)) {
			return
		}
	}
	s.wrong++
	t.Errorf("%v holds %v in %s (authenticated = %v): none of the %d policies of that time says so", a, held, tenant, authenticated, len(possible))
}

func (m moment) held(a Actor, tenant string) []Permission {
	return slices.DeleteFunc(AllPermissions(), func(p Permission) bool { return !m.decides(a, p, "compute-tenant/"+tenant, "compute-fleet") })
}

// cutLinks ends the links that replicas follow changes by, now and then.
func (s *storm) cutLinks(t *testing.T, rnd *rand.Rand) {
	t.Helper()
	for {
		select {
		case <-s.ended:
			return
		case <-time.After(rand.N(500*time.Millisecond) + time.Duration(rnd.IntN(200))*time.Millisecond):
			if _, err := s.b.owner.NewRaw(killLink).Exec(context.WithoutCancel(t.Context())); err != nil {
				t.Error(err)
			}
		}
	}
}
