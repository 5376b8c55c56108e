package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"better/compute/internal/postgres/pgtest"
)

func TestRoleCommands(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "database: {url: %q}\nstateDir: %q\n", db.Pool.Config().ConnString(), dir), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args string
		want string // of the output or, after a "!", of the error
	}{
		{"role define pool-writer compute:pools:read compute:pools:manage --description Pools", "defined"},
		{"role define pool-writer compute:pools:manage compute:pools:read --description Pools", "was defined so already"},
		{"role define auditor compute:audit:read", "defined"},
		{"role define fleet-admin compute:audit:read", "!built-in"},
		{"role define x compute:audit:write compute:audit:read compute:audit:read", "!is there twice"},
		{"role define x", "!requires at least 2 arg"},
		{"role roles", "pool-writer       compute:pools:read compute:pools:manage "},
		{"role grant user:a pool-writer compute-tenant/t", "granted"},
		{"role grant user:a gone compute-tenant/t", "!auditor, pool-writer"},
		{"role list --subject user:a", "user:a  pool-writer  compute-tenant/t  allow"},
		{"role undefine pool-writer", "!in use by [{role-binding compute-tenant/t user:a}]"},
		{"role revoke user:a pool-writer compute-tenant/t", "revoked"},
		{"role undefine pool-writer", "deleted"},
		{"role undefine pool-writer", "there was no such role"},
	} {
		var out bytes.Buffer
		root := rootCommand()
		root.SetArgs(append(strings.Fields(step.args), "--config", config))
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(t.Context())
		want, fails := strings.CutPrefix(step.want, "!")
		got := out.String()
		if fails && err != nil {
			got = describe(err)
		}
		if (err != nil) != fails || !strings.Contains(got, want) {
			t.Errorf("%s: %v and %q, want %q", step.args, err, out.String(), step.want)
		}
	}
}
