package hetznerrobot

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
)

// MachineKey is the server's number, which Hetzner gives out once over all customers.
func (c *client) MachineKey(machineID string) (string, error) {
	if _, ok := serverNumber(machineID); !ok {
		return "", c.vendor.Errorf(provider.NotFound)
	}
	return name + ":" + machineID, nil
}

// access is how the system that is installed on a server is reached: its host key follows from the account's private key and the server.
func (c *client) access(ctx context.Context, machineKey string) (*ssh.Access, error) {
	private, err := c.account.Secret(ctx, c.config.SSHPrivateKey)
	if err != nil {
		return nil, err
	}
	return ssh.NewAccess(private, machineKey)
}

// Identify reads what the server is. Robot does not tell its serial number: the host key that it gets with its system is what tells it from
// others.
func (c *client) Identify(ctx context.Context, machineID string) (*provider.Identity, error) {
	t, err := c.target(ctx, machineID)
	if err != nil {
		return nil, err
	}
	identity := &provider.Identity{Addresses: addressesOf(*t.server), SSHHostKey: t.access.Fingerprint(), Arch: "amd64"}
	if strings.HasPrefix(t.server.Product, "RX") { // Hetzner's line with processors of Arm's
		identity.Arch = "arm64"
	}
	return identity, nil
}

// target is a server that is there to be installed.
type target struct {
	server  *server
	access  *ssh.Access
	machine ssh.Machine // with the host key of the system that is installed from here
}

func (c *client) target(ctx context.Context, machineID string) (*target, error) {
	s, err := c.server(ctx, machineID)
	if err != nil {
		return nil, err
	}
	switch addresses := addressesOf(*s); {
	case s.Cancelled:
		return nil, provider.Errorf(provider.Fatal, "The server is cancelled; withdraw the cancellation at %s.", vendorName)
	case s.Status != ready || len(addresses) == 0:
		return nil, provider.Errorf(provider.Unavailable, "%s is not done with the server.", vendorName)
	default:
		access, err := c.access(ctx, name+":"+machineID)
		if err != nil {
			return nil, err
		}
		return &target{s, access, ssh.Machine{
			ID: machineID, Address: addresses[0], Fingerprint: access.Fingerprint(), PrivateKey: c.config.SSHPrivateKey, Kind: model.Metal,
		}}, nil
	}
}

func (c *client) on(ctx context.Context, machineID string) (provider.Bootstrapper, error) {
	t, err := c.target(ctx, machineID)
	if err != nil {
		return nil, err
	}
	return ssh.New(ssh.Options{}).On(ctx, c.account, t.machine)
}

// Prepare brings the server to a system that shows the host key that it should: into the rescue system, and from there into one that is put onto
// its disk. One that shows it already is ready. Each call is one step, and the next follows from what Robot and the server show.
func (c *client) Prepare(ctx context.Context, machineID string) (*provider.Preparation, error) {
	t, err := c.target(ctx, machineID)
	if err != nil {
		return nil, err
	}
	installed, err := ssh.New(ssh.Options{}).On(ctx, c.account, t.machine)
	if err != nil {
		return nil, err
	}
	boots, number := c.driver.boots, t.server.Number
	p, err := installed.Prepare(ctx, machineID)
	switch {
	case err == nil:
		boots.answered(number)
		return p, nil
	case provider.ClassOf(err) == provider.SSHUnreachable:
		if boots.mayBoot(number) {
			return booting(), nil
		}
		return c.enterRescue(ctx, number)
	case provider.ClassOf(err) != provider.SSHHostKey:
		return nil, err
	}
	boots.answered(number)
	return c.fromRescue(ctx, t)
}

// lookAgain is seldom enough for several servers at a time: Robot tells of servers 200 times an hour.
const lookAgain = 30 * time.Second

func booting() *provider.Preparation {
	return &provider.Preparation{Step: "waiting for the server to boot", Wait: lookAgain}
}

// rescue is the rescue system of a server. Once it has booted Robot tells its host keys.
type rescue struct {
	Active   bool      `json:"active"`
	Keys     []keyItem `json:"authorized_key"`
	HostKeys []keyItem `json:"host_key"`
}

func (r rescue) letsIn(fingerprint string) bool {
	return slices.ContainsFunc(r.Keys, func(k keyItem) bool { return k.Key.Fingerprint == fingerprint })
}

var legacyForm = regexp.MustCompile(`\A(?:[0-9a-f]{2}:){15}[0-9a-f]{2}\z`)

// pins are the fingerprints of the host keys, the best kinds of key first, as package ssh takes them.
func (r rescue) pins() []string {
	pins := []string{}
	for _, kind := range []string{"ED25519", "ECDSA", "RSA"} {
		for _, k := range r.HostKeys {
			f := k.Key.Fingerprint
			switch {
			case !strings.EqualFold(k.Key.Type, kind):
			case legacyForm.MatchString(f):
				pins = append(pins, "MD5:"+f)
			case strings.HasPrefix(f, "SHA256:"):
				pins = append(pins, f)
			}
		}
	}
	return pins
}

