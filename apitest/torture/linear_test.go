package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"better/compute/apitest/harness"
	"better/compute/internal/id"
)

// call is one request of a history. Calls of one group share keys, and creates also names.
type call struct {
	group string
	key   string
	what  string // the name that is created, or the pool that the machine is for
	named bool   // what is unique in its group
}

// reply is what came of it. Without an answer anything may have happened.
type reply struct {
	lost     bool
	id       string
	replayed bool
	conflict bool
}

// made is what one key stands for.
type made struct{ what, id string }

// keys is the state of one group. It is never changed, only replaced.
type keys map[string]made

func (k keys) with(key string, m made) keys {
	next := keys{key: m}
	for other, was := range k {
		if other != key {
			next[other] = was
		}
	}
	return next
}

func (k keys) taken(what string) bool {
	for _, m := range k {
		if m.what == what {
			return true
		}
	}
	return false
}

// contract is what calls with keys promise: the first call with a key makes something, each further one with the same input gives it
// again, and one with another input changes nothing.
func contract() porcupine.Model {
	return porcupine.Model{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			groups := map[string][]porcupine.Operation{}
			for _, op := range history {
				group := op.Input.(call).group //nolint:forcetypeassert // there are no others
				groups[group] = append(groups[group], op)
			}
			all := make([][]porcupine.Operation, 0, len(groups))
			for _, ops := range groups {
				all = append(all, ops)
			}
			return all
		},
		Init: func() any { return keys{} },
		Step: func(state, input, output any) (bool, any) {
			k, in, out := state.(keys), input.(call), output.(reply) //nolint:forcetypeassert // there are no others
			was, known := k[in.key]
			switch {
			case known && was.what != in.what, !known && in.named && k.taken(in.what):
				return out.lost || out.conflict, k
			case !known:
				return out.lost || !out.conflict && !out.replayed, k.with(in.key, made{in.what, out.id})
			case out.lost:
				return true, k
			case was.id == "": // made by a call whose answer was lost
				return !out.conflict && out.replayed, k.with(in.key, made{in.what, out.id})
			default:
				return !out.conflict && out.replayed && out.id == was.id, k
			}
		},
		Equal: func(a, b any) bool {
			left, right := a.(keys), b.(keys) //nolint:forcetypeassert // there are no others
			if len(left) != len(right) {
				return false
			}
			for key, m := range left {
				if right[key] != m {
					return false
				}
			}
			return true
		},
	}
}

// firstSecret is what the first account has for its project of the cloud.
const firstSecret = "env://PROJECT_0"

// tenantOf makes a tenant that only one history knows.
func (r *rig) tenantOf(history int) (tenant, accountID string, pools [2]string) {
	tenant, accountID = fmt.Sprint("history-", history), id.New("pacct")
	r.exec("INSERT INTO provider_accounts (id, tenant_id, provider, name, config, created_by) VALUES (?, ?, 'sim', 'of-the-runs', ?, 'test')",
		accountID, tenant, `{"apiToken":"`+firstSecret+`"}`)
	for i := range pools {
		pools[i] = id.New("pool")
		r.exec("INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, ?, ?, 'vps-host', 'bcd')", pools[i], tenant, fmt.Sprint("pool-", i))
	}
	return tenant, accountID, pools
}

// once makes one call through one replica, and never again.
func (r *rig) once(ctx context.Context, tenant, accountID string, pools [2]string, in call, p *replica) reply {
	type thing struct{ ID string }
	type payload struct {
		ProviderAccount, Bootstrap thing
		Replayed                   bool
	}
	mutation, input, fields := "createProviderAccount", "CreateProviderAccountInput", "{ providerAccount { id } replayed }"
	values := map[string]any{
		"tenantId": tenant, "provider": "sim", "name": in.what, "config": map[string]any{"apiToken": firstSecret}, "idempotencyKey": in.key,
	}
	if !in.named {
		mutation, input, fields = "bootstrapMachine", "BootstrapMachineInput", "{ bootstrap { id } replayed }"
		pool := pools[0]
		if in.what != "first" {
			pool = pools[1]
		}
		values = map[string]any{"tenantId": tenant, "accountId": accountID, "poolId": pool, "offerId": r.offer, "idempotencyKey": in.key}
	}
	body := mustJSON(r.t, map[string]any{
		"query":     fmt.Sprintf("mutation($input: %s!) { payload: %s(input: $input) %s }", input, mutation, fields),
		"variables": map[string]any{"input": values},
	})
	out, err := askOne[payload](ctx, r, p, body)
	e, refused := errors.AsType[*refusal](err)
	switch {
	case err == nil:
		return reply{id: out.ProviderAccount.ID + out.Bootstrap.ID, replayed: out.Replayed}
	case refused && e.Code == "CONFLICT":
		return reply{conflict: true}
	case refused && e.Code != "UNAVAILABLE" && e.Code != "INTERNAL":
		r.t.Errorf("%s: %v", mutation, err)
	}
	return reply{lost: true}
}

