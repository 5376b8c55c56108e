package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/embedded"
)

// The hot tenants are those that requests go to; bigTenant has 1,000 accounts.
const (
	hotCount  = 256
	bigTenant = "big"
	bigCount  = 1000
	perTenant = 20
	lastRuns  = 5
)

func hotTenants() []string {
	tenants := make([]string, hotCount)
	for i := range tenants {
		tenants[i] = fmt.Sprintf("t%d", i)
	}
	return tenants
}

type database struct {
	url  string
	stop func() error
}

func startDatabase(ctx context.Context, dir string) (*database, error) {
	server, err := embedded.Start(ctx, embedded.Options{
		StateDir: dir,
		Settings: []string{"shared_buffers=1GB", "max_wal_size=4GB", "synchronous_commit=on", "jit=off"},
	})
	if err != nil {
		return nil, err
	}
	return &database{url: server.URL(), stop: func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		return server.Stop(ctx)
	}}, nil
}

// seed makes the tenants with their accounts, and for the hot ones the runs. Ids are derived from the row's number.
func seed(ctx context.Context, url string, tenants int) error {
	db, err := postgres.Open(ctx, postgres.Options{URL: url, AsOwner: true, MaxConns: 4})
	if err != nil {
		return err
	}
	defer db.Close()
	if err := postgres.Migrate(ctx, db); err != nil {
		return err
	}
	conn, err := db.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	const config = `jsonb_build_object('apiToken', 'secret://sim', 'region', 'fra1', 'note', repeat('x', 220))`
	for _, statement := range []string{
		`SET statement_timeout = 0`,
		fmt.Sprintf(`INSERT INTO provider_accounts (id, tenant_id, provider, name, config, created_by)
			SELECT 'pacct_' || lpad((t * %[1]d + a)::text, 26, '0'), 't' || t, 'sim', 'account-' || lpad(a::text, 4, '0'), %[2]s, 'user:seed'
			FROM generate_series(0, %[3]d - 1) t, generate_series(0, %[1]d - 1) a`, perTenant, config, tenants),
		fmt.Sprintf(`INSERT INTO provider_accounts (id, tenant_id, provider, name, config, created_by)
			SELECT 'pacct_' || lpad((1000000000 + a)::text, 26, '0'), '%s', 'sim', 'account-' || lpad(a::text, 4, '0'), %s, 'user:seed'
			FROM generate_series(0, %d - 1) a`, bigTenant, config, bigCount),
		fmt.Sprintf(`INSERT INTO pools (id, tenant_id, name, class, agent)
			SELECT 'pool_' || lpad(t::text, 26, '0'), 't' || t, 'hosts', 'vps-host', 'bcd' FROM generate_series(0, %d - 1) t`, hotCount),
		fmt.Sprintf(`INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, machine_id, status, failure, operation_id, created_at)
			SELECT 'boot_' || lpad(((t * %[1]d + a) * 8 + r)::text, 52, '0'), 't' || t, 'pacct_' || lpad((t * %[1]d + a)::text, 26, '0'),
				'pool_' || lpad(t::text, 26, '0'), 'user:seed', 'm-' || r, 'failed',
				'{"reason":"CANCELLED","message":"","logTail":[]}', 'bcd-' || ((t * %[1]d + a) * 8 + r), now() - r * interval '1 minute'
			FROM generate_series(0, %[2]d - 1) t, generate_series(0, %[1]d - 1) a, generate_series(0, 7) r`, perTenant, hotCount),
		`ANALYZE`,
		`CHECKPOINT`,
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("seeding: %w", err)
		}
	}
	return nil
}

func accountID(tenant, account int) string {
	return fmt.Sprintf("pacct_%026d", tenant*perTenant+account)
}

// readyAddress waits for the line of the log in which the server says where it listens.
func readyAddress(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		address, err := findReady(path)
		if err != nil || address != "" {
			return address, err
		}
		select {
		case <-ctx.Done():
			return "", errors.New("the server did not become ready")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func findReady(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line struct{ Msg, Listen string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "ready" {
			return line.Listen, nil
		}
	}
	return "", nil
}
