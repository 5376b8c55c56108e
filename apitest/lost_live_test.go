package apitest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"better/compute/apitest/harness"
	"better/compute/internal/id"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/sim"
)

// gate is a driver whose calls wait until they are let through.
type gate struct {
	*sim.Driver
	entered chan struct{} // one for each call
	through chan error    // what it answers
}

func (g *gate) Manifest() provider.Manifest {
	m := g.Driver.Manifest()
	m.Name = "gate"
	return m
}

func (g *gate) Open(context.Context, provider.Account) (provider.Client, error) {
	return &gated{gate: g}, nil
}

// gated answers what reads ask for. Nothing orders or installs.
type gated struct {
	provider.Bootstrapper
	gate *gate
}

func (c *gated) wait(ctx context.Context) error {
	for _, step := range []func() error{
		func() error {
			select {
			case c.gate.entered <- struct{}{}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		func() error {
			select {
			case err := <-c.gate.through:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (c *gated) Check(ctx context.Context) error { return c.wait(ctx) }

func (c *gated) Offers(ctx context.Context) ([]*model.Offer, error) {
	return []*model.Offer{{ID: "seen"}}, c.wait(ctx)
}

func (c *gated) Machines(ctx context.Context) ([]*model.Machine, error) {
	return []*model.Machine{{ID: "seen", Status: provider.MachineFree, Kind: model.VPS}}, c.wait(ctx)
}

func (c *gated) MachineKey(machineID string) (string, error) { return "gate/" + machineID, nil }

func (c *gated) Close() error { return nil }

// TestNoAnswerOutlivesTheRightToIt takes the right to a live call away while the provider is being asked, each time that it is: nothing of the answer
// is told, and of its failure neither.
func TestNoAnswerOutlivesTheRightToIt(t *testing.T) {
	t.Parallel()
	g := &gate{sim.New(sim.Options{Endpoint: "http://127.0.0.1:1"}), make(chan struct{}), make(chan error)}
	s := newServices(t, g)
	account, pool, run := id.New("pacct"), id.New("pool"), id.New("boot")
	s.exec(t, "INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES (?, 'acme', 'gate', 'account', '')", account)
	s.exec(t, "INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, 'acme', 'pool', 'vps-host', 'bcd')", pool)
	s.exec(t, `INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, offer_id, status, wait_reason, operation_id)
		VALUES (?0, 'acme', ?1, ?2, '', 'o', 'claiming', 'CLAIM_UNCERTAIN', ?0)`, run, account, pool)
	named := `(tenantId: "acme", accountId: "` + account + `"`
	of := `(tenantId: "acme", bootstrapId: "` + run + `"`
	for field, c := range map[string]struct {
		document string
		calls    int
	}{
		"Query.offers":                  {`{ offers` + named + `) { id } }`, 1},
		"Query.planBootstrap":           {`{ planBootstrap` + named + `, poolId: "` + pool + `", machineId: "seen") { ready preconditions { name ok message } } }`, 2},
		"ProviderAccount.offers":        {`{ providerAccount` + named + `) { offers { id } } }`, 1},
		"ProviderAccount.machines":      {`{ providerAccount` + named + `) { machines { id } } }`, 1},
		"BootstrapClaim.candidates":     {`{ bootstrap` + of + `) { claim { candidates { id } } } }`, 2},
		"Mutation.resolveClaim":         {`mutation { resolveClaim(input: {tenantId: "acme", bootstrapId: "` + run + `", machineId: "ghost"}) { bootstrap { id } } }`, 1},
		"Mutation.checkProviderAccount": {`mutation { checkProviderAccount(input: {tenantId: "acme", accountId: "` + account + `"}) { providerAccount { id } } }`, 1},
	} {
		for before := range c.calls {
			s.loseTheRight(t, g, field, c.document, before)
		}
	}
}

// loseTheRight takes the right away during the call that so many others came before.
func (s *services) loseTheRight(t *testing.T, g *gate, field, document string, before int) {
	t.Helper()
	for name, outcome := range map[string]error{"an answer": nil, "a failure": provider.Errorf(provider.NotFound, "seen")} {
		s.exec(t, "INSERT INTO role_bindings (subject, role, object, effect) VALUES ('user:reader', 'tenant-admin', 'compute-tenant/acme', 'allow')")
		s.awaitReader(t, true)
		answered := make(chan string, 1)
		go func() { answered <- s.asReader(t, document) }()
		for call := range before + 1 {
			if call > 0 {
				g.through <- nil
			}
			if body := g.take(answered); body != "" {
				t.Fatalf("%s asks no provider after %d calls: %s", field, call, body)
			}
		}
		s.exec(t, "DELETE FROM role_bindings WHERE subject = 'user:reader'")
		s.awaitReader(t, false)
		body := g.letThrough(answered, outcome)
		if !strings.Contains(body, "FORBIDDEN") || strings.Contains(body, "seen") {
			t.Errorf("%s, and %s came to call %d after the right was taken away: %s", field, name, before+1, body)
		}
	}
}

// take waits for the provider to be asked; the answer where it is not.
func (g *gate) take(answered <-chan string) (body string) {
	select {
	case <-g.entered:
		return ""
	case body = <-answered:
		return body
	}
}

// letThrough lets the call that was taken, and any later one, end with the outcome.
func (g *gate) letThrough(answered <-chan string, outcome error) (body string) {
	for {
		select {
		case g.through <- outcome:
		case <-g.entered:
		case body = <-answered:
			return body
		}
	}
}

// awaitReader waits until this replica knows what user:reader may do.
func (s *services) awaitReader(t *testing.T, may bool) {
	t.Helper()
	harness.Await(t, "the change of rights to be followed", func() bool {
		body := s.asReader(t, `{ viewer { permissions(tenantId: "acme") } }`)
		if !strings.Contains(body, "permissions") {
			t.Fatal(errors.New(body))
		}
		return strings.Contains(body, "PROVIDERS_READ") == may
	})
}
