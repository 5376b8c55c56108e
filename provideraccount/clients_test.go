package provideraccount

import (
	"context"
	"errors"
	"testing"

	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

// full is a client that can do everything, and counts that it was asked.
type full struct {
	provider.Bootstrapper
	provider.Orderer
	err error
}

func (f *full) Check(context.Context) error                                    { return f.err }
func (f *full) Offers(context.Context) ([]*model.Offer, error)                 { return nil, f.err }
func (f *full) Machines(context.Context) ([]*model.Machine, error)             { return nil, f.err }
func (f *full) Close() error                                                   { return nil }
func (f *full) Identify(context.Context, string) (*provider.Identity, error)   { return nil, f.err }
func (f *full) MachineKey(machineID string) (string, error)                    { return "key:" + machineID, nil }
func (f *full) Order(context.Context, provider.Order) (*provider.Claim, error) { return nil, f.err }

// bare is a client with nothing but the lists.
type bare struct{ provider.Client }

func TestGuardedClientsCanDoWhatTheDriversCan(t *testing.T) {
	t.Parallel()
	f := &full{}
	for name, c := range map[string]struct {
		client             provider.Client
		bootstraps, orders bool
	}{
		"all":        {f, true, true},
		"bootstraps": {struct{ provider.Bootstrapper }{f}, true, false},
		"orders":     {struct{ provider.Orderer }{f}, false, true},
		"lists":      {bare{f}, false, false},
	} {
		guarded := (&entry{client: c.client}).guarded()
		if _, ok := guarded.(provider.Bootstrapper); ok != c.bootstraps {
			t.Errorf("%s: bootstraps is %v", name, ok)
		}
		if _, ok := guarded.(provider.Orderer); ok != c.orders {
			t.Errorf("%s: orders is %v", name, ok)
		}
	}
}

func TestGuardedClientLearnsFromEveryCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	f := &full{err: provider.Errorf(provider.Forbidden, "No.")}
	e := &entry{account: b.create(t, "main"), client: f, breaker: b.clients.breaker}
	guarded := e.guarded()
	if _, err := guarded.(provider.Bootstrapper).Identify(t.Context(), "m"); err != f.err {
		t.Errorf("got %v", err)
	}
	f.err = nil
	if _, err := guarded.(provider.Orderer).Order(t.Context(), provider.Order{}); provider.ClassOf(err) != provider.Auth {
		t.Errorf("an order after refused credentials: %v", err)
	}
	if key, err := guarded.(provider.Bootstrapper).MachineKey("m"); key != "key:m" || err != nil {
		t.Errorf("a key needs no credentials: %v, %v", key, err)
	}
}

func TestClientsCloseAfterTheirLastCall(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	let, inside := make(chan struct{}), make(chan struct{})
	b.cloud.offers = func(context.Context, provider.Account) ([]*model.Offer, error) {
		close(inside)
		<-let
		return nil, nil
	}
	done := make(chan error)
	go func() {
		_, err := b.Offers(admin(t), offersOf(a))
		done <- err
	}()
	<-inside
	stale, err := b.Open(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	updated, err := b.Update(admin(t), update(a, `{}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(t.Context(), updated.ProviderAccount); err != nil {
		t.Fatal(err)
	}
	if _, closed, _ := b.cloud.counts(); closed != 0 {
		t.Error("the client was closed under a call")
	}
	if _, err := stale.Machines(t.Context()); provider.ClassOf(err) != provider.Unavailable {
		t.Errorf("a new call on the old client: %v", err)
	}
	close(let)
	if err := <-done; err != nil {
		t.Errorf("the call that was under way: %v", err)
	}
	if opened, closed, _ := b.cloud.counts(); opened != 2 || closed != 1 {
		t.Errorf("%d opened, %d closed", opened, closed)
	}
	if _, err := b.Open(t.Context(), a); provider.ClassOf(err) != provider.Unavailable {
		t.Errorf("a row that is behind gets a client of another version: %v", err)
	}
	if err := b.delete(admin(t), a); err != nil {
		t.Fatal(err)
	}
	if opened, closed, _ := b.cloud.counts(); opened != 2 || closed != 2 {
		t.Errorf("after the delete: %d opened, %d closed", opened, closed)
	}
	b.Close()
	_, err = b.Open(t.Context(), a)
	wantCode(t, err, problem.Unavailable)
}

func TestOpenThatFails(t *testing.T) {
	t.Parallel()
	c := newClients(nil, mustRegistry(t, failing{newCloud("sim")}), nil, nil)
	_, err := c.get(t.Context(), &model.ProviderAccount{ID: "x", Provider: "sim"})
	wantCode(t, err, problem.ProviderError)
}

type failing struct{ *cloud }

func (failing) Open(context.Context, provider.Account) (provider.Client, error) {
	return nil, errors.New("cannot")
}

func mustRegistry(t *testing.T, drivers ...provider.Driver) *provider.Registry {
	t.Helper()
	r, err := provider.NewRegistry(drivers...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
