package linode

import (
	"context"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"better/compute/provider"
	"better/compute/provider/ssh"
)

// MachineKey is the Linode's id, which Linode gives out once over all accounts.
func (c *client) MachineKey(machineID string) (string, error) {
	if _, ok := linodeNumber(machineID); !ok {
		return "", c.vendor.Errorf(provider.NotFound)
	}
	return name + ":" + machineID, nil
}

// Identify reads what the Linode is. Its serial number, as the machine itself reads it, is its id.
func (c *client) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	i, err := c.instance(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if i.Status == "provisioning" {
		return nil, provider.Errorf(provider.Unavailable, "%s is still making the machine.", vendorName)
	}
	return &provider.Identity{
		Serial: machineID, Addresses: addressesOf(i), Arch: "amd64", CPUs: max(i.Specs.VCPUs, 0), MemoryMiB: max(int64(i.Specs.Memory), 0), Disks: disksOf(i.Specs.Disk),
	}, nil
}

// Prepare waits until nothing else is done with the Linode. There is nothing to bring about: Install needs it neither on nor off.
func (c *client) Prepare(ctx context.Context, machineID string) (*provider.Preparation, error) {
	i, err := c.instance(ctx, machineID)
	if err != nil {
		return nil, err
	}
	switch i.Status {
	case "running", "offline", "stopped":
		return &provider.Preparation{Ready: true, Step: "ready to be rebuilt"}, nil
	case "billing_suspension":
		return nil, c.vendor.Errorf(provider.Payment)
	}
	return &provider.Preparation{Step: "waiting until " + vendorName + " is done with the machine", Wait: 5 * time.Second}, nil
}

const (
	maxUserData = 16 << 10 // that Linode takes
	rebuildRef  = "rebuild"
)

// Install rebuilds the Linode from the image with user data that installs the agent at its first boot. Conflict while an earlier rebuild
// runs.
func (c *client) Install(ctx context.Context, machineID string, payload provider.Payload) (string, error) {
	number, ok := linodeNumber(machineID)
	if !ok {
		return "", c.vendor.Errorf(provider.NotFound)
	}
	userData, err := ssh.UserData(c.account.ID, payload)
	if err != nil {
		return "", err
	}
	if len(userData) > maxUserData {
		return "", provider.Errorf(provider.Fatal, "The user data is larger than the %d bytes that %s takes.", maxUserData, vendorName)
	}
	body := map[string]any{
		"image": c.config.Image, "root_pass": password(), "booted": true,
		"metadata": map[string]string{"user_data": base64.StdEncoding.EncodeToString([]byte(userData))},
	}
	if len(c.config.SSHAuthorized) > 0 {
		body["authorized_keys"] = c.config.SSHAuthorized
	}
	var rebuilt instance
	if err := c.change(ctx, http.MethodPost, pathOf(number)+"/rebuild", body, &rebuilt); err != nil {
		return "", c.refusedInstall(err)
	}
	if rebuilt.ID != number {
		return "", c.vendor.Errorf(provider.UnknownOutcome)
	}
	return rebuildRef, nil
}

func (c *client) refusedInstall(err error) error {
	for _, told := range reasons(err) {
		if told.Field == "image" || told.Field == "authorized_keys" || strings.HasPrefix(told.Field, "metadata") {
			return provider.Errorf(provider.InvalidConfig, "%s does not take the rebuild; look at the image and the SSH keys in the account's config.", vendorName).Because(err)
		}
	}
	return err
}

// event is something that happened to a Linode.
type event struct {
	Action string `json:"action"`
	Status string `json:"status"`
	Entity struct {
		ID   int    `json:"id"`
		Type string `json:"type"`
	} `json:"entity"`
}

// InstallStatus tells how far the rebuild is. From its end on it is the agent's turn.
func (c *client) InstallStatus(ctx context.Context, machineID, installRef string) (*provider.InstallStatus, error) {
	if installRef != rebuildRef {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	i, err := c.instance(ctx, machineID)
	if err != nil {
		return nil, err
	}
	switch i.Status {
	case "running":
		return &provider.InstallStatus{State: provider.InstallSucceeded}, nil
	case "offline", "stopped":
		return c.whyOff(ctx, i.ID)
	}
	return &provider.InstallStatus{State: provider.InstallRunning}, nil
}

// whyOff tells a Linode whose rebuild has failed from one that is off in the midst of it.
func (c *client) whyOff(ctx context.Context, number int) (*provider.InstallStatus, error) {
	var latest page[event]
	err := c.get(ctx, "/account/events?page=1&page_size=25", map[string]any{
		"action": "linode_rebuild", "entity.id": number, "entity.type": "linode", "+order_by": "created", "+order": "desc",
	}, &latest)
	if err != nil {
		return nil, err
	}
	if latest.Data == nil {
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	}
	for _, e := range *latest.Data {
		if e.Action != "linode_rebuild" || e.Entity.ID != number || e.Entity.Type != "linode" {
			continue
		}
		if e.Status == "failed" {
			return &provider.InstallStatus{State: provider.InstallFailed, ExitCode: 1, Log: []string{"rebuilding the Linode failed"}}, nil
		}
		break // what came before the latest does not count
	}
	return &provider.InstallStatus{State: provider.InstallRunning}, nil
}

// Uninstall can do nothing: nobody but the Linode's owner can log in there. Its token counts no more, and its agent is refused.
func (c *client) Uninstall(context.Context, string) error { return nil }
