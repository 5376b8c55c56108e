package ssh

import (
	"net/netip"
	"time"
)

// Hasten makes a driver give up on a silent machine after idle, and on a method after call.
func (d *Driver) Hasten(dial, idle, call time.Duration) {
	d.limits = limits{dial: dial, idle: idle, check: call, call: call, install: call, cleanup: call}
}

// Compose shows a script as it is sent.
func Compose(variables map[string]string, names ...string) string {
	return compose(variables, names...)
}

// Refuses says why an address is refused.
func Refuses(o Options, ip netip.Addr) string { return o.refuses(ip) }
