package ssh

import (
	"context"

	"better/compute/model"
	"better/compute/provider"
)

// Fleet is the machines of another driver's account, reached over SSH. A driver whose vendor takes user data only when it makes a machine
// embeds one: it orders with UserData, and has Prepare, Install, InstallStatus and Uninstall from here.
//
// A machine is pinned to the host key that its operation gave it, or to the fingerprint that the account's config has for it. One with
// neither is not spoken to.
type Fleet struct {
	Account provider.Account
	// PrivateKey is the reference to the key to log in with.
	PrivateKey string
	// Fingerprints are of the host keys of machines that were not ordered with UserData, by machine.
	Fingerprints map[string]string
	// Field is what Fingerprints is called in the account's config.
	Field string
	// Find reads where a machine is. Its errors are the driver's.
	Find func(ctx context.Context, machineID string) (Found, error)
}

// Found is where a machine of a fleet is.
type Found struct {
	Address string
	// User is root when empty.
	User string
	// OperationID is the operation that ordered it; empty when none did.
	OperationID string
	Kind        model.MachineKind
}

func (f *Fleet) access(ctx context.Context, operationID string) (*Access, error) {
	key, err := f.Account.Secret(ctx, f.PrivateKey)
	if err != nil {
		return nil, err
	}
	return NewAccess(key, operationID)
}

// UserData is what to order a machine with for the operation.
func (f *Fleet) UserData(ctx context.Context, operationID string) (string, error) {
	access, err := f.access(ctx, operationID)
	if err != nil {
		return "", err
	}
	return access.UserData()
}

// Fingerprint is that of the host key that the machine must show; empty when it is not known. The config goes before the operation:
// somebody may have given an ordered machine another key.
func (f *Fleet) Fingerprint(ctx context.Context, machineID, operationID string) (string, error) {
	if pin, known := f.Fingerprints[machineID]; known || operationID == "" {
		return pin, nil
	}
	access, err := f.access(ctx, operationID)
	if err != nil {
		return "", err
	}
	return access.Fingerprint(), nil
}

// on opens a client for the one machine.
func (f *Fleet) on(ctx context.Context, machineID string) (provider.Bootstrapper, error) {
	found, err := f.Find(ctx, machineID)
	if err != nil {
		return nil, err
	}
	pin, err := f.Fingerprint(ctx, machineID, found.OperationID)
	if err != nil {
		return nil, err
	}
	if pin == "" {
		return nil, provider.Errorf(provider.InvalidConfig, "Nothing was ordered here that is machine %s, so its host key is not known: put the fingerprint into %s in the account's config.", machineID, f.Field)
	}
	return New(Options{}).On(ctx, f.Account, Machine{
		ID: machineID, Address: found.Address, User: found.User, Fingerprint: pin, PrivateKey: f.PrivateKey, Kind: found.Kind,
	})
}

// Prepare says whether the machine can be installed now.
func (f *Fleet) Prepare(ctx context.Context, machineID string) (*provider.Preparation, error) {
	b, err := f.on(ctx, machineID)
	if err != nil {
		return nil, err
	}
	return b.Prepare(ctx, machineID)
}

// Install copies the agent onto the machine and starts it.
func (f *Fleet) Install(ctx context.Context, machineID string, payload provider.Payload) (string, error) {
	b, err := f.on(ctx, machineID)
	if err != nil {
		return "", err
	}
	return b.Install(ctx, machineID, payload)
}

// InstallStatus looks whether the agent runs.
func (f *Fleet) InstallStatus(ctx context.Context, machineID, installRef string) (*provider.InstallStatus, error) {
	b, err := f.on(ctx, machineID)
	if err != nil {
		return nil, err
	}
	return b.InstallStatus(ctx, machineID, installRef)
}

// Uninstall stops and removes what this account installed.
func (f *Fleet) Uninstall(ctx context.Context, machineID string) error {
	b, err := f.on(ctx, machineID)
	if err != nil {
		return err
	}
	return b.Uninstall(ctx, machineID)
}