type rescueItem struct {
	Rescue *rescue `json:"rescue"`
}

func (c *client) rescue(ctx context.Context, number int64, path string) (rescue, error) {
	var answer rescueItem
	err := c.get(ctx, bootPath(number)+path, &answer)
	switch {
	case isNotFound(err) && path != "": // there was none
		return rescue{}, nil
	case err != nil:
		return rescue{}, err
	case answer.Rescue == nil:
		return rescue{}, c.vendor.Errorf(provider.InvalidResponse)
	}
	return *answer.Rescue, nil
}

func bootPath(number int64) string { return fmt.Sprintf("/boot/%d/rescue", number) }

// fromRescue deals with a server that shows another host key: it installs a system when that is the rescue system's.
func (c *client) fromRescue(ctx context.Context, t *target) (*provider.Preparation, error) {
	number := t.server.Number
	last, err := c.rescue(ctx, number, "/last")
	if err != nil {
		return nil, err
	}
	pins, ours := last.pins(), last.letsIn(t.access.LegacyFingerprint())
	switch {
	case ours && len(pins) > 0:
	case c.driver.boots.wasReset(number, bootTime): // it may be what was there before, or Robot does not know yet
		return booting(), nil
	case ours && c.driver.boots.wasReset(number, time.Hour):
		return nil, provider.Errorf(provider.InstallError, "%s does not tell the host key of the rescue system, so nobody can know that it is the server that answers.", vendorName)
	default:
		return c.enterRescue(ctx, number)
	}
	t.machine.Fingerprint = pins[0]
	status, err := ssh.New(ssh.Options{}).InstallSystem(ctx, c.account, t.machine, ssh.System{Image: c.config.Image, Hostname: "server-" + machineID(number), Access: t.access})
	switch class := provider.ClassOf(err); {
	case err != nil && (class == provider.SSHHostKey || class == provider.SSHAuth):
		if c.driver.boots.wasReset(number, bootTime) {
			return booting(), nil
		}
		return c.enterRescue(ctx, number)
	case err != nil:
		return nil, err
	case status.State == provider.InstallFailed:
		failed := provider.Errorf(provider.InstallError, "Putting a system onto the disk of server %d failed: installimage ended with exit code %d.", number, status.ExitCode)
		failed.Log = status.Log
		return nil, failed
	case status.State == provider.InstallSucceeded && !c.driver.boots.wasReset(number, time.Minute):
		return c.reset(ctx, number, "booting the installed system")
	case status.State == provider.InstallSucceeded:
		return booting(), nil
	}
	return &provider.Preparation{Step: "putting a system onto the disk", Wait: lookAgain}, nil
}

// enterRescue sets the server to boot the rescue system, and resets it once it is set so.
func (c *client) enterRescue(ctx context.Context, number int64) (*provider.Preparation, error) {
	login, err := c.keepLogin(ctx)
	if err != nil {
		return nil, err
	}
	now, err := c.rescue(ctx, number, "")
	switch {
	case err != nil:
		return nil, err
	case now.Active && now.letsIn(login):
		return c.reset(ctx, number, "booting the rescue system")
	case now.Active: // for somebody else, and nobody says that it takes a second one
		err = c.set(ctx, http.MethodDelete, bootPath(number), nil)
	default:
		err = c.set(ctx, http.MethodPost, bootPath(number), url.Values{"os": {"linux"}, "authorized_key": {login}})
	}
	return &provider.Preparation{Step: "setting the rescue system up", Wait: time.Second}, err
}

func (c *client) reset(ctx context.Context, number int64, step string) (*provider.Preparation, error) {
	if err := c.set(ctx, http.MethodPost, fmt.Sprintf("/reset/%d", number), url.Values{"type": {"hw"}}); err != nil {
		return nil, err
	}
	c.driver.boots.reset(number)
	return &provider.Preparation{Step: step, Wait: lookAgain}, nil
}

// Install copies the agent onto the server and starts it.
func (c *client) Install(ctx context.Context, machineID string, payload provider.Payload) (string, error) {
	b, err := c.on(ctx, machineID)
	if err != nil {
		return "", err
	}
	return b.Install(ctx, machineID, payload)
}

// InstallStatus looks whether the agent runs.
func (c *client) InstallStatus(ctx context.Context, machineID, installRef string) (*provider.InstallStatus, error) {
	b, err := c.on(ctx, machineID)
	if err != nil {
		return nil, err
	}
	return b.InstallStatus(ctx, machineID, installRef)
}

// Uninstall stops and removes what this account installed.
func (c *client) Uninstall(ctx context.Context, machineID string) error {
	b, err := c.on(ctx, machineID)
	if err != nil {
		return err
	}
	return b.Uninstall(ctx, machineID)
}
