package walls

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/vektah/gqlparser/v2/ast"
)

// request is what one caller sends.
type request struct {
	subject string
	path    string
	body    string
	stream  bool
	socket  bool   // it goes over a WebSocket
	foreign bool   // it names something that is not of the caller's tenant
	field   string // the one at the top that is answered as a0
}

// generator makes requests of everything that the schema has. It is not safe for concurrent use; what it shares is.
type generator struct {
	rnd    *rand.Rand
	w      *world
	schema *ast.Schema
	seen   *memory
	fields []*ast.FieldDefinition // at the top of queries and mutations
	next   int

	of      *tenant // the caller's; nil for nobody's
	target  *tenant // what the present field is about
	subject string
	named   []string
	foreign bool
}

// memory is what callers have learnt by their own requests: cursors of every tenant, and ids that somebody told a tenant.
type memory struct {
	mu      sync.Mutex
	cursors []string
	told    map[[2]string]bool // tenant and id
}

func (m *memory) addCursor(c string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.cursors) < 500 {
		m.cursors = append(m.cursors, c)
		return
	}
	m.cursors[rand.IntN(len(m.cursors))] = c
}

func (m *memory) cursor(rnd *rand.Rand) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.cursors) == 0 {
		return "none"
	}
	return m.cursors[rnd.IntN(len(m.cursors))]
}

func (m *memory) tell(tenantIDs, ids []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range tenantIDs {
		for _, id := range ids {
			m.told[[2]string{t, id}] = true
		}
	}
}

func (m *memory) wasTold(tenantID, id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.told[[2]string{tenantID, id}]
}

func newGenerator(rnd *rand.Rand, w *world, schema *ast.Schema, seen *memory) *generator {
	g := &generator{rnd: rnd, w: w, schema: schema, seen: seen}
	for _, root := range []*ast.Definition{schema.Query, schema.Mutation} {
		for _, f := range root.Fields {
			if !strings.HasPrefix(f.Name, "__") {
				g.fields = append(g.fields, f)
			}
		}
	}
	return g
}

// chance is true so many times of a hundred.
func (g *generator) chance(percent int) bool { return g.rnd.IntN(100) < percent }

func pick[T any](g *generator, from []T) T { return from[g.rnd.IntN(len(from))] }

func (g *generator) request() request {
	g.of, g.named, g.foreign = nil, nil, false
	g.subject = "user:nobody"
	if !g.chance(2) {
		g.of = pick(g, g.w.tenants)
		g.subject = pick(g, g.of.callers)
	}
	r := request{subject: g.subject, path: "/graphql"}
	switch n := g.rnd.IntN(100); {
	case n < 20:
		r.path, r.body = g.rest()
	case n < 21:
		r.stream = true
		r.body = document("subscription", g.field(pick(g, g.schema.Subscription.Fields), ""))
	default:
		r.field, r.body = g.operation()
	}
	r.socket = r.path == "/graphql" && (r.stream && g.chance(50) || g.chance(2))
	r.foreign = g.foreign
	g.remember()
	return r
}

// remember writes down which tenants may have learnt of which ids by this request: a denial is in the log of the tenant that was named.
func (g *generator) remember() {
	var tenantIDs, ids []string
	for _, name := range g.named {
		if strings.HasPrefix(name, "tenant-") {
			tenantIDs = append(tenantIDs, name)
		} else {
			ids = append(ids, name)
		}
	}
	if g.of != nil {
		tenantIDs = append(tenantIDs, g.of.id)
	}
	g.seen.tell(tenantIDs, ids)
}

func document(kind, selection string) string {
	text, _ := json.Marshal(map[string]string{"query": kind + " {" + selection + "}"}) // never fails
	return string(text)
}

// operation asks for each root field in turn, and mostly for others beside it.
func (g *generator) operation() (field, body string) {
	first := g.fields[g.next%len(g.fields)]
	g.next++
	root := g.schema.Query
	kind := "query"
	if slices.Contains(g.schema.Mutation.Fields, first) {
		root, kind = g.schema.Mutation, "mutation"
	}
	var b strings.Builder
	b.WriteString(g.field(first, "a0: "))
	for i := range g.rnd.IntN(3) {
		f := pick(g, root.Fields)
		if !strings.HasPrefix(f.Name, "__") {
			b.WriteString(g.field(f, fmt.Sprintf(" a%d: ", i+1)))
		}
	}
	return first.Name, document(kind, b.String())
}

// field is a root field about one tenant, mostly another one's than the caller's.
func (g *generator) field(f *ast.FieldDefinition, alias string) string {
	g.target = g.of
	if g.of == nil || g.chance(65) {
		g.target = pick(g, g.w.tenants)
	}
	return alias + g.selected(f, 0)
}

func (g *generator) selected(f *ast.FieldDefinition, depth int) string {
	var args []string
	for _, a := range f.Arguments {
		if g.given(a.Name, a.Type) {
			args = append(args, a.Name+": "+g.value(a.Name, a.Type))
		}
	}
	text := f.Name
	if len(args) > 0 {
		text += "(" + strings.Join(args, ", ") + ")"
	}
	return text + g.selection(g.schema.Types[f.Type.Name()], depth+1) + " "
}

// given says whether an argument is written: those that must be, and the others sometimes.
func (g *generator) given(name string, t *ast.Type) bool {
	return t.NonNull || name == "tenantId" && g.chance(90) || g.chance(40)
}

const deepest = 6

