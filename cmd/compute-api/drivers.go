package main

import (
	"errors"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/awsec2"
	"better/compute/provider/digitalocean"
	"better/compute/provider/hetznercloud"
	"better/compute/provider/hetznerrobot"
	"better/compute/provider/ironic"
	"better/compute/provider/lambda"
	"better/compute/provider/latitude"
	"better/compute/provider/libvirt"
	"better/compute/provider/linode"
	"better/compute/provider/openstack"
	"better/compute/provider/scaleway"
	"better/compute/provider/sim"
	"better/compute/provider/ssh"
	"better/compute/provider/vultr"
)

// drivers names every driver of this server, and how its configuration entry becomes one. An error begins with the setting that is wrong.
func drivers() map[string]func(providerEntry) (provider.Driver, error) {
	return map[string]func(providerEntry) (provider.Driver, error){
		"sim":       simulated(model.ClaimToken),
		"sim-name":  simulated(model.ClaimUniqueName),
		"sim-label": simulated(model.ClaimLabel),
		"sim-none":  simulated(model.ClaimNone),
		"aws-ec2": func(e providerEntry) (provider.Driver, error) {
			return awsec2.New(awsec2.Options{Endpoint: e.Endpoint, Networks: e.networks()}), nil
		},
		"digitalocean": func(e providerEntry) (provider.Driver, error) {
			return digitalocean.New(digitalocean.Options{Endpoint: e.Endpoint, Networks: e.networks()}), nil
		},
		"hetzner-cloud": func(e providerEntry) (provider.Driver, error) {
			return hetznercloud.New(hetznercloud.Options{Endpoint: e.Endpoint, Networks: e.networks()}), nil
		},
		"hetzner-robot": func(e providerEntry) (provider.Driver, error) {
			return hetznerrobot.New(hetznerrobot.Options{Endpoint: e.Endpoint, Networks: e.networks()}), nil
		},
		"ironic": func(e providerEntry) (provider.Driver, error) {
			if e.Endpoint == "" {
				return nil, errors.New("endpoint: must say where Ironic's API is (https://host:6385/v1)")
			}
			return ironic.New(ironic.Options{Endpoint: e.Endpoint, Networks: e.networks()}), nil
		},
		"lambda": func(e providerEntry) (provider.Driver, error) {
			return lambda.New(lambda.Options{Endpoint: e.Endpoint, Networks: e.networks()}), nil
		},
		"latitude": func(e providerEntry) (provider.Driver, error) {
			return latitude.New(latitude.Options{Endpoint: e.Endpoint, Networks: e.networks()}), nil
		},
		"linode": func(e providerEntry) (provider.Driver, error) {
			return linode.New(linode.Options{Endpoint: e.Endpoint, Networks: e.networks()}), nil
		},
		"openstack": func(e providerEntry) (provider.Driver, error) {
			if e.Endpoint == "" {
				return nil, errors.New("endpoint: must say where Keystone is (https://host:5000/v3)")
			}
			return openstack.New(openstack.Options{Endpoint: e.Endpoint, Networks: e.networks()}), nil
		},
		"scaleway": func(e providerEntry) (provider.Driver, error) {
			return scaleway.New(scaleway.Options{Endpoint: e.Endpoint, Networks: e.networks()}), nil
		},
		"libvirt": func(e providerEntry) (provider.Driver, error) {
			return libvirt.New(libvirt.Options{Networks: e.networks()}), nil
		},
		"ssh": func(e providerEntry) (provider.Driver, error) {
			return ssh.New(ssh.Options{AllowLoopback: e.AllowLoopback}), nil
		},
		"vultr": func(e providerEntry) (provider.Driver, error) {
			return vultr.New(vultr.Options{Endpoint: e.Endpoint, Networks: e.networks()}), nil
		},
	}
}

func simulated(mode model.ClaimMode) func(providerEntry) (provider.Driver, error) {
	return func(e providerEntry) (provider.Driver, error) {
		if e.Endpoint == "" {
			return nil, errors.New("endpoint: must say where a simulated cloud is (compute-api sim runs one)")
		}
		return sim.New(sim.Options{Endpoint: e.Endpoint, ClaimMode: mode}), nil
	}
}
