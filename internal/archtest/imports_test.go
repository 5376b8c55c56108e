// Package archtest holds the layout: which package may import which. It has no code of its own.
package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "better/compute/"

// may lists, for each package of ours, the packages of ours that its code, tests aside, may import. A pattern that ends in /...
// stands for a package and all below it. A package that is not listed fails the test: add it here, and to ARCHITECTURE.md.
var may = map[string][]string{
	// What knows nothing of ours.
	"agent":                      {},
	"migrations":                 {},
	"model":                      {},
	"internal/archtest":          {},
	"internal/id":                {},
	"internal/guard":             {},
	"internal/leaktest":          {},
	"internal/postgres/embedded": {},
	"internal/problem":           {},
	"internal/slots":             {},
	"internal/strictjson":        {},
	"provider/sim/cloud":         {}, // a cloud of its own, reached over HTTP alone

	// Plumbing.
	"internal/refusal":         {"internal/problem"},
	"internal/input":           {"internal/id", "internal/problem"},
	"internal/pki":             {"internal/problem"},
	"internal/postgres":        {"internal/problem", "migrations"},
	"internal/postgres/pgtest": {"internal/postgres", "internal/postgres/embedded", "migrations"},
	"internal/serverkey":       {"internal/postgres", "internal/problem"},
	"internal/cursor":          {"internal/postgres", "internal/serverkey"},
	"internal/event":           {"model", "internal/postgres", "internal/problem"},

	// Who may do what, and who did. The rows that authz writes, and their audit, must be in one transaction, while audit's exported
	// methods ask authz first: so the writing of rows is a package below both. Bindings and viewers are API types, hence model.
	"audit/journal": {"internal/postgres"},
	"authz":         {"model", "audit/journal", "internal/cursor", "internal/id", "internal/input", "internal/postgres", "internal/problem", "internal/slots"},
	"audit":         {"model", "authz", "audit/journal", "internal/..."},

	// Drivers know the interface that they fill, and neither database nor caller.
	"provider":              {"model", "internal/guard", "internal/problem", "internal/strictjson"},
	"provider/providertest": {"model", "provider", "internal/guard", "internal/problem", "apitest/netns"},
	"provider/vendor":       {"provider", "internal/guard"},
	"provider/awsec2":       {"model", "provider", "provider/ssh", "provider/vendor", "internal/guard"},
	"provider/hetznercloud": {"model", "provider", "provider/ssh", "provider/vendor", "internal/guard"},
	"provider/hetznerrobot": {"model", "provider", "provider/ssh", "provider/vendor", "internal/guard"},
	"provider/ironic":       {"model", "provider", "provider/ssh", "provider/vendor", "internal/guard"},
	"provider/libvirt":      {"model", "provider", "provider/ssh", "internal/guard"},
	"provider/linode":       {"model", "provider", "provider/ssh", "provider/vendor", "internal/guard"},
	"provider/openstack":    {"model", "provider", "provider/ssh", "provider/vendor", "internal/guard"},
	"provider/vultr":        {"model", "provider", "provider/ssh", "provider/vendor", "internal/guard"},
	"provider/latitude":     {"model", "provider", "provider/ssh", "provider/vendor", "internal/guard"},
	"provider/scaleway":     {"model", "provider", "provider/ssh", "provider/vendor", "internal/guard"},
	"provider/lambda":       {"model", "provider", "provider/ssh", "provider/vendor", "internal/guard"},
	"provider/digitalocean": {"model", "provider", "provider/ssh", "provider/vendor", "internal/guard"},
	"provider/sim":          {"model", "provider", "provider/vendor", "internal/guard", "internal/problem"},
	"provider/ssh":          {"model", "provider", "internal/guard", "internal/problem"},

	// The nouns. A secret that cannot be read is an error class of provider's, since it ends a provider call; and provider says
	// what a reference looks like, since manifests judge them.
	"apitoken":               {"model", "authz", "audit", "internal/..."},
	"secret":                 {"model", "authz", "audit", "provider", "secret/vault", "internal/..."},
	"secret/vault":           {"internal/guard"},
	"secret/vault/vaulttest": {"secret/vault"},
	"provideraccount":        {"model", "authz", "audit", "provider", "secret", "internal/..."},
	"pool":                   {"model", "authz", "audit", "provideraccount", "internal/..."},
	"host":                   {"model", "authz", "audit", "internal/..."},
	"bootstrap":              {"model", "authz", "audit", "provider", "provideraccount", "pool", "host", "internal/..."},

	// Who calls.
	"identity": {"authz", "apitoken", "internal/problem"},

	// The two translators and the edge: no SQL, no cloud, no queue.
	"graph":            {"model", "graph/plan"},
	"graph/generate":   {},
	"graph/plan":       {},
	"graph/schematest": {"graph"},
	"resolvers": {
		"graph", "model", "authz", "audit", "apitoken", "internal/problem", "provideraccount", "bootstrap", "host", "pool", "secret",
	},
	"rest":   {"model", "authz", "internal/problem", "internal/refusal", "internal/strictjson", "provideraccount", "bootstrap"},
	"server": {"graph", "graph/plan", "model", "authz", "internal/problem", "internal/refusal", "internal/slots", "internal/strictjson"},

	"console": {"internal/problem", "internal/refusal"}, // what it serves is a client of the API

	// Programs and whole-server tests. compute-api alone names drivers.
	"cmd/bcd":         {"agent"},
	"cmd/compute-api": {"..."},
	"apitest/...":     {"..."},
	"docs":            {"..."},
}

