package server

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	runtimemetrics "runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What one request may take before it is executed.
const (
	maxCPU       = 20 * time.Millisecond
	maxAllocated = 16 << 20
)

// meterTries is how often a request that is over a bound is looked at: other work on the machine makes one dearer at times, its
// caches cold and a collection in its thread, and never cheaper.
const meterTries = 8

// seedBytes is how large a body may be that the fuzzer goes on from.
const seedBytes = 32 << 10

// FuzzRequest looks for requests that panic or are dear: from the body's bytes through lexing, parsing, limits, validation, variables
// and price, up to where execution would begin. CPU is that of the request's own thread.
func FuzzRequest(f *testing.F) {
	for _, body := range hostileBodies(f) {
		if len(body.document)+len(body.variables) <= seedBytes { // the fuzzer is slow on large ones, and TestHostileBodies has them all
			f.Add(body.document, body.variables)
		}
	}
	engines := []*engine{newTestEngine(f, Config{Introspection: true, Suggestions: true}), newTestEngine(f, Config{})}
	f.Fuzz(func(t *testing.T, document, variables string) {
		body := requestBody(document, variables)
		if len(body) > defaultLimits().BodyBytes {
			t.Skip("no such body is read")
		}
		for _, e := range engines {
			cpu, allocated := e.measure(t, body)
			keepWorst(t, body, cpu, allocated)
			if tooDear(cpu, allocated) {
				t.Errorf("%d bytes take %v of CPU and %.1f MiB", len(body), cpu, float64(allocated)/(1<<20))
			}
		}
	})
}

// requestBody is a request whose variables stand there as they are, so that they can be no JSON at all, and bring members with them.
func requestBody(document, variables string) []byte {
	quoted, _ := json.Marshal(document) // a string always can be
	body := fmt.Appendf(nil, `{"query":%s`, quoted)
	if variables != "" {
		body = fmt.Appendf(body, `,"variables":%s`, variables)
	}
	return append(body, '}')
}

// measure takes a body as far as prepare does, as if it came for the first time.
func (e *engine) measure(t testing.TB, body []byte) (cpu time.Duration, allocated uint64) {
	t.Helper()
	return e.least(t, func() {
		if params, err := parseParams(body); err == nil {
			_, _ = e.prepare(t.Context(), params)
		}
	})
}

// least is what the work takes of its own thread, with no document known: the least of a few tries, the first of which may be enough.
func (e *engine) least(t testing.TB, work func()) (cpu time.Duration, allocated uint64) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range meterTries {
		e.documents.Purge()
		before, start := allocatedBytes(), threadTime(t)
		work()
		took, bytes := threadTime(t)-start, allocatedBytes()-before
		if cpu == 0 || took < cpu {
			cpu, allocated = took, bytes
		}
		if !tooDear(cpu, allocated) {
			break
		}
	}
	return cpu, allocated
}

// threadTime is what this thread has used.
func threadTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func allocatedBytes() uint64 {
	sample := []runtimemetrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	runtimemetrics.Read(sample)
	return sample[0].Value.Uint64()
}

