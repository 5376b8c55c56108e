package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"better/compute/authz"
	"better/compute/internal/pki"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider/sim/cloud"
)

// What the development server sets up.
const (
	devTenant  = "demo"
	devSubject = "user:admin"
	devSecret  = "sim"
	devPool    = "demo-hosts"
)

func devCommand() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine, with a simulated cloud inside",
		Long: "Runs the whole product on its embedded default: PostgreSQL, a PKI, a simulated cloud, a tenant with a secret and\n" +
			"a pool, and an administrator token. When it is ready it prints one line:\n\n" +
			"    ready url=http://127.0.0.1:8080 token=<token> tenant=demo",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDev(cmd.Context(), path, os.Environ(), cmd.OutOrStdout(), newLog(cmd))
		},
	}
	cmd.Flags().StringVar(&path, "config", "", "a configuration file (YAML) that adds to or overrides the settings")
	return cmd
}

func runDev(ctx context.Context, path string, environ []string, out io.Writer, log *slog.Logger) error {
	c, token, err := devConfig(path, environ)
	if err != nil {
		return err
	}
	endpoint, closeCloud, err := startCloud(ctx, c, log)
	if err != nil {
		return err
	}
	defer closeCloud()
	for i, p := range c.Providers {
		if p.Name == "sim" && p.Endpoint == "" {
			c.Providers[i].Endpoint = endpoint
		}
	}
	a, err := newApp(ctx, c, log)
	if err != nil {
		return err
	}
	return a.run(ctx, func(ctx context.Context) error {
		if err := a.setUpDemo(ctx); err != nil {
			return fmt.Errorf("setting up tenant %s: %w", devTenant, err)
		}
		_, err := fmt.Fprintf(out, "ready url=http://%s token=%s tenant=%s\n", a.apiListener.Addr(), token, devTenant)
		return err
	})
}

// devConfig is the configuration of the development server: its own settings below those of the file and the environment, its lists
// behind theirs.
func devConfig(path string, environ []string) (config, string, error) {
	base := defaultConfig()
	base.GraphQL = graphqlConfig{Introspection: true, Suggestions: true, GraphiQL: true}
	base.Limits.DrainNotice = 0 // nobody is told to go elsewhere: there is no elsewhere
	self, err := os.Executable()
	if err != nil {
		return config{}, "", fmt.Errorf("finding the agent's binary: %w", err)
	}
	base.Bootstrap = &bootstrapConfig{
		AgentBinaries: filepath.Dir(self), TrustDomain: "compute.localhost", OrdersPerHour: new(0), // the simulated cloud costs nothing
	}
	c, err := loadConfig(base, path, environ)
	if err != nil {
		return config{}, "", err
	}
	if err := os.MkdirAll(c.StateDir, 0o755); err != nil {
		return config{}, "", fmt.Errorf("stateDir: %w", err)
	}
	if c.Secrets.Store.KeyFile == "" {
		c.Secrets.Store.KeyFile = filepath.Join(c.StateDir, "secret.key")
	}
	if _, err := keep(c.Secrets.Store.KeyFile, newKey); err != nil {
		return config{}, "", err
	}
	token, err := keep(filepath.Join(c.StateDir, "dev-token"), func() []byte { return []byte(rand.Text() + rand.Text()) })
	if err != nil {
		return config{}, "", err
	}
	if _, err := pki.Ensure(c.pkiDir(), c.Bootstrap.TrustDomain); err != nil {
		return config{}, "", fmt.Errorf("pki.dir: %w", err)
	}
	c.Auth.Tokens = append(c.Auth.Tokens, tokenConfig{Token: string(token), Subject: devSubject})
	c.Authz.Bindings = append(c.Authz.Bindings, bindingConfig{Subject: devSubject, Role: "fleet-admin", Object: "compute-fleet"})
	for _, p := range []providerEntry{{Name: "sim"}, {Name: "ssh", AllowLoopback: true}} {
		if !slices.ContainsFunc(c.Providers, func(e providerEntry) bool { return e.Name == p.Name }) {
			c.Providers = append(c.Providers, p)
		}
	}
	return c, string(token), nil
}

func newKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return key
}

// keep reads a file that only the owner may read, and makes it at the first start. It is written aside and linked into place, so that a
// kill leaves no half of it and of two starters one wins.
func keep(path string, content func() []byte) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)) // mode 0600
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.Write(content())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	return os.ReadFile(path)
}

// startCloud runs the simulated cloud inside this process, on a port of its own that only this machine reaches.
func startCloud(ctx context.Context, c config, log *slog.Logger) (endpoint string, stop func(), err error) {
	bcd := filepath.Join(c.Bootstrap.AgentBinaries, "bcd")
	simulated, err := cloud.Open(cloud.Options{Dir: filepath.Join(c.StateDir, "sim"), AgentBinary: bcd, Log: log})
	if err != nil {
		return "", nil, fmt.Errorf("starting the simulated cloud: %w", err)
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("starting the simulated cloud: %w", err), simulated.Close())
	}
	s := &http.Server{Handler: simulated.Handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := s.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.ErrorContext(ctx, "the simulated cloud stopped", "error", err)
		}
	}()
	return "http://" + ln.Addr().String(), func() {
		_ = s.Close()
		<-served
		if err := simulated.Close(); err != nil {
			log.ErrorContext(ctx, "stopping the simulated cloud", "error", err)
		}
	}, nil
}

// setUpDemo makes sure of the tenant's secret and pool. A second start finds them there.
func (a *app) setUpDemo(ctx context.Context) error {
	ctx = authz.WithActor(ctx, authz.Actor{Subject: devSubject})
	stored, err := a.secrets.List(ctx, devTenant)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(stored, func(s *model.Secret) bool { return s.Name == devSecret }) {
		in := model.PutSecretInput{TenantID: devTenant, Name: devSecret, Value: "demo-" + strings.ToLower(rand.Text())}
		if _, err := a.secrets.Put(ctx, in); err != nil {
			return err
		}
	}
	_, err = a.pools.Create(ctx, model.CreatePoolInput{
		TenantID: devTenant, Name: devPool, Class: model.ClassVPSHost, Agent: model.AgentBCD,
	})
	if problem.Is(err, problem.Conflict) {
		return nil
	}
	return err
}
