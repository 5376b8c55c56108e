package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"better/compute/provider"
)

// MachineKey is the machine's id, which this cloud gives out once over all its projects.
func (c *client) MachineKey(machineID string) (string, error) {
	if _, err := machinePath(machineID); err != nil {
		return "", err
	}
	return "sim:" + machineID, nil
}

// Identify reads serial, machine id and addresses once the machine is delivered.
func (c *client) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	m, err := c.machine(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if m.Status == "pending" {
		return nil, provider.Errorf(provider.Unavailable, "The cloud is still delivering the machine.")
	}
	if m.Serial == "" || m.OSMachineID == "" {
		return nil, provider.Errorf(provider.InvalidResponse, "The cloud does not say who the machine is.")
	}
	return &provider.Identity{Serial: m.Serial, OSMachineID: m.OSMachineID, Addresses: m.Addresses}, nil
}

// Prepare has nothing to do but to wait for the delivery: the cloud installs without a rescue system.
func (c *client) Prepare(ctx context.Context, machineID string) (*provider.Preparation, error) {
	m, err := c.machine(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if m.Status == "pending" {
		return &provider.Preparation{Step: "waiting for the delivery", Wait: time.Second}, nil
	}
	return &provider.Preparation{Ready: true, Step: "delivered"}, nil
}

type installFile struct {
	Path    string `json:"path"`
	Mode    string `json:"mode"`
	Content []byte `json:"content"`
}

// Install has the cloud write the agent's configuration and token, and start the agent that its machines have. All paths are
// relative: the agent runs in the machine's root directory.
func (c *client) Install(ctx context.Context, machineID string, payload provider.Payload) (string, error) {
	path, err := machinePath(machineID)
	if err != nil {
		return "", err
	}
	config, err := json.Marshal(map[string]string{
		"server": payload.JoinURL, "caPin": payload.CAPin, "tokenFile": "etc/bcd/token", "stateDir": "var/lib/bcd", "root": ".",
	})
	if err != nil {
		return "", provider.Errorf(provider.Fatal, "The agent's configuration could not be written.").Because(err)
	}
	// The same delivery again is the same install; another token, or a higher generation, is a new one.
	digest := sha256.Sum256([]byte(payload.Token))
	var answer struct {
		InstallID string `json:"installId"`
	}
	err = c.call(ctx, http.MethodPost, path+"/install", nil, map[string]any{
		"files": []installFile{
			{Path: "etc/bcd/config.json", Mode: "0600", Content: config},
			{Path: "etc/bcd/token", Mode: "0600", Content: []byte(payload.Token)},
		},
		"exec":        []string{"bcd", "run", "--config", "etc/bcd/config.json"},
		"clientToken": fmt.Sprintf("g%d-%s", payload.Generation, hex.EncodeToString(digest[:16])),
	}, &answer)
	if err != nil {
		return "", err
	}
	if answer.InstallID == "" {
		return "", provider.Errorf(provider.UnknownOutcome, "The cloud did not name the install.")
	}
	return answer.InstallID, nil
}

// InstallStatus tells how far the install is.
func (c *client) InstallStatus(ctx context.Context, machineID, installRef string) (*provider.InstallStatus, error) {
	path, err := machinePath(machineID)
	if err != nil {
		return nil, err
	}
	var answer struct {
		State    string   `json:"state"`
		ExitCode *int     `json:"exitCode"`
		Log      []string `json:"log"`
	}
	if err := c.call(ctx, http.MethodGet, path+"/install/"+url.PathEscape(installRef), nil, nil, &answer); err != nil {
		return nil, err
	}
	status := &provider.InstallStatus{State: provider.InstallState(answer.State), Log: answer.Log}
	if answer.ExitCode != nil {
		status.ExitCode = *answer.ExitCode
	}
	switch status.State {
	case provider.InstallRunning, provider.InstallSucceeded, provider.InstallFailed:
		return status, nil
	}
	return nil, provider.Errorf(provider.InvalidResponse, "The cloud does not say how far the install is.")
}

// Uninstall stops the agent and wipes the machine. One that is gone has none.
func (c *client) Uninstall(ctx context.Context, machineID string) error {
	path, err := machinePath(machineID)
	if err != nil {
		return nil //nolint:nilerr // what is no id names no machine
	}
	if err := c.call(ctx, http.MethodDelete, path+"/install", nil, nil, nil); !isNotFound(err) {
		return err
	}
	return nil
}
