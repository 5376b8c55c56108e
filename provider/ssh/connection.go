package ssh

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"better/compute/provider"
)

// keyFamilies are the types of host key, best first. A machine shows one key for the types that we ask for, so they are asked
// for one by one until it shows the pinned one.
var keyFamilies = [][]string{
	{ssh.KeyAlgoED25519},
	{ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521},
	{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256},
}

// connection is a login on a machine, which ends with its context.
type connection struct {
	ctx     context.Context // the call's; the connection is closed when it ends
	machine *machine
	client  *ssh.Client
	stop    func() bool
	done    chan struct{}
	limits  limits
}

// signer reads the private key for the machine. It is kept nowhere.
func (c *client) signer(ctx context.Context, m *machine) (ssh.Signer, error) {
	text, err := c.account.Secret(ctx, m.PrivateKey)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey([]byte(text))
	if missing := (*ssh.PassphraseMissingError)(nil); errors.As(err, &missing) {
		return nil, provider.Errorf(provider.SecretUnresolved, "The private key in %s has a passphrase; store it without one.", m.PrivateKey)
	}
	if err != nil {
		return nil, provider.Errorf(provider.SecretUnresolved, "%s does not hold an SSH private key in PEM.", m.PrivateKey)
	}
	return signer, nil
}

// connect logs in on the machine, once it has shown the pinned host key.
func (c *client) connect(ctx context.Context, m *machine) (*connection, error) {
	signer, err := c.signer(ctx, m)
	if err != nil {
		return nil, err
	}
	first := int(m.keyFamily.Load())
	var shown []string
	for i := range keyFamilies {
		family := (first + i) % len(keyFamilies)
		key := &hostKey{want: m.HostFingerprint}
		conn, err := c.login(ctx, m, signer, key, keyFamilies[family])
		if err == nil {
			m.keyFamily.Store(int32(family)) //nolint:gosec // an index of three
			return conn, nil
		}
		if none := (*ssh.AlgorithmNegotiationError)(nil); errors.As(err, &none) && !key.checked {
			continue
		}
		if key.checked && key.got != key.want {
			shown = append(shown, key.got)
			continue
		}
		return nil, c.loginError(ctx, m, key, err)
	}
	if len(shown) == 0 {
		return nil, provider.Errorf(provider.SSHHostKey, "The SSH server of %s speaks no algorithm that is safe and known here.", m)
	}
	return nil, provider.Errorf(provider.SSHHostKey,
		"The host key of %s is not the pinned one: expected %s, got %s. If the machine was reinstalled, update hostFingerprint; otherwise something else answers at its address.",
		m, m.HostFingerprint, strings.Join(shown, " and "))
}

// hostKey is what the machine showed of itself.
type hostKey struct {
	want, got string
	checked   bool
}

var errOtherHostKey = errors.New("not the pinned host key")

func (k *hostKey) check(_ string, _ net.Addr, key ssh.PublicKey) error {
	k.checked, k.got = true, ssh.FingerprintSHA256(key)
	if strings.HasPrefix(k.want, legacyPrefix) {
		k.got = legacyPrefix + ssh.FingerprintLegacyMD5(key)
	}
	if k.got != k.want {
		return errOtherHostKey
	}
	return nil
}

// login makes one attempt.
func (c *client) login(ctx context.Context, m *machine, signer ssh.Signer, key *hostKey, algorithms []string) (*connection, error) {
	dialer := net.Dialer{Timeout: c.limits.dial, Control: c.options.control}
	tcp, err := dialer.DialContext(ctx, "tcp", m.hostPort())
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = tcp.Close() })
	conn, channels, requests, err := ssh.NewClientConn(&impatientConn{tcp, c.limits.idle}, m.hostPort(), &ssh.ClientConfig{
		User: m.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: key.check, HostKeyAlgorithms: algorithms,
		ClientVersion: "SSH-2.0-compute",
	})
	if err != nil {
		stop()
		_ = tcp.Close()
		return nil, err
	}
	l := &connection{
		ctx: ctx, machine: m, client: ssh.NewClient(conn, channels, requests), stop: stop, done: make(chan struct{}), limits: c.limits,
	}
	go l.keepAlive()
	return l, nil
}

// impatientConn gives up on a peer that is silent for longer than the limit.
type impatientConn struct {
	net.Conn
	limit time.Duration
}

