// Command bench loads this server beside a bare net/http and pgx handler that writes the same JSON, on one database and in one
// interleaved run, and prints the ratio of the two. `make bench` runs it; docs/performance.md has the figures.
//
// Both run as processes of their own. The server authenticates, decides, records and limits as it does in production; the bare handler
// does none of it. Absolute figures say how fast the machine is; only the ratios say something about the server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

type settings struct {
	tenants int
	rounds  int
	cell    time.Duration
	warmup  time.Duration
	conns   int
	binary  string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "bare" {
		exitOn(serveBare(context.Background(), os.Args[2], os.Stdout))
		return
	}
	var s settings
	flag.IntVar(&s.tenants, "tenants", 10_000, "tenants with 20 accounts each")
	flag.IntVar(&s.rounds, "rounds", 5, "how often each cell is measured")
	flag.DurationVar(&s.cell, "cell", 2*time.Second, "how long a cell is measured")
	flag.DurationVar(&s.warmup, "warmup", 500*time.Millisecond, "how long a cell warms up")
	flag.IntVar(&s.conns, "conns", 32, "connections, each with one request at a time")
	flag.StringVar(&s.binary, "binary", "bin/compute-api", "the server's binary")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exitOn(run(ctx, s, os.Stdout))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "compute-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := startDatabase(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	fmt.Fprintf(os.Stderr, "bench: seeding %d tenants\n", s.tenants)
	if err := seed(ctx, db.url, s.tenants); err != nil {
		return err
	}
	server, err := startServer(ctx, s.binary, dir, db.url)
	if err != nil {
		return err
	}
	defer server.stop()
	bare, err := startBare(ctx, db.url)
	if err != nil {
		return err
	}
	defer bare.stop()
	if err := compareAnswers(ctx, server, bare); err != nil {
		return err
	}
	cells, err := measure(ctx, s, server, bare)
	if err != nil {
		return err
	}
	return report(out, s, cells)
}

// target is a process under load.
type target struct {
	name  string
	url   string
	cmd   *exec.Cmd
	token func(tenant string) string // empty where there is no authentication
}

func (t *target) stop() {
	_ = t.cmd.Process.Signal(syscall.SIGTERM)
	_ = t.cmd.Wait()
}

// startServer runs `compute-api serve` with a token and a binding for each hot tenant.
func startServer(ctx context.Context, binary, dir, url string) (*target, error) {
	var config strings.Builder
	fmt.Fprintf(&config, "listen: 127.0.0.1:0\nstateDir: %s\ndatabase: {url: %q, maxConns: 10}\n", filepath.Join(dir, "state"), url)
	config.WriteString("limits: {pointsPerSecond: 100000000, pointsAtMost: 100000000, tenantPointsPerSecond: 100000000, tenantPointsAtMost: 100000000, operationsPerSubject: 9, operationsPerTenant: 9}\n")
	config.WriteString("providers: [{name: sim, endpoint: \"http://127.0.0.1:1\"}]\nauth:\n  allowStaticTokens: true\n  tokens:\n")
	tenants := append(hotTenants(), bigTenant)
	for _, tenant := range tenants {
		fmt.Fprintf(&config, "    - {token: %s, subject: \"user:%s\"}\n", tokenOf(tenant), tenant)
	}
	config.WriteString("authz:\n  bindings:\n")
	for _, tenant := range tenants {
		fmt.Fprintf(&config, "    - {subject: \"user:%s\", role: tenant-admin, object: compute-tenant/%s}\n", tenant, tenant)
	}
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(config.String()), 0o600); err != nil {
		return nil, err
	}
	logs, err := os.Create(filepath.Join(dir, "server.log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, binary, "serve", "--config", path)
	cmd.Stderr = logs
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the server (make build makes it): %w", err)
	}
	address, err := readyAddress(ctx, logs.Name())
	if err != nil {
		return nil, err
	}
	return &target{name: "server", url: "http://" + address, cmd: cmd, token: tokenOf}, nil
}

func tokenOf(tenant string) string { return "bench-token-" + tenant }

// startBare runs this very program as the bare handler.
func startBare(ctx context.Context, url string) (*target, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "bare", url)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var address string
	if _, err := fmt.Fscanln(stdout, &address); err != nil {
		return nil, fmt.Errorf("the bare handler did not start: %w", err)
	}
	return &target{name: "bare", url: "http://" + address, cmd: cmd, token: func(string) string { return "" }}, nil
}
