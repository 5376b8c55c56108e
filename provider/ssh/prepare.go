package ssh

import (
	"context"
	"strings"
	"time"

	"better/compute/provider"
)

// minFreeKiB is what the agent and a second copy of it need.
const minFreeKiB = 64 << 10

// Prepare says whether the machine can be installed now: reachable, run as root, with the commands and the space that it takes. There
// is nothing to bring about, so it is ready or it fails.
func (c *client) Prepare(ctx context.Context, machineID string) (*provider.Preparation, error) {
	var p *provider.Preparation
	err := c.session(ctx, machineID, c.limits.call, func(conn *connection) error {
		before := c.options.Now()
		r, err := conn.script(nil, "prepare.sh")
		if err != nil {
			return err
		}
		if err := r.installable(conn.machine); err != nil {
			return err
		}
		p = &provider.Preparation{Ready: true, Step: "reachable over SSH", BootID: r.value("boot_id")}
		if now := r.number("now"); now >= 0 {
			offset := clockOffset(now, before, c.options.Now())
			p.ClockOffset = &offset
		}
		return nil
	})
	return p, err
}

func (r *result) installable(m *machine) error {
	if missing := r.values("missing"); len(missing) > 0 {
		return provider.Errorf(provider.InstallError, "%s lacks commands that installing needs: %s.", capital(m.String()), strings.Join(missing, ", "))
	}
	if r.number("uid") != 0 {
		return provider.Errorf(provider.SSHAuth,
			"Installing on %s needs root. Log in as root, or set sudo and let %s use it without a password.", m, m.User)
	}
	free := r.number("free_kib")
	if free >= 0 && free < minFreeKiB {
		return provider.Errorf(provider.InstallError, "The disk of %s has %d MiB free where the agent goes; it needs %d.", m, free/1024, minFreeKiB/1024)
	}
	return nil
}

// clockOffset takes it that the machine looked at its clock, which shows whole seconds, midway between before and after.
func clockOffset(seconds int64, before, after time.Time) time.Duration {
	midway := before.Add(after.Sub(before) / 2)
	return time.Unix(seconds, 0).Add(500 * time.Millisecond).Sub(midway)
}