const (
	clients = 8 // of a history
	abreast = 5 // histories
)

// history is what the clients of one tenant see.
type history struct {
	tenant, account string
	pools           [2]string
	inputs          []call
	random          []*rand.Rand // of each client

	mu   sync.Mutex
	next int
	ops  []porcupine.Operation
	lost int
}

func (r *rig) newHistory(number, calls int, random *rand.Rand) *history {
	h := &history{inputs: make([]call, calls)}
	h.tenant, h.account, h.pools = r.tenantOf(number)
	for i := range h.inputs {
		group := random.IntN(max(1, calls/40))
		in := call{group: fmt.Sprint("create-", group), key: fmt.Sprintf("k-%d-%d", group, random.IntN(3)), what: fmt.Sprintf("n-%d-%d", group, random.IntN(3)), named: true}
		if i%2 == 0 {
			in = call{group: fmt.Sprint("boot-", group), key: fmt.Sprintf("b-%d-%d", group, random.IntN(3)), what: []string{"first", "second"}[random.IntN(5)/4]}
		}
		h.inputs[i] = in
	}
	for range clients {
		h.random = append(h.random, rand.New(rand.NewPCG(random.Uint64(), 0)))
	}
	return h
}

// take gives a client its next call; false when all are made.
func (h *history) take() (in call, more bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.next == len(h.inputs) {
		return call{}, false
	}
	h.next++
	return h.inputs[h.next-1], true
}

// happen makes all calls, each through one of the servers that serve. It counts them.
func (h *history) happen(r *rig, serving *serving, made *atomic.Int64) {
	var wait sync.WaitGroup
	began := time.Now()
	for client, random := range h.random {
		wait.Go(func() {
			for in, more := h.take(); more; in, more = h.take() {
				op := porcupine.Operation{ClientId: client, Input: in, Call: int64(time.Since(began))}
				out := r.once(r.t.Context(), h.tenant, h.account, h.pools, in, serving.one(random))
				op.Output, op.Return = out, int64(time.Since(began))
				if out.lost {
					op.Return = int64(time.Hour) // it may still have its effect
				}
				h.mu.Lock()
				h.ops = append(h.ops, op)
				if out.lost {
					h.lost++
				}
				h.mu.Unlock()
				made.Add(1)
			}
		})
	}
	wait.Wait()
}

// serving is the servers that clients may ask: all but one that was killed and is not back yet. What was under way when it died has no
// answer, and nothing more is lost to it.
type serving struct {
	mu  sync.Mutex
	all []*replica
}

func (s *serving) one(random *rand.Rand) *replica {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[random.IntN(len(s.all))]
}

// killed takes a server away, and puts it back once it is ready again.
func (s *serving) killed(t testing.TB, r *rig, p *replica) {
	t.Helper()
	p.Kill()
	s.set(slices.DeleteFunc(slices.Clone(r.replicas), func(other *replica) bool { return other == p }))
	p.start()
	p.Ready(t)
	s.set(r.replicas)
}

func (s *serving) set(all []*replica) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = all
}

// together has histories happen at a time, while servers die: one more often than there are histories.
func (r *rig) together(histories []*history, calls int) {
	serving, made := &serving{all: r.replicas}, new(atomic.Int64)
	var wait sync.WaitGroup
	for _, h := range histories {
		wait.Go(func() { h.happen(r, serving, made) })
	}
	kills := len(histories) + 1
	for kill := range kills {
		at := int64((kill + 1) * calls * len(histories) / (kills + 1))
		harness.Await(r.t, "the histories go on", func() bool { return made.Load() >= at })
		serving.killed(r.t, r, r.replicas[kill%len(r.replicas)])
	}
	wait.Wait()
}

