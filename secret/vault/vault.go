// Package vault reads single fields out of the key-value engine of a HashiCorp Vault, or of a server that speaks its API.
//
// It refuses to know what a field is for, and writes nothing. The invariant: each read is below the prefix of the tenant that it is for, in the
// namespace and the engine that the operator has named, whatever a reference says.
package vault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"

	"better/compute/internal/guard"
)

const (
	callTimeout = 5 * time.Second
	maxAnswer   = 1 << 20 // as large as Vault lets an entry be
)

// What a read can fail with, beside what says that the server cannot be asked now.
var (
	ErrAbsent = errors.New("there is no such field")
	ErrDenied = errors.New("the vault does not let this server read it")
)

// Engine is the version of the key-value engine.
type Engine int

// The versions: the second keeps earlier values of a secret, and answers the latest.
const (
	KV1 Engine = 1
	KV2 Engine = 2
)

// Options say which vault, where in it, and as whom.
type Options struct {
	Address   string // https://host:port
	Namespace string // of an enterprise server; empty: none
	Engine    Engine
	Mount     string // where the engine is
	Path      string // below the mount; tenants have a prefix each below it, named like they are. Empty: right below the mount
	CAFile    string // certificates in PEM that sign the server's; empty: the system's
	Login     Login
}

// Client reads from one vault. Safe for concurrent use.
type Client struct {
	options Options
	http    *http.Client
	now     func() time.Time
	turn    chan struct{} // held while the session is looked at or replaced
	session *session      // nil before the first login
}

// New makes a Client. Nothing is asked before the first read. An error says what is wrong with the options, with no secret in it.
func New(o Options) (*Client, error) {
	roots, err := loadRoots(o.CAFile)
	if err != nil {
		return nil, err
	}
	// The address is the operator's, so that any network will do. What counts here are the bounds, and that no redirect takes a token elsewhere.
	c := &Client{
		options: o, now: time.Now, turn: make(chan struct{}, 1),
		http: guard.NewClient(guard.Options{
			Networks: guard.Everywhere(), Origins: []string{o.Address}, Timeout: callTimeout, AnswerBytes: maxAnswer, Roots: roots,
		}),
	}
	_, err = c.connect("")
	return c, err
}

// Close lets go of the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Read gives the text in a field of the secret at a path below the tenant's prefix. ErrAbsent, also for what is no text; ErrDenied; any
// other error says that the vault cannot be asked now, and may name addresses and paths. None holds a value.
func (c *Client) Read(ctx context.Context, tenantID, path, field string) (string, error) {
	place, ok := c.place(tenantID, path)
	if !ok {
		return "", ErrAbsent
	}
	s, err := c.login(ctx, nil)
	if err != nil {
		return "", err
	}
	text, err := c.readField(ctx, s, place, field)
	if !errors.Is(err, ErrDenied) {
		return text, err
	}
	// The token may have been revoked, or have ended early.
	again, loginErr := c.login(ctx, s)
	if loginErr != nil || again == s {
		return "", errors.Join(err, loginErr)
	}
	return c.readField(ctx, again, place, field)
}

// segment is what Vault's paths are made of here: nothing that is decoded, cleaned or taken for a way up.
var segment = regexp.MustCompile(`\A[A-Za-z0-9_:-][A-Za-z0-9._:-]{0,127}\z`)

// place is false for what has none: a tenant, or a path, of which Vault could make another place.
func (c *Client) place(tenantID, path string) (string, bool) {
	segments := append([]string{tenantID}, strings.Split(path, "/")...)
	for _, s := range segments {
		if !segment.MatchString(s) || strings.Contains(s, "..") {
			return "", false
		}
	}
	place := strings.Join(segments, "/")
	if c.options.Path != "" {
		place = c.options.Path + "/" + place
	}
	return place, true
}

func (c *Client) readField(ctx context.Context, s *session, place, field string) (string, error) {
	found, err := c.readSecret(ctx, s, place)
	if err != nil {
		return "", classify(err)
	}
	text, ok := found.Data[field].(string)
	if !ok {
		return "", ErrAbsent
	}
	return text, nil
}

func (c *Client) readSecret(ctx context.Context, s *session, place string) (*api.KVSecret, error) {
	if c.options.Engine == KV1 {
		return s.client.KVv1(c.options.Mount).Get(ctx, place)
	}
	return s.client.KVv2(c.options.Mount).Get(ctx, place)
}

// classify leaves out what the server wrote.
func classify(err error) error {
	if errors.Is(err, api.ErrSecretNotFound) {
		return ErrAbsent
	}
	refused, ok := errors.AsType[*api.ResponseError](err)
	if !ok {
		return fmt.Errorf("asking the vault: %w", err)
	}
	switch refused.StatusCode {
	case http.StatusForbidden, http.StatusUnauthorized:
		return ErrDenied
	case http.StatusNotFound, http.StatusBadRequest:
		return ErrAbsent
	default:
		return fmt.Errorf("asking the vault: it answers %d", refused.StatusCode)
	}
}

// connect makes a client that uses the token, and nothing of this process's environment, from which the library takes tokens, namespaces
// and headers by itself.
func (c *Client) connect(token string) (*api.Client, error) {
	client, err := api.NewClient(&api.Config{
		Address: c.options.Address, HttpClient: c.http, Timeout: callTimeout, MaxRetries: 0, DisableRedirects: true,
	})
	if err != nil {
		return nil, fmt.Errorf("preparing to ask the vault: %w", err)
	}
	client.SetHeaders(http.Header{api.RequestHeaderName: {"true"}})
	if c.options.Namespace != "" {
		client.SetNamespace(c.options.Namespace)
	}
	client.SetToken(token)
	return client, nil
}
