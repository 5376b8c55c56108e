package e2e

import (
	"strconv"
	"testing"

	"better/compute/apitest/harness"
	"better/compute/apitest/netns"
)

// run is a bootstrap as its owner sees it.
type run struct {
	ID, MachineID, HostID, Status, WaitReason, Cleanup string

	Failure *struct {
		Reason, Message string
		LogTail         []string
	}
	History []transition
}

// transition is a step of a run, in its history and in what watchers see.
type transition struct {
	From, To, At string
}

const runFields = `{ id machineId hostId status waitReason cleanup failure { reason message logTail } history { from to at } }`

// The way of a run that goes well.
var (
	byMachine = []string{"IDENTIFYING", "PREPARING", "INSTALLING", "INSTALLED", "JOINED"}
	byOffer   = append([]string{"CLAIMING"}, byMachine...)
)

// inventory is a config for the driver ssh: the hosts as machines m1, m2 and so on, each with a key of its own.
func (c caller) inventory(hosts ...*netns.Host) map[string]any {
	c.t.Helper()
	machines := make([]map[string]any, len(hosts))
	for i, h := range hosts {
		c.keepSecret(h.PrivateKey)
		secret := "key-" + h.Name
		mustChange[struct{}](c, "putSecret", "PutSecretInput", "{ secret { name } }", map[string]any{"name": secret, "value": h.PrivateKey})
		machines[i] = map[string]any{
			"id": machineName(i), "address": h.Address.String(), "hostFingerprint": h.Fingerprint, "privateKey": "secret://" + secret,
			"kind": "metal", "region": "home", "hardware": map[string]any{"vcpu": 2, "memoryGiB": 4},
		}
	}
	return map[string]any{"machines": machines}
}

func machineName(i int) string { return "m" + strconv.Itoa(i+1) }

func (c caller) createAccount(name string, config map[string]any) (id string) {
	c.t.Helper()
	p := mustChange[struct{ ProviderAccount struct{ ID string } }](c, "createProviderAccount", "CreateProviderAccountInput",
		"{ providerAccount { id } }", map[string]any{"provider": "ssh", "name": name, "config": config})
	return p.ProviderAccount.ID
}

func (c caller) createPool(name string) (id string) {
	c.t.Helper()
	p := mustChange[struct{ Pool struct{ ID string } }](c, "createPool", "CreatePoolInput", "{ pool { id } }",
		map[string]any{"name": name, "class": "METAL_HOST", "agent": "BCD"})
	return p.Pool.ID
}

// site is an account with a pool to bootstrap into.
type site struct {
	caller
	account, pool string
}

func (c caller) newSite(name string, hosts ...*netns.Host) site {
	c.t.Helper()
	return site{c, c.createAccount(name, c.inventory(hosts...)), c.createPool(name)}
}

// tryBootstrap names the machine or the offer by `machineId` or `offerId`.
func (s site) tryBootstrap(by, id, key string) (string, *refusal) {
	s.t.Helper()
	p, refused := change[struct{ Bootstrap struct{ ID string } }](s.caller, "bootstrapMachine", "BootstrapMachineInput", "{ bootstrap { id } }",
		map[string]any{"accountId": s.account, "poolId": s.pool, by: id, "idempotencyKey": key})
	return p.Bootstrap.ID, refused
}

func (s site) bootstrap(by, id, key string) (runID string) {
	s.t.Helper()
	runID, refused := s.tryBootstrap(by, id, key)
	if refused != nil {
		s.t.Fatalf("bootstrapMachine was refused: %s", refused.text)
	}
	return runID
}

func (c caller) run(id string) run {
	c.t.Helper()
	return must[struct{ Bootstrap run }](c, `query($t: ID!, $id: ID!) { bootstrap(tenantId: $t, bootstrapId: $id) `+runFields+` }`,
		map[string]any{"t": c.tenant, "id": id}).Bootstrap
}

// awaitRun polls until the run is in the state. A run that ends otherwise fails the test at once.
func (c caller) awaitRun(id, status string) run {
	c.t.Helper()
	var r run
	harness.Await(c.t, "run "+id+" is "+status, func() bool {
		r = c.run(id)
		if r.Status != status && (r.Status == "JOINED" || r.Status == "FAILED") {
			c.t.Fatalf("run %s is %s and not %s: %+v", id, r.Status, status, r.Failure)
		}
		return r.Status == status
	})
	return r
}

// checkWay fails the test unless the history has each state of the way once, in order.
func checkWay(t testing.TB, r run, way []string) {
	t.Helper()
	for i, step := range r.History {
		from := ""
		if i > 0 {
			from = r.History[i-1].To
		}
		if step.From != from || i >= len(way) || step.To != way[i] {
			t.Errorf("step %d of run %s is %+v; the way is %q", i, r.ID, step, way)
		}
	}
	if len(r.History) != len(way) {
		t.Errorf("run %s went %d of %d steps: %+v", r.ID, len(r.History), len(way), r.History)
	}
}

// host is a host as its owner sees it.
type host struct {
	LastSeenAt, RemovedAt string
}

func (c caller) host(id string) host {
	c.t.Helper()
	return must[struct{ Host host }](c, `query($t: ID!, $id: ID!) { host(tenantId: $t, hostId: $id) { lastSeenAt removedAt } }`,
		map[string]any{"t": c.tenant, "id": id}).Host
}

// awaitHeartbeat polls until the host was heard again.
func (c caller) awaitHeartbeat(id string) {
	c.t.Helper()
	before := c.host(id).LastSeenAt
	harness.Await(c.t, "host "+id+" is heard again", func() bool { return c.host(id).LastSeenAt > before })
}
