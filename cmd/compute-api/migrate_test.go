package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"better/compute/internal/postgres"
	"better/compute/internal/postgres/pgtest"
)

func TestMigrateDownWantsToHearWhatIsTakenBack(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "database: {url: %q}\nstateDir: %q\n", db.Pool.Config().ConnString(), dir), 0o600); err != nil {
		t.Fatal(err)
	}
	newest, err := postgres.NewestMigration(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		args []string
		want string // of the output or, after a "!", of the error
	}{
		{nil, "!nothing was changed. The newest migration is " + newest},
		{[]string{"--confirm", "0001_core"}, "!repeat with --confirm " + newest},
		{[]string{"--confirm", newest}, "took back " + newest + "; lost: "},
		{[]string{"--confirm", newest}, "!nothing was changed"},
	} {
		var out bytes.Buffer
		root := rootCommand()
		root.SetArgs(append([]string{"migrate", "down", "--config", config}, step.args...))
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(t.Context())
		want, fails := strings.CutPrefix(step.want, "!")
		got := out.String()
		if fails && err != nil {
			got = err.Error()
		}
		if (err != nil) != fails || !strings.Contains(got, want) {
			t.Errorf("%v: %v and %q, want %q", step.args, err, out.String(), step.want)
		}
	}
	status, err := postgres.MigrationStatus(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range status {
		if m.Applied != (m.Name != newest) {
			t.Errorf("%s: applied is %v", m.Name, m.Applied)
		}
	}
}