// outside lists, by the beginning of their import paths, libraries that only some packages may import. Tests, and what serves
// only tests, are free.
var outside = map[string][]string{
	"github.com/casbin/":                 {"authz"},
	"github.com/riverqueue/":             {"bootstrap", "internal/postgres", "cmd/compute-api"}, // postgres: its migrations, under one lock with ours
	"github.com/uptrace/bun":             {"internal/postgres", "internal/event", "audit", "audit/journal", "authz", "apitoken", "secret", "provideraccount", "pool", "host", "bootstrap"},
	"github.com/jackc/":                  {"internal/postgres", "internal/postgres/embedded", "internal/event", "authz"}, // LISTEN needs the bare connection
	"github.com/99designs/":              {"graph", "graph/generate", "graph/plan", "resolvers", "server"},
	"github.com/vektah/":                 {"graph", "graph/generate", "graph/plan", "resolvers", "server"},
	"github.com/go-chi/":                 {"server"},
	"github.com/coder/":                  {"server"},
	"github.com/prometheus/":             {"identity", "server", "cmd/compute-api"},
	"github.com/coreos/":                 {"identity"},
	"github.com/go-jose/":                {"identity"},
	"github.com/spf13/":                  {"cmd/compute-api"},
	"github.com/knadh/":                  {"cmd/compute-api"},
	"golang.org/x/crypto/ssh":            {"provider/ssh"},
	"github.com/digitalocean/godo":       {"provider/digitalocean"},
	"github.com/aws/":                    {"provider/awsec2"},
	"github.com/scaleway":                {"provider/scaleway"},
	"github.com/hetznercloud/":           {"provider/hetznercloud"},
	"github.com/gophercloud/":            {"provider/ironic", "provider/openstack"},
	"github.com/digitalocean/go-libvirt": {"provider/libvirt"},
	"libvirt.org/":                       {"provider/libvirt"},
	"github.com/hashicorp/vault/":        {"secret/vault"},
	"github.com/gorilla/":                {},
	"github.com/lib/pq":                  {},
}

// onlyStandard lists packages that import the standard library alone: model, because every layer stands on it, and the agent,
// because it is copied to other people's machines.
var onlyStandard = []string{"agent", "cmd/bcd", "migrations", "model", "internal/id", "internal/problem", "internal/strictjson"}

// servesTests lists the packages whose code is there for tests.
var servesTests = []string{"apitest/...", "docs", "graph/schematest", "internal/archtest", "internal/postgres/pgtest", "provider/providertest", "secret/vault/vaulttest"}

type listed struct {
	ImportPath string
	Imports    []string
}

func TestImports(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		rules, known := rulesOf(name)
		if !known {
			t.Errorf("%s is not in the table of this test", name)
		}
		for _, imported := range p.Imports {
			if ours, ok := strings.CutPrefix(imported, module); ok {
				if known && !matchesAny(rules, ours) {
					t.Errorf("%s must not import %s", name, ours)
				}
				continue
			}
			if !mayUse(name, imported) {
				t.Errorf("%s must not import %s", name, imported)
			}
		}
	}
}

// TestTablesAreCurrent finds rows about packages that are gone, which would let a new package of that name in unseen.
func TestTablesAreCurrent(t *testing.T) {
	t.Parallel()
	var names []string
	for _, p := range packages(t) {
		names = append(names, strings.TrimPrefix(p.ImportPath, module))
	}
	check := func(table, pattern string) {
		if !slices.ContainsFunc(names, func(name string) bool { return matches(pattern, name) }) {
			t.Errorf("%s has a row for %s, and there is no such package", table, pattern)
		}
	}
	for name, rules := range may {
		check("may", name)
		for _, rule := range rules {
			check("may", rule)
		}
	}
	for _, users := range outside {
		for _, name := range users {
			check("outside", name)
		}
	}
	for _, name := range slices.Concat(onlyStandard, servesTests) {
		check("a list", name)
	}
}

// mayUse judges an import that is not ours.
func mayUse(name, imported string) bool {
	if first, _, _ := strings.Cut(imported, "/"); !strings.Contains(first, ".") {
		return true // the standard library
	}
	if slices.Contains(onlyStandard, name) {
		return false
	}
	if matchesAny(servesTests, name) {
		return true
	}
	for library, users := range outside {
		if strings.HasPrefix(imported, library) && !slices.Contains(users, name) {
			return false
		}
	}
	return true
}

func rulesOf(name string) ([]string, bool) {
	if rules, ok := may[name]; ok {
		return rules, true
	}
	for pattern, rules := range may {
		if matches(pattern, name) {
			return rules, true
		}
	}
	return nil, false
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, name) })
}

func matches(pattern, name string) bool {
	if pattern == "..." || pattern == name {
		return true
	}
	base, ok := strings.CutSuffix(pattern, "/...")
	return ok && (name == base || strings.HasPrefix(name, base+"/"))
}

func packages(t *testing.T) []listed {
	t.Helper()
	// -e: a package that does not compile is the compiler's to complain about; its imports are known all the same.
	out, err := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 20 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}