func (g *generator) selection(d *ast.Definition, depth int) string {
	if d.IsLeafType() {
		return ""
	}
	var b strings.Builder
	b.WriteString(" { __typename ")
	if d.IsAbstractType() {
		for _, p := range g.schema.GetPossibleTypes(d) {
			b.WriteString("... on " + p.Name + g.selection(p, depth) + " ")
		}
	}
	for _, f := range d.Fields {
		leaf := g.schema.Types[f.Type.Name()].IsLeafType()
		if strings.HasPrefix(f.Name, "__") || !leaf && (depth >= deepest || !g.chance(80-12*depth)) || d.IsAbstractType() && f.Name != "id" {
			continue
		}
		alias := ""
		if d.Kind == ast.Object {
			alias = d.Name + "_" + f.Name + ": " // of two types in one place, fields of one name may differ in type
		}
		b.WriteString(alias + g.selected(f, depth))
	}
	b.WriteString("}")
	return b.String()
}

// value writes what an argument or a field of an input takes.
func (g *generator) value(name string, t *ast.Type) string {
	if t.Elem != nil {
		var items []string
		for range 1 + g.rnd.IntN(2) {
			items = append(items, g.value(name, t.Elem))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	d := g.schema.Types[t.Name()]
	switch {
	case d.Kind == ast.Enum:
		return pick(g, d.EnumValues).Name
	case d.Kind == ast.InputObject:
		var fields []string
		for _, f := range d.Fields {
			if g.given(f.Name, f.Type) {
				fields = append(fields, f.Name+": "+g.value(f.Name, f.Type))
			}
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case d.Name == "Int":
		return fmt.Sprint(1 + g.rnd.IntN(20))
	case d.Name == "Float":
		return "1.5"
	case d.Name == "Boolean":
		return fmt.Sprint(g.chance(50))
	case d.Name == "JSON":
		return `{apiToken: "secret://sim"}`
	case d.Name == "Time":
		return pick(g, []string{`"2020-01-01T00:00:00Z"`, `"2036-01-01T00:00:00Z"`})
	}
	return fmt.Sprintf("%q", g.text(name))
}

// prefixes are what ids begin with, by the names of the arguments that take them.
var prefixes = map[string][]string{
	"accountId": {"pacct"}, "poolId": {"pool"}, "bootstrapId": {"boot"}, "hostId": {"host"}, "orphanId": {"orph"}, "tokenId": {"tok"},
	"objectId": {"pacct", "pool"}, "id": {"pacct", "pool", "boot", "host"},
}

// text is a string by its name in the schema.
func (g *generator) text(name string) string {
	if kinds, ok := prefixes[name]; ok {
		return g.id(kinds)
	}
	switch name {
	case "tenantId":
		return g.name(g.about(), g.about().id)
	case "object":
		switch of := g.about(); g.rnd.IntN(4) {
		case 0:
			return "compute-fleet"
		case 1:
			return "compute-provider-account/" + g.idOf(of, "pacct")
		case 2:
			return "compute-pool/" + g.idOf(of, "pool")
		default:
			return "compute-tenant/" + g.name(of, of.id)
		}
	case "subject", "actor": // nobody else may get rights: what they then see would be theirs to see
		return pick(g, []string{g.subject, "user:x" + g.fresh()})
	case "role":
		return pick(g, []string{"fleet-admin", "tenant-admin", "provider-manager", "provider-viewer"})
	case "after":
		return g.seen.cursor(g.rnd)
	case "provider":
		return "sim"
	case "action":
		return "createPool"
	case "machineId":
		if g.chance(70) {
			return g.id([]string{"machine"})
		}
	case "idempotencyKey":
		return fmt.Sprint("key-", g.rnd.IntN(20))
	}
	return "x" + g.fresh()
}

func (g *generator) fresh() string { return fmt.Sprintf("%08x", g.rnd.Uint32()) }

// about is the tenant of the present field, and now and then any.
func (g *generator) about() *tenant {
	if g.chance(15) {
		return pick(g, g.w.tenants)
	}
	return g.target
}

func (g *generator) id(kinds []string) string { return g.idOf(g.about(), pick(g, kinds)) }

func (g *generator) idOf(of *tenant, kind string) string { return g.name(of, pick(g, of.things[kind])) }

func (g *generator) name(of *tenant, text string) string {
	g.named = append(g.named, text)
	g.foreign = g.foreign || of != g.of
	return text
}

// rest is a call of one of the REST methods.
func (g *generator) rest() (path, body string) {
	g.target = g.of
	if g.of == nil || g.chance(65) {
		g.target = pick(g, g.w.tenants)
	}
	fields := map[string][]string{
		"create": {"tenantId", "provider", "name", "config", "idempotencyKey"}, "list": {"tenantId"}, "get": {"tenantId", "accountId"},
		"offers": {"tenantId", "accountId"}, "update": {"tenantId", "accountId", "config"}, "delete": {"tenantId", "accountId"},
		"bootstrap": {"tenantId", "accountId", "poolId", "machineId", "idempotencyKey"},
	}
	method := pick(g, []string{"create", "list", "get", "get", "offers", "update", "delete", "bootstrap"})
	in := map[string]any{}
	for _, f := range fields[method] {
		if f == "config" {
			in[f] = map[string]string{"apiToken": "secret://sim"}
			continue
		}
		in[f] = g.text(f)
	}
	text, _ := json.Marshal(in) // never fails
	return "/api/compute/providerAccounts/" + method, string(text)
}
