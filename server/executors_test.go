package server

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
)

var (
	executions    = flag.Int("executions", 1_000, "how many selections TestSelectionsByBothExecutors makes up")
	executionSeed = flag.Uint64("execution-seed", 1, "what they are made from")
)

// bothExecutors answers operations by plan, and by the executor alone.
type bothExecutors struct {
	*engine
	plain  *atomic.Int64 // fields of plain data that went through the executor
	passed [2]int64      // of those, without and with plans
}

func newBothExecutors(t *testing.T, seed uint64, trouble float64) *bothExecutors {
	t.Helper()
	m := makeUp(seed, trouble)
	return &bothExecutors{engine: newMadeUpEngine(t, m), plain: m.plain}
}

// told is an answer as far as the executors make it.
type told struct {
	data   string
	errors []string
}

func toldBy(resp *graphql.Response) told {
	out := told{data: string(resp.Data)}
	for _, err := range resp.Errors {
		text, _ := json.Marshal(err)
		out.errors = append(out.errors, string(text))
	}
	slices.Sort(out.errors)
	return out
}

// compare answers a request both ways. It reports false for what is refused or has no single answer.
func (b *bothExecutors) compare(t *testing.T, params graphql.RawParams) bool {
	t.Helper()
	var answers [2]told
	for i := range answers {
		request := params
		op, refused := b.prepare(t.Context(), &request)
		if refused != nil || op.kind() == ast.Subscription {
			return false
		}
		if i == 0 {
			op.plans = nil
		}
		before := b.plain.Load()
		if err := b.run(t.Context(), op, func(resp *graphql.Response) error { answers[i] = toldBy(resp); return nil }); err != nil {
			t.Fatal(err)
		}
		b.passed[i] += b.plain.Load() - before
	}
	if answers[0].data != answers[1].data || !slices.Equal(answers[0].errors, answers[1].errors) {
		t.Errorf("%s\nwith %v\nby the executor: %s\n  %s\nby plan: %s\n  %s", params.Query, params.Variables,
			answers[0].data, strings.Join(answers[0].errors, "\n  "), answers[1].data, strings.Join(answers[1].errors, "\n  "))
	}
	return true
}

// Every document that stands anywhere in the repository has one answer.
func TestCorpusByBothExecutors(t *testing.T) {
	t.Parallel()
	texts := documentsOf(t, "..")
	for _, body := range hostileBodies(t) {
		texts = append(texts, body.document)
	}
	compared, passed := 0, [2]int64{}
	for seed := range uint64(6) {
		b := newBothExecutors(t, seed, float64(seed%3)*0.02)
		for _, text := range texts {
			for _, params := range b.requests(t, text) {
				if b.compare(t, params) {
					compared++
				}
			}
		}
		passed[0], passed[1] = passed[0]+b.passed[0], passed[1]+b.passed[1]
	}
	fmt.Printf("corpus-executors documents=%d answers=%d executor-fields=%d of %d %s seed=0\n", len(texts), compared, passed[1], passed[0], verdict(t))
	if len(texts) < 300 || compared < 1000 {
		t.Errorf("only %d answers to %d documents were compared", compared, len(texts))
	}
}

func verdict(t *testing.T) string {
	t.Helper()
	if t.Failed() {
		return "FAIL"
	}
	return "PASS"
}

// requests are the operations of a document, with variables of their types, both ways round where they are conditions.
func (b *bothExecutors) requests(t *testing.T, text string) (all []graphql.RawParams) {
	t.Helper()
	doc, errs := b.document(t.Context(), text)
	if errs != nil {
		return nil
	}
	for _, op := range doc.Operations {
		for _, condition := range []bool{true, false} {
			variables := map[string]any{}
			for _, v := range op.VariableDefinitions {
				variables[v.Variable] = sampleOf(b.schema.Schema(), v.Type, condition)
			}
			all = append(all, graphql.RawParams{Query: text, OperationName: op.Name, Variables: variables})
		}
	}
	return all
}

func sampleOf(schema *ast.Schema, t *ast.Type, condition bool) any {
	if t.Elem != nil {
		return []any{sampleOf(schema, t.Elem, condition)}
	}
	def := schema.Types[t.NamedType]
	switch def.Kind {
	case ast.Enum:
		return def.EnumValues[0].Name
	case ast.InputObject:
		object := map[string]any{}
		for _, f := range def.Fields {
			if f.Type.NonNull {
				object[f.Name] = sampleOf(schema, f.Type, condition)
			}
		}
		return object
	default:
	}
	switch def.Name {
	case "Boolean":
		return condition
	case "Int":
		return json.Number("3")
	case "Float":
		return json.Number("1.5")
	case "JSON":
		return map[string]any{}
	case "Time":
		return "2026-01-02T03:04:05Z"
	}
	return "pool_x"
}

// What is quoted in some way, and begins as a document does.
var (
	quotations = []*regexp.Regexp{
		regexp.MustCompile("`[^`]*`"), regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"`), regexp.MustCompile("(?s)```[a-z]*\n.*?```"), regexp.MustCompile(`'[^'\n]*'`),
	}
	documentBegins = regexp.MustCompile(`^(\s|#[^\n]*\n)*(query|mutation|subscription|fragment|\{)`)
)

