package openstack

import (
	"context"
	"encoding/base64"
	"strings"
	"time"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
)

// MachineKey is the server's UUID.
func (c *client) MachineKey(machineID string) (string, error) {
	if !serverID.MatchString(machineID) {
		return "", c.vendor.Errorf(provider.NotFound)
	}
	return name + ":" + machineID, nil
}

// Identify reads what the server is. Nova gives virtual machines their UUID for a serial number, unless the cloud is set up otherwise, which
// the account's config then says. Bare metal has the one that it was made with.
func (c *client) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	s, err := c.server(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if s.isBeingMade() {
		return nil, provider.Errorf(provider.Unavailable, "%s is still making the machine.", vendorName)
	}
	identity := &provider.Identity{
		Addresses: s.addresses(), CPUs: max(s.Flavor.VCPUs, 0), MemoryMiB: max(int64(s.Flavor.RAM), 0), Disks: disksOf(s.Flavor.Disk),
	}
	if c.config.Serial != "none" && s.Flavor.Specs.kind() == model.VPS {
		identity.Serial = s.ID
	}
	if gpu := gpuOf(s.Flavor.Specs); gpu != nil {
		identity.GPUs = []*model.GPU{gpu}
	}
	return identity, nil
}

// Prepare waits until nothing else is done with the server, and starts one that is off: it would stay off when it is rebuilt.
func (c *client) Prepare(ctx context.Context, machineID string) (*provider.Preparation, error) {
	s, err := c.server(ctx, machineID)
	switch {
	case err != nil:
		return nil, err
	case s.Locked:
		return nil, provider.Errorf(provider.Fatal, "The server is locked at %s.", vendorName)
	case s.TaskState != "":
		return waiting(), nil
	case s.isFailure():
		return nil, provider.Errorf(provider.Fatal, "%s could not make the server; its fault there says why.", vendorName)
	}
	switch s.Status {
	case statusActive, statusError:
		return &provider.Preparation{Ready: true, Step: "ready to be rebuilt"}, nil
	case statusOff:
		if err := c.post(ctx, actions(s.ID), map[string]any{"os-start": nil}, nil); err != nil {
			return nil, err
		}
		return &provider.Preparation{Step: "starting the server", Wait: 5 * time.Second}, nil
	case "RESCUE", "PAUSED", "SUSPENDED", "SHELVED", "SHELVED_OFFLOADED", "VERIFY_RESIZE":
		return nil, provider.Errorf(provider.Fatal, "The server has the status %s at %s, in which it is not rebuilt: bring it back to ACTIVE.", s.Status, vendorName)
	}
	return waiting(), nil
}

func waiting() *provider.Preparation {
	return &provider.Preparation{Step: "waiting until " + vendorName + " is done with the machine", Wait: 5 * time.Second}
}

func actions(id string) string { return "servers/" + id + "/action" }

const (
	maxUserData = 65535 // that Nova takes, encoded
	rebuildRef  = "rebuild"
)

// Install rebuilds the server from the image with user data that installs the agent at its first boot. Conflict while anything else is done
// with it.
func (c *client) Install(ctx context.Context, machineID string, payload provider.Payload) (string, error) {
	if !serverID.MatchString(machineID) {
		return "", c.vendor.Errorf(provider.NotFound)
	}
	userData, err := ssh.UserData(c.account.ID, payload)
	if err != nil {
		return "", err
	}
	encoded := base64.StdEncoding.EncodeToString([]byte(userData))
	if len(encoded) > maxUserData {
		return "", provider.Errorf(provider.Fatal, "The user data is larger than the %d bytes that %s takes.", maxUserData, vendorName)
	}
	rebuild := map[string]any{"rebuild": map[string]string{"imageRef": c.config.ImageID, "user_data": encoded}}
	err = c.post(ctx, actions(machineID), rebuild, nil)
	if told(err).kind == "badRequest" {
		return "", provider.Errorf(provider.InvalidConfig, "%s does not take the rebuild; look at the image in the account's config. A server whose disk is a volume cannot be rebuilt.", vendorName).Because(err)
	}
	if err != nil {
		return "", err
	}
	return rebuildRef, nil
}

// InstallStatus tells how far the rebuild is. From its end on it is the agent's turn.
func (c *client) InstallStatus(ctx context.Context, machineID, installRef string) (*provider.InstallStatus, error) {
	if installRef != rebuildRef {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	s, err := c.server(ctx, machineID)
	switch {
	case err != nil:
		return nil, err
	case s.TaskState != "": // the status may be ERROR still, of a rebuild before
		return &provider.InstallStatus{State: provider.InstallRunning}, nil
	case s.Status == statusError:
		return failed("rebuilding the server failed: " + s.Fault.Message), nil
	case s.Status == statusActive:
		return &provider.InstallStatus{State: provider.InstallSucceeded}, nil
	case s.Status == statusOff:
		return failed("the server is off"), nil
	}
	return &provider.InstallStatus{State: provider.InstallRunning}, nil
}

func failed(why string) *provider.InstallStatus {
	return &provider.InstallStatus{State: provider.InstallFailed, ExitCode: 1, Log: []string{provider.Clean(strings.TrimSuffix(why, ": "))}}
}

// Uninstall can do nothing: nobody but the server's owner can log in there. Its token counts no more, and its agent is refused.
func (c *client) Uninstall(context.Context, string) error { return nil }
