// Package docs holds the documentation to the code: each list that a page gives is compared with the list that the code has. It has
// no code of its own, and judges no prose.
package docs

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"better/compute/authz"
	"better/compute/bootstrap"
	"better/compute/graph"
	"better/compute/internal/event"
	"better/compute/internal/problem"
	"better/compute/model"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// table gives the cells of the table whose header begins with these columns, without their backticks.
func table(t *testing.T, path string, header ...string) [][]string {
	t.Helper()
	var rows [][]string
	inside := false
	for line := range strings.Lines(read(t, path)) {
		cells := cellsOf(line)
		switch {
		case len(cells) >= len(header) && slices.Equal(cells[:len(header)], header):
			inside = true
		case inside && len(cells) == 0:
			return rows
		case inside && !strings.HasPrefix(cells[0], "---"):
			rows = append(rows, cells)
		}
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no table with the columns %q", path, header)
	}
	return rows
}

func cellsOf(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") {
		return nil
	}
	cells := strings.Split(strings.Trim(line, "|"), "|")
	for i, c := range cells {
		cells[i] = strings.Trim(strings.TrimSpace(c), "`")
	}
	return cells
}

func firsts(rows [][]string) []string {
	column := make([]string, len(rows))
	for i, row := range rows {
		column[i] = row[0]
	}
	return column
}

func texts[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = string(v)
	}
	return out
}

func compare(t *testing.T, what string, code, docs any) {
	t.Helper()
	if diff := cmp.Diff(code, docs); diff != "" {
		t.Errorf("%s (-code +docs):\n%s", what, diff)
	}
}

func TestErrorCodes(t *testing.T) {
	t.Parallel()
	var code [][]string
	for _, c := range problem.Codes() {
		code = append(code, []string{string(c), strconv.Itoa(c.HTTPStatus())})
	}
	var docs [][]string
	for _, row := range table(t, "errors.md", "code", "HTTP") {
		docs = append(docs, row[:2])
	}
	compare(t, "codes", code, docs)
}

func TestBootstrapStates(t *testing.T) {
	t.Parallel()
	compare(t, "states", texts(model.BootstrapStatuses()), firsts(table(t, "bootstrap.md", "state", "what happens")))
	var reasons []string
	for _, r := range model.FailureReasons() {
		reasons = append(reasons, fmt.Sprintf("[`%s`](failures/%s.md)", r, r))
	}
	compare(t, "failure reasons", reasons, firsts(table(t, "bootstrap.md", "reason", "means", "what to do")))
	compare(t, "cleanups", enum(t, "CleanupStatus"), firsts(table(t, "bootstrap.md", "cleanup")))
}

// TestFailurePages wants a page for each reason and none for any other, each with the same parts and an example of the reason.
func TestFailurePages(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("failures/*.md")
	if err != nil {
		t.Fatal(err)
	}
	var named []string
	for _, page := range pages {
		named = append(named, strings.TrimSuffix(filepath.Base(page), ".md"))
	}
	compare(t, "pages", slices.Sorted(slices.Values(texts(model.FailureReasons()))), named)
	headings := regexp.MustCompile("(?m)^#+ .+$")
	example := regexp.MustCompile("(?s)```json\n(.+?)```")
	for _, page := range pages {
		text, reason := read(t, page), strings.TrimSuffix(filepath.Base(page), ".md")
		compare(t, page, []string{
			"# " + reason, "## What was done with the machine", "## How to find out more", "## What to do", "## Example",
		}, headings.FindAllString(text, -1))
		var failure model.BootstrapFailure
		match := example.FindStringSubmatch(text)
		if match == nil || json.Unmarshal([]byte(match[1]), &failure) != nil || string(failure.Reason) != reason || failure.Message == "" {
			t.Errorf("the example of %s is %q", page, match)
		}
	}
}

// TestOrphanKinds compares the table with the kinds that the code has.
func TestOrphanKinds(t *testing.T) {
	t.Parallel()
	compare(t, "kinds", enum(t, "OrphanKind"), firsts(table(t, "bootstrap.md", "kind", "means", "what to do")))
}

// enum gives the values of a GraphQL enum as REST writes them.
func enum(t *testing.T, name string) []string {
	t.Helper()
	definition := graph.NewExecutableSchema(graph.Config{}).Schema().Types[name]
	if definition == nil {
		t.Fatalf("the schema has no %s", name)
	}
	var values []string
	for _, v := range definition.EnumValues {
		values = append(values, strings.ReplaceAll(strings.ToLower(v.Name), "_", "-"))
	}
	return values
}