// keepWorst writes down what was the dearest so far, where FUZZ_WORST says: each worker of the fuzzer is a process of its own.
func keepWorst(t testing.TB, body []byte, cpu time.Duration, allocated uint64) {
	t.Helper()
	dir := os.Getenv("FUZZ_WORST")
	if dir == "" {
		return
	}
	for name, value := range map[string]int64{"cpu-us": cpu.Microseconds(), "bytes": int64(allocated)} {
		path := filepath.Join(dir, fmt.Sprintf("%s.%d", name, os.Getpid()))
		var worst int64
		if text, err := os.ReadFile(path); err == nil {
			_, _ = fmt.Sscan(string(text), &worst)
		}
		if value <= worst {
			continue
		}
		if err := os.WriteFile(path, fmt.Appendf(nil, "%d\n%s\n", value, body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

type hostileBody struct{ document, variables string }

// hostileBodies are what the fuzzer goes on from.
func hostileBodies(t testing.TB) map[string]hostileBody {
	t.Helper()
	all := map[string]hostileBody{}
	for name, params := range hostile() {
		variables, err := json.Marshal(params.Variables)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = hostileBody{params.Query, string(variables)}
	}
	doc := func(name, text string) { all[name] = hostileBody{document: text} }
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(strings.ReplaceAll(format, "%d", fmt.Sprint(i)))
		}
		return b.String()
	}
	const large = 250 << 10
	repeat := func(item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+",", large/(len(item)+1)), ",") + "]"
	}
	declared := func(typ string) string { return "query ($v: " + typ + ") { viewer { subject } }" }
	all["variables: numbers for texts"] = hostileBody{declared("[String!]"), `{"v":` + repeat("0") + `}`}
	all["variables: numbers for ids"] = hostileBody{declared("[ID!]"), `{"v":` + repeat("0") + `}`}
	all["variables: numbers for booleans"] = hostileBody{declared("[Boolean]"), `{"v":` + repeat("1") + `}`}
	all["variables: texts for numbers"] = hostileBody{declared("[Int!]"), `{"v":` + repeat(`""`) + `}`}
	all["variables: fractions for numbers"] = hostileBody{declared("[Int!]"), `{"v":` + repeat(`1.5`) + `}`}
	all["variables: lists of lists"] = hostileBody{declared("[[[[String]]]]"), `{"v":` + repeat("[[[0]]]") + `}`}
	all["variables: objects"] = hostileBody{declared("[OfferQuery!]"), `{"v":` + repeat("{}") + `}`}
	all["variables: wrong objects"] = hostileBody{declared("[OfferQuery!]"), `{"v":` + repeat(`{"region":0}`) + `}`}
	all["variables: nulls"] = hostileBody{declared("[String!]!"), `{"v":` + repeat("null") + `}`}
	all["variables: wrong values"] = hostileBody{declared("[BootstrapStatus!]"), `{"v":` + repeat(`"X"`) + `}`}
	all["variables: JSON"] = hostileBody{"mutation ($c: JSON) { createProviderAccount(input: {tenantId: \"t\", provider: \"p\", name: \"n\", config: $c}) { replayed } }", `{"c":` + repeat("{}") + `}`}
	all["variables: members"] = hostileBody{declared("OfferQuery"), `{"v":{` + strings.TrimSuffix(many(20_000, `"%d":0,`), ",") + `}}`}
	all["variables: not declared"] = hostileBody{"{ __typename }", `{` + strings.TrimSuffix(many(20_000, `"%d":0,`), ",") + `}`}
	all["variables: deep"] = hostileBody{declared("JSON"), `{"v":` + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000) + `}`}
	all["variables: huge number"] = hostileBody{declared("Int"), `{"v":1` + strings.Repeat("0", 200_000) + `}`}
	all["variables: exponent"] = hostileBody{declared("Float"), `{"v":1e999999999}`}
	all["variables: escapes"] = hostileBody{declared("String"), `{"v":"` + strings.Repeat(`\u00e9`, large/6) + `"}`}
	all["variables: half surrogates"] = hostileBody{declared("String"), `{"v":"` + strings.Repeat(`\ud800`, large/6) + `"}`}
	all["variables: more members"] = hostileBody{"{ __typename }", `{},"extensions":{"persistedQuery":{"sha256Hash":"x"}},"operationName":"A"`}
	doc("block strings", `{ pool(tenantId: """`+strings.Repeat("\n  a", 12_000)+`""", poolId: "p") { id } }`)
	doc("block string of escapes", `{ pool(tenantId: """`+strings.Repeat(`\"""`, 14_000)+`""", poolId: "p") { id } }`)
	doc("unicode escapes", `{ pool(tenantId: "`+strings.Repeat(`\uD83D\uDE00`, 5_000)+`", poolId: "p") { id } }`)
	doc("huge integer", `{ offers(tenantId: "t", accountId: "a", query: {minVcpu: 1`+strings.Repeat("0", 60_000)+`}) { id } }`)
	doc("huge fraction", `{ offers(tenantId: "t", accountId: "a", query: {minVcpu: 0.`+strings.Repeat("1", 60_000)+`}) { id } }`)
	doc("long name", `{ `+strings.Repeat("a", 60_000)+` }`)
	doc("long names", `{ `+many(60, strings.Repeat("b", 1_000)+"%d ")+`}`)
	doc("long fragment names", `{ `+many(30, "..."+strings.Repeat("b", 1_000)+"%d ")+`}`+many(30, " fragment "+strings.Repeat("b", 1_000)+"%d on Query { __typename }"))
	doc("variable definitions", `query (`+many(390, "$v%d: [[[[String!]!]!]!]! ")+`) { __typename }`)
	doc("equal variable definitions", `query (`+strings.Repeat("$v: ID ", 390)+`) { __typename }`)
	doc("variable uses", `query ($v: ID!) { `+many(20, `a%d: pool(tenantId: $v, poolId: $v) { id } `)+`}`)
	doc("operations and fragments", many(95, "query A%d { ...F%d } fragment F%d on Query { __typename } "))
	doc("operations that share fragments", many(60, "query A%d { ...F0 } ")+many(180, "fragment F%d on Query { ...G __typename } ")+"fragment G on Query { __typename }")
	doc("fragments in a long circle", "{ ...F0 }"+many(240, " fragment F%d on Query { ...F%d ...F0 ...F1 }"))
	doc("fragments of each other", "{ ...F0 }"+many(24, " fragment F%d on Query { "+many(24, "...F%d ")+"}"))
	doc("unused fragments", "{ __typename }"+many(280, " fragment F%d on Viewer { subject }"))
	doc("long type name", "{ __typename } fragment F on "+strings.Repeat("ProviderAccount", 4_000)+" { __typename }")
	doc("long argument name", `{ pool(tenantId: "t", poolId: "p", `+strings.Repeat("poolId", 10_000)+`: 1) { id } }`)
	doc("long type names", "{ __typename }"+many(280, " fragment F%d on "+strings.Repeat("ProviderAccount", 13)+" { __typename }"))
	doc("long enum value", `{ bootstraps(tenantId: "t", statuses: [`+strings.Repeat("JOINED", 10_000)+`]) { nodes { id } } }`)
	doc("long directive name", `{ __typename @`+strings.Repeat("skip", 15_000)+`}`)
	doc("long member name", `{ offers(tenantId: "t", accountId: "a", query: {`+strings.Repeat("minVcpu", 9_000)+`: 1}) { id } }`)
	doc("unknown types", "{ __typename }"+many(280, " fragment F%d on Vieweer { subject }"))
	doc("unknown arguments", `{ pool(tenantId: "t", poolId: "p" `+many(600, "poolIdd%d: 1 ")+`) { id } }`)
	doc("equal arguments", `{ pool(`+strings.Repeat(`tenantId: "t" `, 640)+`) { id } }`)
	doc("unknown members", `{ offers(tenantId: "t", accountId: "a", query: {`+many(600, "minVcpuu%d: 1 ")+`}) { id } }`)
	doc("unknown enum values", `{ bootstraps(tenantId: "t", statuses: [`+strings.Repeat("JOINEDD ", 1_900)+`]) { nodes { id } } }`)
	doc("nested introspection", "{ __schema { types { "+strings.Repeat("fields { type { ", 240)+"name"+strings.Repeat("}}", 240)+" } } }")
	doc("introspection by fragments", "{ __schema { types { ...A } } }"+many(200, " fragment F%d on __Type { fields { type { ...F%d } } }")+" fragment A on __Type { ofType { ...A } }")
	doc("inline fragments", strings.Repeat("{ ... on Query ", 480)+"{ __typename }"+strings.Repeat("}", 480))
	doc("typename", "{ viewer {"+strings.Repeat(" __typename", 1_900)+"}}")
	doc("directives of a field", "{ __typename "+many(320, "@skip(if: true) ")+"}")
	doc("byte order marks", strings.Repeat("\ufeff", 20_000)+"{ __typename }")
	doc("no UTF-8", "{ __typename } #"+strings.Repeat("\xff", 10_000))
	doc("type definitions", strings.Repeat("type A { b: C } ", 250))
	return all
}

