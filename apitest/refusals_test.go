package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/internal/problem"
)

const (
	// What refusing one request may take of the server, from its first byte to the last of the answer.
	refusalCPU   = 20 * time.Millisecond
	refusalBytes = 16 << 20

	// referenceCPU is what the reference work takes of a machine that has nothing else to do. Where others wear down its caches it takes more, and so
	// does whatever is measured.
	referenceCPU = 1500 * time.Microsecond

	// refusalsAtOnce is how many refusals are looked at together, so that what the server does besides counts little, and refusalTries how often: what
	// else the machine does makes one dearer at times, and never cheaper.
	refusalsAtOnce = 4
	refusalTries   = 3
)

// hostileInput is a request that is within the limits of size and refused by the service it is for.
type hostileInput struct {
	path, body string
	code       problem.Code
}

// hostileInputs have as much to judge as a body can hold.
func hostileInputs() map[string]hostileInput {
	list := func(n int, format string) string {
		items := make([]string, n)
		for i := range items {
			items[i] = strings.ReplaceAll(format, "%d", fmt.Sprintf("%04d", i))
		}
		return strings.Join(items, ",")
	}
	create := func(provider, config string) hostileInput {
		return hostileInput{restPath + "create", `{"tenantId":"hostile","provider":"` + provider + `","name":"a","config":` + config + `}`, problem.InvalidInput}
	}
	graphql := func(document, variables string) hostileInput {
		quoted, _ := json.Marshal(document) // a string always can be
		return hostileInput{"/graphql", `{"query":` + string(quoted) + `,"variables":` + variables + `}`, problem.InvalidInput}
	}
	long := strings.Repeat("k", 40)
	const (
		createOne = `mutation ($c: JSON) { createProviderAccount(input: {tenantId: "hostile", provider: "sim", name: "a", config: $c}) { replayed } }`
		runs      = `query ($s: [BootstrapStatus!], $w: [String!], $f: Int) { bootstraps(tenantId: "hostile", statuses: $s, waitReasons: $w, first: $f) { nodes { id } } }`
	)
	machine := `{"id":"m%d","address":"` + strings.Repeat("9", 60) + `","user":7,"authorizedKeys":"x","hostFingerprint":"%d"}`
	return map[string]hostileInput{
		"unknown members":            create("sim", `{`+list(1_200, `"`+long+`%d":1`)+`}`),
		"unknown members, of ssh":    create("ssh", `{`+list(1_200, `"`+long+`%d":1`)+`}`),
		"secrets":                    create("sim", `{`+list(1_200, `"`+long+`%dKey":1`)+`}`),
		"foreign letters":            create("sim", `{`+list(1_200, `"`+strings.Repeat("é", 20)+`%d":1`)+`}`),
		"nested members":             create("sim", `{`+list(1_000, `"n%d":{"`+long+`token":{}}`)+`}`),
		"deep members":               create("sim", strings.Repeat(`{"a":`, 30)+`[`+list(1_100, `"//u:p@`+long+`%d"`)+`]`+strings.Repeat("}", 30)),
		"numbers":                    create("sim", `{"a":[`+list(4_900, `1e99`)+`]}`),
		"URLs":                       create("sim", `{"a":["`+strings.Repeat("//a:b", 12_000)+`"]}`),
		"wrong machines":             create("ssh", `{"machines":[`+list(420, machine)+`]}`),
		"machines that are numbers":  create("ssh", `{"machines":[`+list(4_900, `7`)+`]}`),
		"members that are repeated":  create("sim", `{`+strings.TrimSuffix(strings.Repeat(`"`+long+`":1,`, 1_300), ",")+`}`),
		"an unknown provider":        create("none", `{`+list(1_200, `"`+long+`%d":1`)+`}`),
		"more than a config can be":  create("sim", `{`+list(4_800, `"`+long+`%d":1`)+`}`),
		"fields that there are not":  {restPath + "create", `{` + list(4_800, `"`+long+`%d":1`) + `}`, problem.InvalidInput},
		"more values than are read":  {restPath + "create", `{"config":[` + strings.TrimSuffix(strings.Repeat("0,", 120_000), ",") + `]}`, problem.InvalidInput},
		"a name without end":         {restPath + "create", `{"tenantId":"hostile","provider":"sim","name":"` + strings.Repeat("a", 250_000) + `"}`, problem.InvalidInput},
		"a tenant without end":       {restPath + "list", `{"tenantId":"` + strings.Repeat("a", 250_000) + `"}`, problem.InvalidInput},
		"unknown members, GraphQL":   graphql(createOne, `{"c":{`+list(1_200, `"`+long+`%d":1`)+`}}`),
		"secrets, GraphQL":           graphql(createOne, `{"c":{`+list(1_200, `"`+long+`%dKey":1`)+`}}`),
		"states, the last one wrong": graphql(runs, `{"s":[`+strings.Repeat(`"JOINED",`, 4_900)+`"X"]}`),
		"states, and a page of none": graphql(runs, `{"f":0,"s":[`+strings.TrimSuffix(strings.Repeat(`"JOINED",`, 4_900), ",")+`]}`),
		"wait reasons":               graphql(runs, `{"w":[`+list(4_900, `"REASON_`+strings.Repeat("A", 30)+`"`)+`],"f":0}`),
		"permissions": graphql(`mutation ($p: [Permission!]!) { defineRole(input: {name: "r", permissions: $p}) { role { name } } }`,
			`{"p":[`+strings.TrimSuffix(strings.Repeat(`"AUDIT_READ",`, 4_900), ",")+`]}`),
		"a cursor without end": graphql(`query ($a: String) { bootstraps(tenantId: "hostile", after: $a) { nodes { id } } }`, `{"a":"`+strings.Repeat("a", 250_000)+`"}`),
	}
}

