package ssh

import "time"

// Hasten makes a driver give up on a silent machine after idle, and on a method after call.
func (d *Driver) Hasten(dial, idle, call time.Duration) *Driver {
	d.limits.dial, d.limits.idle, d.limits.call, d.limits.install, d.limits.cleanup = dial, idle, call, call, call
	return d
}

// Compose shows a script as it is sent.
func Compose(variables map[string]string, names ...string) string {
	return compose(variables, names...)
}
