package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"better/compute/audit"
	"better/compute/internal/postgres/pgtest"
)

func TestAuditCommands(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	dir := t.TempDir()
	config, kept := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "heads")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(config, fmt.Sprintf("database: {url: %q}\nstateDir: %q\n", db.Pool.Config().ConnString(), dir))
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		root := rootCommand()
		root.SetArgs(append(args, "--config", config))
		root.SetOut(&out)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	want := func(out string, err error, text string, fails bool) {
		t.Helper()
		if !strings.Contains(out, text) || (err != nil) != fails {
			t.Errorf("%v and %q, want %q", err, out, text)
		}
	}
	out, err := run("audit", "verify")
	if want(out, err, "", true); strings.Contains(out, "ok") {
		t.Errorf("an empty log is called well: %q", out)
	}
	for _, tenant := range []string{"a", "a", "b", ""} {
		if err := audit.Record(t.Context(), db.DB, audit.Entry{TenantID: tenant, Action: "x", Object: "o", Outcome: audit.Allowed}); err != nil {
			t.Fatal(err)
		}
	}
	out, err = run("audit", "verify")
	want(out, err, "audit verify tenants=0 rows=0 unsealed=4 heads=0 ok", false)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = audit.NewSealer(db, slog.New(slog.DiscardHandler)).Run(ctx)
	}()
	for deadline := time.Now().Add(time.Minute); ; {
		if out, err = run("audit", "verify"); strings.Contains(out, "unsealed=0") || time.Now().After(deadline) {
			break
		}
	}
	stop()
	<-done
	want(out, err, "audit verify tenants=3 rows=4 unsealed=0 heads=0 ok", false)
	out, err = run("audit", "heads")
	want(out, err, `{"tenant":"a","seq":2,"hash":"`, false)
	write(kept, out)
	out, err = run("audit", "verify", "--heads", kept, "--tenant", "")
	want(out, err, "audit verify tenants=1 rows=1 unsealed=0 heads=1 ok", false)
	out, err = run("audit", "verify", "--heads", kept, "--tenant", "typo")
	want(out, err, "", true)
	out, err = run("audit", "verify", "--tenant", "typo")
	want(out, err, "", true)
	write(kept, "tenant 1\n"+`{"tenant":"a","seq":3,"hash":"`+strings.Repeat("0", 64)+`"}`)
	out, err = run("audit", "verify", "--heads", kept)
	if want(out, err, "", true); err != nil && !strings.Contains(err.Error(), "line 1") {
		t.Error(err)
	}
	write(kept, `{"tenant":"a","seq":3,"hash":"`+strings.Repeat("0", 64)+`"}`)
	out, err = run("audit", "verify", "--heads", kept)
	want(out, err, `tenant="a" seq=3 audit=0: the chain ends at 2, before the head that was kept`, true)
	want(out, err, "audit verify tenants=3 rows=4 unsealed=0 heads=1 findings=1", true)
}