// TestHostileBodies prints what each takes before it is executed, and holds the memory, and without the race detector the CPU, to their bounds.
func TestHostileBodies(t *testing.T) {
	engines := []*engine{newTestEngine(t, Config{Introspection: true, Suggestions: true}), newTestEngine(t, Config{})}
	var worst time.Duration
	var most uint64
	for name, b := range hostileBodies(t) {
		for _, e := range engines {
			body := requestBody(b.document, b.variables)
			if len(body) > defaultLimits().BodyBytes {
				t.Errorf("%s: %d bytes are no body", name, len(body))
			}
			cpu, allocated := e.measure(t, body)
			t.Logf("%-36s %8.2f ms %7.2f MiB", name, float64(cpu.Microseconds())/1000, float64(allocated)/(1<<20))
			worst, most = max(worst, cpu), max(most, allocated)
			if tooDear(cpu, allocated) {
				t.Errorf("%s takes %v of CPU and %.1f MiB", name, cpu, float64(allocated)/(1<<20))
			}
		}
	}
	printFigure(t, "hostile-bodies", worst, most)
}

// printFigure says how near to the bounds the dearest came.
func printFigure(t testing.TB, name string, worst time.Duration, most uint64) {
	t.Helper()
	verdict := "PASS"
	if t.Failed() {
		verdict = "FAIL"
	}
	fmt.Printf("%s worst-cpu-ms=%.1f worst-mib=%.1f %s seed=0\n", name, float64(worst.Microseconds())/1000, float64(most)/(1<<20), verdict)
}