// Calls with keys through two servers that die: whatever the clients see could have been seen of one server that does one call after the other.
func TestHistories(t *testing.T) {
	histories, calls, seed := number(t, "HISTORIES", 1), number(t, "CALLS", 1000), seedOf(t)
	r := newRig(t, 1, 2)
	r.killCloud() // the runs need not go on, and wait for each other
	random := rand.New(rand.NewPCG(seed, 0))
	illegal, unknown, lost, all, starts := 0, 0, 0, 0, 0
	for first := 0; first < histories && !t.Failed(); first += abreast {
		var some []*history
		for i := first; i < min(first+abreast, histories); i++ {
			some = append(some, r.newHistory(i, calls, random))
		}
		r.together(some, calls)
		for i, h := range some {
			lost, all = lost+h.lost, all+len(h.ops)
			switch porcupine.CheckOperationsTimeout(contract(), h.ops, 10*time.Minute) {
			case porcupine.Illegal:
				illegal++
				t.Errorf("history %d cannot have been", first+i)
			case porcupine.Unknown:
				unknown++
				t.Errorf("it cannot be told of history %d whether it can have been", first+i)
			case porcupine.Ok:
			}
		}
	}
	for _, p := range r.replicas {
		starts += p.starts
	}
	if all != histories*calls || lost*5 > all {
		t.Errorf("%d of %d calls were made, %d of them without an answer: that proves too little", all, histories*calls, lost)
	}
	harness.Report(t, t.Name(), seed, "histories=%d calls=%d kills=%d without-answer=%d illegal=%d unknown=%d",
		histories, all, starts-len(r.replicas), lost, illegal, unknown)
}

// What cannot be is found: or the histories would prove nothing.
func TestContract(t *testing.T) {
	t.Parallel()
	op := func(from, to int64, key, what string, out reply) porcupine.Operation {
		return porcupine.Operation{Input: call{group: "g", key: key, what: what, named: true}, Call: from, Return: to, Output: out}
	}
	for name, tc := range map[string]struct {
		history []porcupine.Operation
		want    bool
	}{
		"made once":              {[]porcupine.Operation{op(1, 2, "k", "n", reply{id: "a"}), op(3, 4, "k", "n", reply{id: "a", replayed: true})}, true},
		"made twice":             {[]porcupine.Operation{op(1, 4, "k", "n", reply{id: "a"}), op(2, 3, "k", "n", reply{id: "a"})}, false},
		"replay of another":      {[]porcupine.Operation{op(1, 2, "k", "n", reply{id: "a"}), op(3, 4, "k", "n", reply{id: "b", replayed: true})}, false},
		"replay before the call": {[]porcupine.Operation{op(1, 2, "k", "n", reply{id: "a", replayed: true}), op(3, 4, "k", "n", reply{id: "a"})}, false},
		"one name for two":       {[]porcupine.Operation{op(1, 2, "k", "n", reply{id: "a"}), op(3, 4, "l", "n", reply{id: "b"})}, false},
		"one name, one conflict": {[]porcupine.Operation{op(1, 2, "k", "n", reply{id: "a"}), op(3, 4, "l", "n", reply{conflict: true})}, true},
		"conflict with nothing":  {[]porcupine.Operation{op(1, 2, "k", "n", reply{conflict: true})}, false},
		"lost, and had effect":   {[]porcupine.Operation{op(1, 9, "k", "n", reply{lost: true}), op(3, 4, "k", "n", reply{id: "a", replayed: true})}, true},
		"lost, without effect":   {[]porcupine.Operation{op(1, 9, "k", "n", reply{lost: true}), op(3, 4, "k", "n", reply{id: "a"})}, true},
		"forgotten":              {[]porcupine.Operation{op(1, 2, "k", "n", reply{id: "a"}), op(3, 4, "k", "m", reply{id: "a"})}, false},
	} {
		if got := porcupine.CheckOperations(contract(), tc.history); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