// documentsOf finds all documents that are written in files below the directory, in whatever language.
func documentsOf(t *testing.T, dir string) []string {
	t.Helper()
	found := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if name := entry.Name(); name == "node_modules" || name == ".git" || name == ".cache" || name == "dist" {
				return filepath.SkipDir
			}
			return err
		}
		if !slices.Contains([]string{".go", ".md", ".ts", ".tsx", ".mjs", ".txtar", ".json", ".sh", ".graphql"}, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, quotation := range quotations {
			for _, quoted := range quotation.FindAllString(string(text), -1) {
				addDocument(found, quoted)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found))
}

func addDocument(found map[string]bool, quoted string) {
	text, err := strconv.Unquote(quoted)
	if err != nil {
		text = strings.Trim(quoted, "`'\"")
		if head, rest, ok := strings.Cut(text, "\n"); ok && !strings.ContainsAny(head, "{ ") {
			text = rest
		}
	}
	var body struct{ Query string }
	if json.Unmarshal([]byte(text), &body) == nil && body.Query != "" {
		text = body.Query
	}
	if documentBegins.MatchString(text) {
		found[text] = true
	}
}

// What is rare among selections that are made up has one answer too.
func TestRareSelectionsByBothExecutors(t *testing.T) {
	t.Parallel()
	var conditions, declared, fields strings.Builder
	const booleans = 7 // of which the plans of a document can tell some of the ways apart, and leave the rest to the executor
	for i := range booleans {
		fmt.Fprintf(&declared, "$c%d: Boolean! ", i)
		fmt.Fprintf(&conditions, " a%d: name @include(if: $c%d)", i, i)
		fmt.Fprintf(&fields, " p%d: nodes { ...A ...B }", i)
	}
	requests := []graphql.RawParams{
		{Query: `{ bootstraps(first: 3) { nodes { account { bootstraps(first: 2) { edges { node { history { to } pool { id } account { name } } } nodes { claim { offerId } } } } } } }`},
		{Query: `{ pools(tenantId: "t") { edges { node { account { provider { name } } } } nodes { account { provider { name } id } } } }`},
		{Query: `{ node(id: "pool_x") { __typename id ... on Pool { name account { id } } ... on Node { id ... on Host { machineId } } ... on Bootstrap { account { provider { name } } } } }`},
		{Query: `{ providerAccounts(tenantId: "t", first: 3) { nodes { ...A } nodes { ...B } } a: providerAccounts(tenantId: "t", first: 3) { nodes { ...B ...A } } }` + fragmentsAB},
		{Query: `{ providerAccounts(tenantId: "t", first: 3) { nodes { offers { memoryGiB memory: memoryGiB } } } }`},
		{Query: `query A { viewer { subject } providers { name } } query B { providers { displayName } }`, OperationName: "B"},
		{Query: `query A { viewer { subject } providers { name } } query B { providers { displayName } }`, OperationName: "A"},
		{Query: `{ providerAccounts(tenantId: "t", first: 3) { ` + fields.String() + ` } }` + fragmentsAB},
		{Query: `query ($c: Boolean = true) { providers { name @include(if: $c) displayName @skip(if: $c) } }`, Variables: map[string]any{"c": false}},
	}
	for bits := range 1 << booleans {
		variables := map[string]any{}
		for i := range booleans {
			variables[fmt.Sprintf("c%d", i)] = bits>>i&1 == 1
		}
		query := "query (" + declared.String() + ") { providerAccounts(tenantId: \"t\") { nodes {" + conditions.String() + " id } } }"
		requests = append(requests, graphql.RawParams{Query: query, Variables: variables})
	}
	for seed := range uint64(24) {
		b := newBothExecutors(t, seed, float64(seed%4)*0.01)
		for _, params := range requests {
			if !b.compare(t, params) {
				t.Fatalf("refused: %s", params.Query)
			}
		}
	}
}

const fragmentsAB = ` fragment A on ProviderAccount { id check { ok } bootstraps(first: 2) { nodes { id failure { message } } } provider { name } }
	fragment B on ProviderAccount { name check { message } bootstraps(first: 2) { nodes { status failure { reason logTail } } pageInfo { hasNextPage } } provider { capabilities { order } } }`

// Selections that are made up have one answer.
func TestSelectionsByBothExecutors(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(*executionSeed, 0))
	schema := newTestEngine(t, Config{}).schema.Schema()
	compared, refused, passed := 0, 0, [2]int64{}
	for compared < *executions && !t.Failed() {
		b := newBothExecutors(t, r.Uint64(), pick(chance{Rand: r}, 0, 0.005, 0.03))
		for range 100 {
			g := selector{Rand: r, schema: schema}
			if b.compare(t, g.request()) {
				compared++
			} else {
				refused++
			}
		}
		passed[0], passed[1] = passed[0]+b.passed[0], passed[1]+b.passed[1]
	}
	fmt.Printf("made-up-executors answers=%d refused=%d executor-fields=%d of %d %s seed=%d\n", compared, refused, passed[1], passed[0], verdict(t), *executionSeed)
	if refused > compared/2 {
		t.Errorf("%d of the selections were refused", refused)
	}
}

