package provider

import (
	"encoding/json"
	"time"

	"better/compute/model"
)

// Manifest is what a driver says of itself.
type Manifest struct {
	// Name matches ^[a-z][a-z0-9-]{0,63}$.
	Name        string
	DisplayName string
	// ConfigSchema is a JSON Schema 2020-12 for the account's config: an object without additional properties, each with a
	// description and examples.
	ConfigSchema json.RawMessage
	// SecretFields are JSON pointers of config fields that must hold a secret reference though their names do not say so; `*`
	// stands for any array index. Fields whose names end in token, secret, password or key are secret anyhow.
	SecretFields []string
	Capabilities model.ProviderCapabilities
	// ListLag is how long after an order the provider's lists may not show it yet.
	ListLag time.Duration
	// ClaimLimit is how long delivery may take for each kind; zero means the default of the state machine.
	ClaimLimit map[model.MachineKind]time.Duration
	// Typical is how long it usually takes from the request until the agent has joined, for each kind; missing where that is not known.
	Typical map[model.MachineKind]time.Duration
	// Wipes says what a machine loses by being made a host, one sentence each; empty when it loses nothing.
	Wipes []string
	// About is what docs/providers/README.md tells of the driver beside its capabilities.
	About About
	// Endpoints are the hosts that an `endpoint` in a config may name; empty allows none.
	Endpoints []string
}

// About is for people who choose a provider. Each is a few words.
type About struct {
	// GPUs: some offers have GPUs, and say which.
	GPUs bool
	// Installs says what brings the agent onto a machine, GivesBack what becomes of a machine that an operation ordered, and TestedAgainst
	// what the driver's tests have on the other side.
	Installs, GivesBack, TestedAgainst string
}
