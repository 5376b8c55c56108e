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
	// Endpoints are the hosts that an `endpoint` in a config may name; empty allows none.
	Endpoints []string
}
