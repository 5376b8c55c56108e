package ironic

import (
	"context"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack/baremetal/v1/nodes"

	"better/compute/provider"
	"better/compute/provider/ssh"
)

// MachineKey is the node's UUID.
func (c *client) MachineKey(machineID string) (string, error) {
	if !isNodeID(machineID) {
		return "", c.vendor.Errorf(provider.NotFound)
	}
	return name + ":" + machineID, nil
}

// Identify reads what the node is. Its serial number is known where somebody wrote it into the node's extra.serial.
func (c *client) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	n, err := c.node(ctx, machineID)
	if err != nil {
		return nil, err
	}
	f := factsOf(*n)
	serial, _ := n.Extra["serial"].(string)
	identity := &provider.Identity{
		Serial: serial, Addresses: []string{}, Arch: f.arch, CPUs: int(f.cpus), MemoryMiB: f.memoryMiB, Disks: f.disks(),
	}
	if gpu := f.gpu(); gpu != nil {
		identity.GPUs = append(identity.GPUs, gpu)
	}
	return identity, nil
}

// Prepare waits until nothing else is done with the node, and takes it out of rescue.
func (c *client) Prepare(ctx context.Context, machineID string) (*provider.Preparation, error) {
	n, err := c.node(ctx, machineID)
	switch {
	case err != nil:
		return nil, err
	case n.Maintenance:
		return nil, provider.Errorf(provider.Fatal, "The node is in maintenance at %s.", vendorName)
	case n.Protected:
		return nil, provider.Errorf(provider.Fatal, "The node is protected at %s against being deployed anew.", vendorName)
	case n.Reservation != "":
		return waiting(), nil
	}
	switch nodes.ProvisionState(n.ProvisionState) {
	case nodes.Available:
		if n.InstanceUUID == "" {
			return nil, provider.Errorf(provider.Fatal, "The node is free, and anybody may be given it: order it by its offer.")
		}
		return &provider.Preparation{Ready: true, Step: "ready to be deployed"}, nil
	case nodes.Active, nodes.DeployFail:
		return &provider.Preparation{Ready: true, Step: "ready to be deployed anew"}, nil
	case nodes.Rescue, nodes.RescueFail, nodes.UnrescueFail:
		if err := c.provision(ctx, n, nodes.ProvisionStateOpts{Target: nodes.TargetUnrescue}); err != nil {
			return nil, err
		}
		return &provider.Preparation{Step: "leaving the rescue system", Wait: 5 * time.Second}, nil
	case nodes.Enroll, nodes.Manageable, nodes.Error, nodes.CleanFail, nodes.InspectFail, nodes.AdoptFail:
		return nil, provider.Errorf(provider.Fatal, "The node is in the state %q, from which nothing is deployed.", provider.Clean(n.ProvisionState))
	default:
		return waiting(), nil
	}
}

func waiting() *provider.Preparation {
	return &provider.Preparation{Step: "waiting until " + vendorName + " is done with the machine", Wait: 5 * time.Second}
}

// installRef is the only one: a node has one deployment.
const installRef = "deployment"

// Install deploys the image, with a config drive whose user data installs the agent at the first boot. Conflict while the node is busy.
func (c *client) Install(ctx context.Context, machineID string, payload provider.Payload) (string, error) {
	n, err := c.node(ctx, machineID)
	if err != nil {
		return "", err
	}
	target := nodes.TargetRebuild
	switch nodes.ProvisionState(n.ProvisionState) {
	case nodes.Available:
		target = nodes.TargetActive
	case nodes.Active, nodes.DeployFail:
	default:
		return "", c.vendor.Errorf(provider.Conflict)
	}
	userData, err := ssh.UserData(c.account.ID, payload)
	if err != nil {
		return "", err
	}
	if err := c.setImage(ctx, n); err != nil {
		return "", err
	}
	drive := nodes.ConfigDrive{UserData: userData, MetaData: map[string]any{"uuid": n.UUID}}
	if n.Name != "" {
		drive.MetaData["name"] = n.Name
	}
	if err := c.provision(ctx, n, nodes.ProvisionStateOpts{Target: target, ConfigDrive: drive}); err != nil {
		return "", err
	}
	return installRef, nil
}

// setImage tells Ironic which image the node gets, unless it knows.
func (c *client) setImage(ctx context.Context, n *nodes.Node) error {
	wanted := map[string]string{
		"image_source": c.config.ImageURL, "image_os_hash_algo": "sha256", "image_os_hash_value": c.config.ImageSHA256, "image_type": "whole-disk",
	}
	var patch nodes.UpdateOpts
	for field, value := range wanted {
		if n.InstanceInfo[field] != value {
			patch = append(patch, nodes.UpdateOperation{Op: nodes.AddOp, Path: "/instance_info/" + field, Value: value})
		}
	}
	if len(patch) == 0 {
		return nil
	}
	return c.change(ctx, func(ctx context.Context, sdk *gophercloud.ServiceClient) error {
		_, err := nodes.Update(ctx, sdk, n.UUID, patch).Extract()
		return err
	})
}

// InstallStatus tells how far the deployment is. From its end on it is the agent's turn.
func (c *client) InstallStatus(ctx context.Context, machineID, ref string) (*provider.InstallStatus, error) {
	n, err := c.node(ctx, machineID)
	switch {
	case err != nil:
		return nil, err
	case ref != installRef:
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	switch nodes.ProvisionState(n.ProvisionState) {
	case nodes.Deploying, nodes.DeployWait:
		return &provider.InstallStatus{State: provider.InstallRunning}, nil
	case nodes.Active:
		return &provider.InstallStatus{State: provider.InstallSucceeded}, nil
	default:
		return &provider.InstallStatus{
			State: provider.InstallFailed, ExitCode: 1,
			Log: []string{"the node is in the state " + provider.Clean(n.ProvisionState+": "+n.LastError)},
		}, nil
	}
}

// Uninstall can do nothing: nobody but the machine's owner can log in there. Its token counts no more, and its agent is refused.
func (c *client) Uninstall(context.Context, string) error { return nil }
