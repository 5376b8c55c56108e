package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/sim/cloud"
)

var update = flag.Bool("update", false, "write docs/providers/README.md anew")

func TestProviderCommand(t *testing.T) {
	c, err := cloud.Open(cloud.Options{Dir: t.TempDir(), AgentBinary: "/bin/true"})
	if err != nil {
		t.Fatal(err)
	}
	simulated := httptest.NewServer(c.Handler())
	t.Cleanup(func() { _ = c.Close(); simulated.Close() })
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	server := write("server.yaml", "providers: [{name: sim, endpoint: \""+simulated.URL+"\"}]")
	good := write("good.json", `{"apiToken":"env://TRY_TOKEN"}`)
	t.Setenv("TRY_TOKEN", " canary-token\n")
	t.Setenv("TRY_INVALID", "invalid")
	for _, step := range []struct{ args, want string }{
		{"check --provider sim --config " + good, "ok"},
		{"offers --provider sim --config " + good, "vps-small:fra1"},
		{"machines --provider sim --config " + good, "existing-vps"},
		{"check --provider sim --config " + write("refused.json", `{"apiToken":"env://TRY_INVALID"}`), "!reason: credentials"},
		{"check --provider sim --config " + write("unset.json", `{"apiToken":"env://TRY_NOTHING"}`), "!TRY_NOTHING is not set"},
		{"check --provider sim --config " + write("store.json", `{"apiToken":"secret://sim"}`), "!only env://"},
		{"check --provider sim --config " + write("plain.json", `{"apiToken":"canary-token"}`), "!/apiToken must hold a secret reference"},
		{"check --provider nope --config " + good, "!no driver"},
		{"check --provider sim --config " + filepath.Join(dir, "missing.json"), "!no such file"},
	} {
		var out bytes.Buffer
		root := rootCommand()
		root.SetArgs(append(append([]string{"provider"}, strings.Fields(step.args)...), "--server-config", server))
		root.SetOut(&out)
		root.SetErr(&out)
		err := root.ExecuteContext(t.Context())
		want, fails := strings.CutPrefix(step.want, "!")
		got := out.String()
		if fails && err != nil {
			got = describe(err)
		}
		if (err != nil) != fails || !strings.Contains(got, want) || strings.Contains(got, "canary") {
			t.Errorf("%s: %v and %q, want %q", step.args, err, out.String(), step.want)
		}
	}
}

// TestProvidersTable holds the table of the drivers to their manifests. go test -run TestProvidersTable -update writes it.
func TestProvidersTable(t *testing.T) {
	t.Parallel()
	const path = "../../docs/providers/README.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(text), "| driver |")
	_, after, ends := strings.Cut(string(text), "|\n\n")
	if !found || !ends {
		t.Fatalf("%s has no table of drivers", path)
	}
	want := before + providersTable(t) + "\n" + after
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Errorf("the table of drivers is not that of their manifests; go test ./cmd/compute-api -run TestProvidersTable -update writes it:\n%s", want)
	}
}

func providersTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	row := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	row("driver", "offers", "prices", "live stock", "GPUs", "orders are found again by", "installs by", "gives back", "tested against")
	b.WriteString("|" + strings.Repeat("---|", 9) + "\n")
	for _, name := range slices.Sorted(maps.Keys(drivers())) {
		driver, err := drivers()[name](providerEntry{Name: name, Endpoint: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		m := driver.Manifest()
		if m.Name != name {
			t.Errorf("the driver %s calls itself %s", name, m.Name)
		}
		row(append([]string{fmt.Sprintf("[%s](%s)", name, pageOf(t, name))}, cellsOf(t, m)...)...)
	}
	return b.String()
}

// pageOf is the driver's own page, or that of the driver whose variant it is.
func pageOf(t *testing.T, name string) string {
	t.Helper()
	family, _, _ := strings.Cut(name, "-")
	for _, page := range []string{name + ".md", family + ".md"} {
		if _, err := os.Stat("../../docs/providers/" + page); err == nil {
			return page
		}
	}
	t.Errorf("docs/providers has no page of %s", name)
	return name + ".md"
}

func cellsOf(t *testing.T, m provider.Manifest) []string {
	t.Helper()
	word := func(yes bool) string {
		if yes {
			return "yes"
		}
		return "no"
	}
	c, a := m.Capabilities, m.About
	found := map[model.ClaimMode]string{
		model.ClaimToken: "client token", model.ClaimUniqueName: "unique name", model.ClaimLabel: "label", model.ClaimLocal: "the server's own book", model.ClaimNone: "not at all",
	}[c.ClaimMode]
	installs, back := a.Installs, a.GivesBack
	if !c.Bootstrap {
		installs = "-"
	}
	if !c.Order {
		found = "-"
	}
	if !c.Release {
		back = "-"
	}
	cells := []string{word(c.Offers), word(c.Prices), word(c.LiveStock), word(a.GPUs), found, installs, back, a.TestedAgainst}
	if slices.Contains(cells, "") {
		t.Errorf("the manifest of %s does not say everything: %q", m.Name, cells)
	}
	return cells
}
