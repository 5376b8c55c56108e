package hetznercloud

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"better/compute/provider"
	"better/compute/provider/ssh"
)

// MachineKey is the server's id, which Hetzner gives out once over all projects.
func (c *client) MachineKey(machineID string) (string, error) {
	if _, ok := serverNumber(machineID); !ok {
		return "", c.vendor.Errorf(provider.NotFound)
	}
	return name + ":" + machineID, nil
}

// Identify reads what the server is. Its serial number, as the machine itself reads it, is its id.
func (c *client) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	s, err := c.server(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if s.Status == hcloud.ServerStatusInitializing {
		return nil, provider.Errorf(provider.Unavailable, "%s is still making the machine.", vendorName)
	}
	identity := &provider.Identity{Serial: machineID, Addresses: addressesOf(s)}
	if t := s.ServerType; t != nil {
		if arch := archOf(t.Architecture); arch != nil {
			identity.Arch = *arch
		}
		identity.CPUs, identity.Disks = max(t.Cores, 0), disksOf(t)
		if gib := memoryGiB(t.Memory); gib != nil {
			identity.MemoryMiB = int64(*gib * 1024)
		}
	}
	return identity, nil
}

// Prepare waits until nothing else is done with the server. There is nothing to bring about: Install needs it neither on nor off.
func (c *client) Prepare(ctx context.Context, machineID string) (*provider.Preparation, error) {
	s, err := c.server(ctx, machineID)
	switch {
	case err != nil:
		return nil, err
	case s.Protection.Rebuild:
		return nil, provider.Errorf(provider.Fatal, "The server is protected against being rebuilt; take the protection away at %s.", vendorName)
	case s.RescueEnabled:
		return nil, provider.Errorf(provider.Fatal, "The server is set to boot the rescue system next; disable that at %s.", vendorName)
	case s.Locked || s.Status == hcloud.ServerStatusInitializing:
		return &provider.Preparation{Step: "waiting until " + vendorName + " is done with the machine", Wait: 2 * time.Second}, nil
	}
	return &provider.Preparation{Ready: true, Step: "ready to be rebuilt"}, nil
}

const (
	maxUserData     = 32 << 10 // that Hetzner takes
	installRefStart = "action-"
)

// Install rebuilds the server from the image with user data that installs the agent at its first boot. Conflict while an earlier rebuild
// runs.
func (c *client) Install(ctx context.Context, machineID string, payload provider.Payload) (string, error) {
	s, err := c.server(ctx, machineID)
	if err != nil {
		return "", err
	}
	userData, err := ssh.UserData(c.account.ID, payload)
	if err != nil {
		return "", err
	}
	if len(userData) > maxUserData {
		return "", provider.Errorf(provider.Fatal, "The user data is larger than the %d bytes that %s takes.", maxUserData, vendorName)
	}
	var action *hcloud.Action
	err = c.change(ctx, func(ctx context.Context, sdk *hcloud.Client) error {
		result, _, err := sdk.Server.RebuildWithResult(ctx, s, hcloud.ServerRebuildOpts{Image: &hcloud.Image{Name: c.config.Image}, UserData: &userData})
		action = result.Action
		return err
	})
	if err != nil {
		return "", err
	}
	if action == nil || action.ID <= 0 {
		return "", c.vendor.Errorf(provider.UnknownOutcome)
	}
	return installRefStart + strconv.FormatInt(action.ID, 10), nil
}

// InstallStatus tells how far the rebuild is. From its end on it is the agent's turn.
func (c *client) InstallStatus(ctx context.Context, machineID, installRef string) (*provider.InstallStatus, error) {
	server, ok := serverNumber(machineID)
	number, known := serverNumber(strings.TrimPrefix(installRef, installRefStart))
	if !ok || !known {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	var action *hcloud.Action
	err := c.read(ctx, func(ctx context.Context, sdk *hcloud.Client) (err error) {
		action, _, err = sdk.Action.GetByID(ctx, number)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case action == nil || !isAbout(action, server):
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	switch action.Status {
	case hcloud.ActionStatusRunning:
		return &provider.InstallStatus{State: provider.InstallRunning}, nil
	case hcloud.ActionStatusSuccess:
		return &provider.InstallStatus{State: provider.InstallSucceeded}, nil
	case hcloud.ActionStatusError:
		return &provider.InstallStatus{
			State: provider.InstallFailed, ExitCode: 1, Log: []string{"rebuilding the server ended with " + provider.Clean(action.ErrorCode+": "+action.ErrorMessage)},
		}, nil
	}
	return nil, c.vendor.Errorf(provider.InvalidResponse)
}

func isAbout(a *hcloud.Action, server int64) bool {
	for _, r := range a.Resources {
		if r != nil && r.Type == hcloud.ActionResourceTypeServer && r.ID == server {
			return true
		}
	}
	return false
}

// Uninstall can do nothing: nobody but the server's owner can log in there. Its token counts no more, and its agent is refused.
func (c *client) Uninstall(context.Context, string) error { return nil }