func (c *impatientConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.limit)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *impatientConn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// keepAlive asks the peer for a sign of life often enough that only a dead one is silent for the limit.
func (c *connection) keepAlive() {
	tick := time.NewTicker(c.limits.idle / 4)
	defer tick.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-tick.C:
			if _, _, err := c.client.SendRequest("keepalive@openssh.com", true, nil); err != nil {
				return
			}
		}
	}
}

func (c *connection) close() {
	close(c.done)
	c.stop()
	_ = c.client.Close()
}

// loginError classes why there is no connection.
func (c *client) loginError(ctx context.Context, m *machine, key *hostKey, err error) error {
	if refused, ok := errors.AsType[*provider.Error](err); ok {
		return refused
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return provider.Errorf(provider.Unavailable, "The call was given up while connecting to %s.", m).Because(ctx.Err())
	}
	unreachable := func(format string, args ...any) error {
		return provider.Errorf(provider.SSHUnreachable, format, args...).Because(err)
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return unreachable("The address of %s is a name that does not resolve.", m)
		}
		return unreachable("The address of %s is a name that cannot be resolved right now.", m)
	}
	switch {
	case key.checked && refusesLogin(err):
		return provider.Errorf(provider.SSHAuth,
			"%s refuses the login: the private key is not one that may log in as %s there. Add its public key to that user's authorized_keys.", capital(m.String()), m.User).Because(err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return unreachable("Nothing listens at the SSH port of %s: the connection is refused.", m)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return unreachable("There is no route to %s.", m)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return unreachable("%s does not answer: no connection within %s. It may be off, or a firewall may be in the way.", capital(m.String()), c.limits.dial)
	}
	if timedOut(ctx, err) {
		return unreachable("%s accepts the connection, but its SSH server does not answer.", capital(m.String()))
	}
	return unreachable("The SSH server of %s ended the connection before the login.", m)
}

// refusesLogin reads the library's error, which has no type.
func refusesLogin(err error) bool {
	text := err.Error()
	return strings.Contains(text, "unable to authenticate") || strings.Contains(text, "Too many authentication failures")
}

func timedOut(ctx context.Context, err error) bool {
	var timeout interface{ Timeout() bool }
	return ctx.Err() != nil || errors.As(err, &timeout) && timeout.Timeout()
}

// lost classes a failure of a connection that stood. Nothing that is done over one does harm when it is done again.
func (c *connection) lost(err error) error {
	switch {
	case errors.Is(c.ctx.Err(), context.Canceled):
		return provider.Errorf(provider.Unavailable, "The call was given up while talking to %s.", c.machine).Because(c.ctx.Err())
	case c.ctx.Err() != nil:
		return provider.Errorf(provider.SSHUnreachable, "%s accepts the login, but does not get done in time.", capital(c.machine.String())).Because(err)
	}
	return provider.Errorf(provider.SSHUnreachable, "The connection to %s broke off.", c.machine).Because(err)
}

// output is what a command printed, as far as it is looked at, and its exit code.
type output struct {
	stdout, stderr bounded
	code           int
}

// run runs a command. It must mean the same to any login shell: no quotes but single ones, nothing to expand in them.
func (c *connection) run(command string, stdin io.Reader) (*output, error) {
	session, err := c.client.NewSession()
	if err != nil {
		return nil, c.lost(err)
	}
	defer func() { _ = session.Close() }()
	if c.machine.Sudo {
		command = "sudo -n " + command
	}
	var out output
	session.Stdin, session.Stdout, session.Stderr = stdin, &out.stdout, &out.stderr
	if err := session.Start(command); err != nil {
		return nil, c.lost(err)
	}
	err = session.Wait()
	if exit, ok := errors.AsType[*ssh.ExitError](err); ok {
		out.code = exit.ExitStatus()
		if exit.Signal() != "" && out.code == 0 {
			out.code = 128
		}
		return &out, nil
	}
	if err != nil && !errors.Is(err, io.EOF) { // which says that the command ended well, and did not read all of its input
		return nil, c.lost(err)
	}
	return &out, nil
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ text []byte }

const maxOutput = 64 << 10

func (b *bounded) Write(p []byte) (int, error) {
	b.text = append(b.text, p[:min(len(p), maxOutput-len(b.text))]...)
	return len(p), nil
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