// selector makes up documents.
type selector struct {
	*rand.Rand
	schema    *ast.Schema
	fragments []string
	fields    int
}

func (g *selector) request() graphql.RawParams {
	kind, root := "query", g.schema.Query
	if g.IntN(6) == 0 {
		kind, root = "mutation", g.schema.Mutation
	}
	g.fields = 60
	body := g.selection(root, 7)
	text := body + " " + strings.Join(g.fragments, " ")
	var declared []string
	for name, of := range map[string]string{"$yes": "Boolean!", "$no": "Boolean = false", "$num": "Int"} {
		if strings.Contains(text, name) {
			declared = append(declared, name+": "+of)
		}
	}
	if len(declared) > 0 {
		kind += "(" + strings.Join(declared, ", ") + ")"
	}
	variables := map[string]any{"yes": g.IntN(2) == 0, "num": json.Number(strconv.Itoa(g.IntN(5)))}
	if g.IntN(2) == 0 {
		variables["no"] = g.IntN(2) == 0
	}
	return graphql.RawParams{Query: kind + " " + text, Variables: variables}
}

func (g *selector) selection(def *ast.Definition, depth int) string {
	var out strings.Builder
	out.WriteString("{")
	for range 1 + g.IntN(6) {
		out.WriteString(" " + g.part(def, depth))
	}
	out.WriteString(" __typename }") // so that it is never empty
	return out.String()
}

func (g *selector) part(def *ast.Definition, depth int) string {
	switch n := g.IntN(10); {
	case n == 0:
		return "... " + g.condition() + g.selection(def, depth)
	case n == 1:
		on := g.typeOf(def)
		return "... on " + on.Name + g.condition() + " " + g.selection(on, depth)
	case n == 2 && len(g.fragments) < 5 && depth < 7:
		on := g.typeOf(def)
		name := fmt.Sprintf("F%d", len(g.fragments))
		g.fragments = append(g.fragments, "")
		at := len(g.fragments) - 1
		g.fragments[at] = "fragment " + name + " on " + on.Name + " " + g.selection(on, depth)
		return "..." + name + g.condition() + " ..." + name
	}
	return g.field(def, depth)
}

// typeOf is a type that a fragment on an object of the type can have.
func (g *selector) typeOf(def *ast.Definition) *ast.Definition {
	possible := append([]*ast.Definition{def}, g.schema.GetPossibleTypes(def)...)
	possible = append(possible, g.schema.GetImplements(def)...)
	return possible[g.IntN(len(possible))]
}

func (g *selector) field(def *ast.Definition, depth int) string {
	g.fields--
	var fields []*ast.FieldDefinition
	for _, f := range def.Fields {
		composite := g.schema.Types[f.Type.Name()].IsCompositeType()
		if !strings.HasPrefix(f.Name, "__") && (!composite || depth > 0 && g.fields > 0) {
			fields = append(fields, f)
		}
	}
	if len(fields) == 0 {
		return "__typename"
	}
	f := fields[g.IntN(len(fields))]
	if g.IntN(3) > 0 { // what has fields of its own is more telling
		for range 3 {
			if g.schema.Types[f.Type.Name()].IsCompositeType() {
				break
			}
			f = fields[g.IntN(len(fields))]
		}
	}
	key := f.Name
	if g.IntN(6) == 0 {
		key = fmt.Sprintf("%s_%d: %s", f.Name, g.IntN(2), f.Name)
	}
	out := key + g.arguments(f) + g.condition()
	if of := g.schema.Types[f.Type.Name()]; of.IsCompositeType() {
		out += " " + g.selection(of, depth-1)
	}
	return out
}

func (g *selector) condition() string {
	if g.IntN(6) > 0 {
		return ""
	}
	return pick(chance{Rand: g.Rand}, " @skip(if: $no)", " @include(if: $yes)", " @include(if: true)", " @skip(if: $yes) @include(if: $yes)")
}

// arguments are the same for all fields of one name, which can be merged then.
func (g *selector) arguments(f *ast.FieldDefinition) string {
	var all []string
	for _, arg := range f.Arguments {
		if arg.Name == "first" {
			all = append(all, "first: $num")
		} else if arg.Type.NonNull {
			all = append(all, arg.Name+": "+literal(g.schema, arg.Type))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return "(" + strings.Join(all, ", ") + ")"
}

func literal(schema *ast.Schema, t *ast.Type) string {
	def := schema.Types[t.Name()]
	switch {
	case t.Elem != nil:
		return "[" + literal(schema, t.Elem) + "]"
	case def.Kind == ast.Enum:
		return def.EnumValues[0].Name
	case def.Kind == ast.InputObject:
		var all []string
		for _, f := range def.Fields {
			if f.Type.NonNull {
				all = append(all, f.Name+": "+literal(schema, f.Type))
			}
		}
		return "{" + strings.Join(all, ", ") + "}"
	case def.Name == "Boolean":
		return "true"
	case def.Name == "Int":
		return "1"
	}
	return `"pool_x"`
}
