package main

import (
	"better/compute/provider"
	"better/compute/provider/sim"
	"better/compute/provider/ssh"
)

// drivers names every driver of this server, and how its configuration entry becomes one.
func drivers() map[string]func(providerEntry) (provider.Driver, error) {
	return map[string]func(providerEntry) (provider.Driver, error){
		"sim": func(e providerEntry) (provider.Driver, error) { return sim.New(sim.Options{Endpoint: e.Endpoint}), nil },
		"ssh": func(e providerEntry) (provider.Driver, error) {
			return ssh.New(ssh.Options{AllowLoopback: e.AllowLoopback}), nil
		},
	}
}
