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

const module = "better/compute"

// may lists, for each package of ours (a pattern ending in /... stands for all below it), the packages of ours that its code,
// tests aside, may import. A package that is not listed fails the test: add it here and say in ARCHITECTURE.md what it is for.
var may = map[string][]string{ //nolint:gochecknoglobals // a table
	"agent":                      {},
	"migrations":                 {},
	"model":                      {},
	"internal/problem":           {},
	"internal/id":                {},
	"internal/strictjson":        {},
	"internal/archtest":          {},
	"internal/pki":               {"internal/problem"},
	"internal/postgres":          {"internal/problem", "migrations"},
	"internal/postgres/embedded": {},
	"internal/postgres/pgtest":   {"internal/postgres", "internal/postgres/embedded", "migrations"},
	"internal/event":             {"model", "internal/postgres"},
	"graph":                      {"model"},
	"provider":                   {"model", "internal/problem"},
	"provider/providertest":      {"provider", "model"},
	"provider/sim":               {"provider", "model"},
	"provider/sim/cloud":         {},
	"provider/ssh":               {"provider", "model"},
	"audit/journal":              {"internal/postgres"},
	"authz":                      {"model", "audit/journal", "internal/problem", "internal/postgres", "internal/id"},
	"audit":                      {"model", "authz", "audit/journal", "internal/postgres"},
	"secret":                     {"model", "authz", "audit", "provider", "internal/..."},
	"provideraccount":            {"model", "authz", "audit", "provider", "secret", "internal/..."},
	"pool":                       {"model", "authz", "audit", "provideraccount", "internal/..."},
	"host":                       {"model", "authz", "audit", "internal/..."},
	"bootstrap":                  {"model", "authz", "audit", "provider", "provideraccount", "pool", "host", "internal/..."},
	"resolvers": {
		"graph", "model", "authz", "internal/problem", "provideraccount", "bootstrap", "host", "pool", "secret",
	},
	"rest": {
		"model", "authz", "internal/problem", "internal/strictjson", "provideraccount", "bootstrap",
	},
	"server":           {"graph", "model", "authz", "internal/problem", "internal/strictjson"},
	"cmd/bcd":          {"agent"},
	"cmd/compute-api":  {"..."},
	"apitest/...":      {"..."},
	"graph/schematest": {"graph"},
}

// outside lists libraries that only some packages may import.
var outside = map[string][]string{ //nolint:gochecknoglobals // a table
	"github.com/casbin/":      {"authz"},
	"github.com/riverqueue/":  {"bootstrap", "internal/postgres", "cmd/compute-api"},
	"github.com/uptrace/bun":  {"internal/postgres", "internal/postgres/pgtest", "internal/event", "audit", "audit/journal", "authz", "secret", "provideraccount", "pool", "host", "bootstrap"},
	"github.com/99designs/":   {"graph", "resolvers", "server"},
	"github.com/vektah/":      {"graph", "resolvers", "server", "graph/schematest"},
	"github.com/gorilla/":     {},
	"github.com/lib/pq":       {},
	"golang.org/x/crypto/ssh": {"provider/ssh", "apitest/netns"},
}

type listed struct {
	ImportPath string
	Imports    []string
}

func TestImports(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module+"/")
		rules, known := rulesOf(name)
		if !known {
			t.Errorf("%s is not in the table of this test", name)
			continue
		}
		for _, imported := range p.Imports {
			if ours, ok := strings.CutPrefix(imported, module+"/"); ok {
				if !slices.ContainsFunc(rules, func(rule string) bool { return matches(rule, ours) }) {
					t.Errorf("%s must not import %s", name, ours)
				}
				continue
			}
			for library, users := range outside {
				if strings.HasPrefix(imported, library) && !slices.Contains(users, name) && !strings.HasPrefix(name, "apitest/") {
					t.Errorf("%s must not import %s", name, imported)
				}
			}
		}
	}
}

func rulesOf(name string) ([]string, bool) {
	if rules, ok := may[name]; ok {
		return rules, true
	}
	for pattern, rules := range may {
		if strings.HasSuffix(pattern, "/...") && matches(pattern, name) {
			return rules, true
		}
	}
	return nil, false
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
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"/...").Output()
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
