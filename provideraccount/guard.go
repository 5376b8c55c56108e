package provideraccount

import (
	"context"

	"better/compute/model"
	"better/compute/provider"
)

// guarded gives the client to others so that every call on it counts and learns of refused credentials. It can do what the driver's can.
func (e *entry) guarded() provider.Client {
	c := guardedClient{e}
	bootstrapper, bootstraps := e.client.(provider.Bootstrapper)
	orderer, orders := e.client.(provider.Orderer)
	switch {
	case bootstraps && orders:
		return struct {
			guardedBootstrapper
			guardedOrders
		}{guardedBootstrapper{c, bootstrapper}, guardedOrders{e, orderer}}
	case bootstraps:
		return guardedBootstrapper{c, bootstrapper}
	case orders:
		return struct {
			guardedClient
			guardedOrders
		}{c, guardedOrders{e, orderer}}
	}
	return c
}

func call[T any](ctx context.Context, e *entry, do func() (T, error)) (answer T, err error) {
	if err := e.begin(); err != nil {
		return answer, err
	}
	stamp, err := e.breaker.admit(ctx, e.account)
	if err == nil {
		answer, err = do()
	}
	e.end(ctx, stamp, err)
	return answer, err
}

func callErr(ctx context.Context, e *entry, do func() error) error {
	_, err := call(ctx, e, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

type guardedClient struct{ e *entry }

func (g guardedClient) Check(ctx context.Context) error {
	return callErr(ctx, g.e, func() error { return g.e.client.Check(ctx) })
}

func (g guardedClient) Offers(ctx context.Context) ([]*model.Offer, error) {
	return call(ctx, g.e, func() ([]*model.Offer, error) { return g.e.client.Offers(ctx) })
}

func (g guardedClient) Machines(ctx context.Context) ([]*model.Machine, error) {
	return call(ctx, g.e, func() ([]*model.Machine, error) { return g.e.client.Machines(ctx) })
}

// Close does nothing: the client is shared.
func (g guardedClient) Close() error { return nil }

type guardedBootstrapper struct {
	guardedClient
	b provider.Bootstrapper
}

// MachineKey makes no call, so there is nothing to guard.
func (g guardedBootstrapper) MachineKey(machineID string) (string, error) {
	return g.b.MachineKey(machineID)
}

func (g guardedBootstrapper) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	return call(ctx, g.e, func() (*provider.Identity, error) { return g.b.Identify(ctx, machineID) })
}

func (g guardedBootstrapper) Prepare(ctx context.Context, machineID string) (*provider.Preparation, error) {
	return call(ctx, g.e, func() (*provider.Preparation, error) { return g.b.Prepare(ctx, machineID) })
}

func (g guardedBootstrapper) Install(ctx context.Context, machineID string, payload provider.Payload) (string, error) {
	return call(ctx, g.e, func() (string, error) { return g.b.Install(ctx, machineID, payload) })
}

func (g guardedBootstrapper) InstallStatus(ctx context.Context, machineID, ref string) (*provider.InstallStatus, error) {
	return call(ctx, g.e, func() (*provider.InstallStatus, error) { return g.b.InstallStatus(ctx, machineID, ref) })
}

func (g guardedBootstrapper) Uninstall(ctx context.Context, machineID string) error {
	return callErr(ctx, g.e, func() error { return g.b.Uninstall(ctx, machineID) })
}

type guardedOrders struct {
	e *entry
	o provider.Orderer
}

func (g guardedOrders) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	return call(ctx, g.e, func() (*provider.Claim, error) { return g.o.FindClaim(ctx, operationID) })
}

func (g guardedOrders) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	return call(ctx, g.e, func() (*provider.Claim, error) { return g.o.Order(ctx, order) })
}

func (g guardedOrders) Release(ctx context.Context, operationID, machineID string) error {
	return callErr(ctx, g.e, func() error { return g.o.Release(ctx, operationID, machineID) })
}
