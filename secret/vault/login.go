package vault

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"
)

// loginAgainAfter keeps references that the vault denies from making each read a login.
const loginAgainAfter = time.Minute

const maxCredential = 64 << 10

// Login says as whom the server reads: with a token that somebody keeps fresh in a file, or by AppRole.
type Login struct {
	TokenFile string

	AppRole      string // where that method is mounted, without auth/; empty: approle
	RoleIDFile   string
	SecretIDFile string
}

// session is a token, and the client that uses it.
type session struct {
	client *api.Client
	token  string
	since  time.Time
	ends   time.Time // zero: it is not known
}

// login gives a session to read with: the present one while it lasts, unless it is the one that was denied and no newer can be had.
func (c *Client) login(ctx context.Context, denied *session) (*session, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s, err := c.fresh(ctx, denied)
	if err != nil {
		return nil, err
	}
	c.session = s
	return s, nil
}

func (c *Client) fresh(ctx context.Context, denied *session) (*session, error) {
	if c.options.Login.TokenFile != "" {
		return c.fromFile()
	}
	s := c.session
	if s != nil && (s.ends.IsZero() || c.now().Before(s.ends)) && (s != denied || c.now().Sub(s.since) < loginAgainAfter) {
		return s, nil
	}
	return c.byAppRole(ctx)
}

// fromFile looks at the file each time: whoever keeps it fresh tells nobody.
func (c *Client) fromFile() (*session, error) {
	token, err := readCredential(c.options.Login.TokenFile)
	if err != nil {
		return nil, err
	}
	if c.session != nil && c.session.token == token {
		return c.session, nil
	}
	client, err := c.connect(token)
	if err != nil {
		return nil, err
	}
	return &session{client: client, token: token, since: c.now()}, nil
}

// byAppRole logs in, for two thirds of what the token lasts.
func (c *Client) byAppRole(ctx context.Context) (*session, error) {
	role, err := readCredential(c.options.Login.RoleIDFile)
	if err != nil {
		return nil, err
	}
	secretID, err := readCredential(c.options.Login.SecretIDFile)
	if err != nil {
		return nil, err
	}
	nobody, err := c.connect("")
	if err != nil {
		return nil, err
	}
	start := c.now()
	answer, err := nobody.Logical().WriteWithContext(ctx, "auth/"+c.options.Login.AppRole+"/login", map[string]any{"role_id": role, "secret_id": secretID})
	if err != nil {
		return nil, fmt.Errorf("logging in at the vault: %w", withoutAnswer(err))
	}
	if answer == nil || answer.Auth == nil || answer.Auth.ClientToken == "" {
		return nil, errors.New("logging in at the vault: it gives no token")
	}
	client, err := c.connect(answer.Auth.ClientToken)
	if err != nil {
		return nil, err
	}
	s := &session{client: client, token: answer.Auth.ClientToken, since: start}
	if lease := time.Duration(answer.Auth.LeaseDuration) * time.Second; lease > 0 {
		s.ends = start.Add(lease * 2 / 3)
	}
	return s, nil
}

// withoutAnswer keeps what the vault wrote, and with it what it was sent, out of logs.
func withoutAnswer(err error) error {
	if refused, ok := errors.AsType[*api.ResponseError](err); ok {
		return fmt.Errorf("it answers %d", refused.StatusCode)
	}
	return err
}

func readCredential(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("reading what to log in with at the vault: %w", err)
	}
	if info.Size() > maxCredential {
		return "", fmt.Errorf("reading what to log in with at the vault: %s is too large", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading what to log in with at the vault: %w", err)
	}
	credential := strings.TrimSpace(string(text))
	if credential == "" || strings.ContainsFunc(credential, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("reading what to log in with at the vault: %s does not hold one line of ASCII", path)
	}
	return credential, nil
}

// loadRoots gives nil, for the system's, when no file is named.
func loadRoots(path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the certificates that sign the vault's: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	return roots, nil
}