// TestHostileInputs prints what the whole server takes to refuse each, and holds the memory, and without the race detector the CPU, to their bounds.
func TestHostileInputs(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	token := d.caller(fleetAdmin, "fleet-admin compute-fleet")
	s := d.serve(t)
	reference := newReference()
	var worst, relative time.Duration
	var most int64
	for name, in := range hostileInputs() {
		if len(in.body) > 256<<10 {
			t.Errorf("%s: %d bytes are no body", name, len(in.body))
		}
		busy := reference.busy(t)
		cpu, allocated := s.takes(t, token, name, in)
		busy = max(busy, reference.busy(t), 1)
		t.Logf("%-28s %8.2f ms %7.2f MiB, the machine is %.1f times as slow as it can be", name, float64(cpu.Microseconds())/1000, float64(allocated)/(1<<20), busy)
		if tooDear(cpu, allocated, busy) {
			t.Errorf("%s takes %v of CPU and %.1f MiB", name, cpu, float64(allocated)/(1<<20))
		}
		worst, relative, most = max(worst, cpu), max(relative, time.Duration(float64(cpu)/busy)), max(most, allocated)
	}
	harness.Report(t, "hostile-inputs", 0, "inputs=%d worst-cpu-ms=%.1f of-an-idle-machine-ms=%.1f worst-mib=%.1f",
		len(hostileInputs()), float64(worst.Microseconds())/1000, float64(relative.Microseconds())/1000, float64(most)/(1<<20))
}

// reference is work that is always the same: to read an object of as many members as a request can have.
type reference []byte

func newReference() reference {
	members := make([]string, 4_800)
	for i := range members {
		members[i] = fmt.Sprintf(`"k%040d":1`, i)
	}
	return reference("{" + strings.Join(members, ",") + "}")
}

// busy is how many times as long as on an idle machine the work takes now, of CPU.
func (r reference) busy(t testing.TB) float64 {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	took := make([]time.Duration, 15)
	for i := range took {
		before := threadTime(t)
		var v any
		if err := json.Unmarshal(r, &v); err != nil {
			t.Fatal(err)
		}
		took[i] = threadTime(t) - before
	}
	slices.Sort(took)
	return float64(took[len(took)/2]) / float64(referenceCPU)
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

// takes is the least that refusing the request took in a few tries, or what it took in the first that was within the bound.
func (s *process) takes(t testing.TB, token, name string, in hostileInput) (cpu time.Duration, allocated int64) {
	t.Helper()
	for range refusalTries {
		bytes, start := s.allocated(t), s.cpuTime(t)
		for range refusalsAtOnce {
			a := s.send(t, http.MethodPost, in.path, token, typeJSON, []byte(in.body))
			if !strings.Contains(string(a.body), `"`+string(in.code)+`"`) {
				t.Fatalf("%s: %d %.300s", name, a.status, a.body)
			}
		}
		took := (s.cpuTime(t) - start) / refusalsAtOnce
		if cpu == 0 || took < cpu {
			cpu, allocated = took, (s.allocated(t)-bytes)/refusalsAtOnce
		}
		if cpu <= refusalCPU {
			break
		}
	}
	return cpu, allocated
}

// cpuTime is what all threads of the server have used, to the nanosecond.
func (s *process) cpuTime(t testing.TB) (total time.Duration) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", s.Pid()))
	if err != nil || len(threads) == 0 {
		t.Fatalf("the server has no threads: %v", err)
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it ended
		}
		used, _, _ := strings.Cut(string(text), " ")
		n, err := strconv.ParseInt(used, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		total += time.Duration(n)
	}
	return total
}

// allocated is how many bytes the server has ever allocated.
func (s *process) allocated(t testing.TB) int64 {
	t.Helper()
	first := s.send(t, http.MethodGet, "/metrics", "", "", nil).body
	now := first
	harness.Await(t, "metrics of now", func() bool { // what was told first may be a second old
		now = s.send(t, http.MethodGet, "/metrics", "", "", nil).body
		return !bytes.Equal(now, first)
	})
	for line := range strings.Lines(string(now)) {
		if text, ok := strings.CutPrefix(line, "go_memstats_alloc_bytes_total "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			return int64(n)
		}
	}
	t.Fatal("the metrics tell nothing of the memory")
	return 0
}