func TestBootstrapChart(t *testing.T) {
	t.Parallel()
	chart := map[model.BootstrapStatus][]model.BootstrapStatus{}
	for _, s := range model.BootstrapStatuses() {
		chart[s] = []model.BootstrapStatus{}
	}
	var final []string
	for _, arrow := range regexp.MustCompile(`(?m)^ +(\w+) --> (\w+|\[\*\])$`).FindAllStringSubmatch(read(t, "bootstrap.md"), -1) {
		if arrow[2] == "[*]" {
			final = append(final, arrow[1])
			continue
		}
		from := model.BootstrapStatus(arrow[1])
		chart[from] = append(chart[from], model.BootstrapStatus(arrow[2]))
	}
	compare(t, "transitions", bootstrap.Transitions(), chart)
	for _, s := range model.BootstrapStatuses() {
		if s.Final() != slices.Contains(final, string(s)) {
			t.Errorf("the chart is wrong about whether %s is final", s)
		}
	}
}

// TestRoles compares the table with Casbin's policy file, which is all that the decisions are made from.
func TestRoles(t *testing.T) {
	t.Parallel()
	code := map[string]string{}
	for line := range strings.Lines(read(t, "../authz/roles.csv")) {
		rule := strings.Split(strings.TrimSpace(line), ", ")
		code[rule[1]+" "+rule[2]] = "yes"
	}
	rows := table(t, "authorization.md", "permission", "fleet-admin")
	compare(t, "permissions", texts(authz.AllPermissions()), firsts(rows))
	roles := []string{"fleet-admin", "tenant-admin", "provider-manager", "provider-viewer"}
	docs := map[string]string{}
	for _, row := range rows {
		for i, role := range roles {
			if row[i+1] != "-" {
				docs[role+" "+row[0]] = row[i+1]
			}
		}
	}
	compare(t, "roles", code, docs)
}

func TestEvents(t *testing.T) {
	t.Parallel()
	code := []string{
		bootstrap.EventStarted, bootstrap.EventProgressed, bootstrap.EventInstalled, bootstrap.EventJoined, bootstrap.EventFailed,
	}
	compare(t, "types", code, firsts(table(t, "events.md", "type", "when")))
	if kept := fmt.Sprintf("kept for %d days", event.Retention/(24*time.Hour)); !strings.Contains(read(t, "events.md"), kept) {
		t.Errorf("events.md does not say that events are %s", kept)
	}
}

func TestConfigKeys(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "../cmd/compute-api/config.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	structs := map[string]*ast.StructType{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				structs[spec.Name.Name] = s
			}
		}
		return true
	})
	keys := configKeys(structs, "config", "")
	if len(keys) < 10 {
		t.Fatalf("only %q were found", keys)
	}
	compare(t, "keys", keys, firsts(table(t, "config.md", "key", "default")))
}

// configKeys lists the koanf tags below a struct, in order; the elements of a list are written key[].
func configKeys(structs map[string]*ast.StructType, name, prefix string) []string {
	var keys []string
	for _, f := range structs[name].Fields.List {
		text, _ := strconv.Unquote(f.Tag.Value)
		key, typ := prefix+reflect.StructTag(text).Get("koanf"), f.Type
		if pointer, ok := typ.(*ast.StarExpr); ok {
			typ = pointer.X
		}
		if list, ok := typ.(*ast.ArrayType); ok {
			typ = list.Elt
			if id, ok := typ.(*ast.Ident); ok && structs[id.Name] != nil {
				key += "[]"
			}
		}
		if id, ok := typ.(*ast.Ident); ok && structs[id.Name] != nil {
			keys = append(keys, configKeys(structs, id.Name, key+".")...)
			continue
		}
		keys = append(keys, key)
	}
	return keys
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	code := map[string]bool{}
	for _, file := range []string{"../server/metrics.go", "../cmd/compute-api/metrics.go", "../identity/identity.go"} {
		for _, name := range regexp.MustCompile(`"compute_\w+"`).FindAllString(read(t, file), -1) {
			code[strings.Trim(name, `"`)] = true
		}
	}
	compare(t, "metrics", slices.Sorted(maps.Keys(code)), slices.Sorted(slices.Values(firsts(table(t, "operations.md", "metric")))))
}

// TestLinks follows the links between pages, to files and to headings.
func TestLinks(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"*.md", "*/*.md", "../*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	link := regexp.MustCompile(`\]\(([^)#:]*)(?:#([^)]*))?\)`)
	for _, page := range pages {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", page, m[1])
				continue
			}
			if m[2] != "" && !slices.Contains(anchors(read(t, target)), m[2]) {
				t.Errorf("%s links to %s#%s, and there is no such heading", page, m[1], m[2])
			}
		}
	}
}

// anchors are the names that a page's headings can be linked by.
func anchors(page string) []string {
	var names []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(page, -1) {
		name := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}
