package torture

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/harness"
)

// clockOffset is what package time gets beside its own files: how many seconds the clock is off.
const clockOffset = `package time

import "syscall"

var clockOffset = func() (seconds int64) {
	text, _ := syscall.Getenv("CLOCK_OFFSET")
	sign := int64(1)
	for _, c := range []byte(text) {
		if c == '-' {
			sign = -1
			continue
		}
		seconds = 10*seconds + int64(c-'0')
	}
	return sign * seconds
}()
`

// shiftedClock is an overlay in which every time.Now of a program, its libraries included, is off by CLOCK_OFFSET. Time that is measured is
// not: no clock that is wrong runs wrong for long.
func shiftedClock(t testing.TB) string {
	t.Helper()
	const old = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), old) != 1 {
		t.Fatalf("time.Now of %s is not what it was", runtime.Version())
	}
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{
		filepath.Join(source, "time.go"):         write("time.go", []byte(strings.Replace(string(text), old, old+"\tsec += clockOffset\n", 1))),
		filepath.Join(source, "clock_offset.go"): write("clock_offset.go", []byte(clockOffset)),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return write("overlay.json", replace)
}

// wrongServer builds a server whose clock can be wrong.
func wrongServer(t testing.TB) (path string) {
	t.Helper()
	if path = os.Getenv("CLOCKS_SERVER"); path != "" {
		return path
	}
	path = filepath.Join(t.TempDir(), "compute-api")
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", shiftedClock(t), "-tags", "faults", "-o", path, "./cmd/compute-api")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building a server with a wrong clock: %v\n%s", err, out)
	}
	return path
}

// checkClocks fails the test unless each server's clock, as it writes it into its log, is off by what it was told.
func (r *rig) checkClocks() {
	r.t.Helper()
	for i, p := range r.replicas {
		offset, err := time.ParseDuration(r.clocks[i] + "s")
		if err != nil {
			r.t.Fatal(err)
		}
		var line struct{ Time time.Time }
		first, _, _ := bytes.Cut(p.Log.Bytes(), []byte("\n"))
		if err := json.Unmarshal(first, &line); err != nil {
			r.t.Fatalf("%s begins its log with %q", p.name, first)
		}
		if off := time.Until(line.Time) - offset; off.Abs() > harness.Patience {
			r.t.Errorf("the clock of %s is off by %s, not by %s", p.name, time.Until(line.Time).Round(time.Second), offset)
		}
	}
}

// One server's clock is ten minutes behind, the other's ten minutes ahead: no lease is taken before it has ended, no run is given up before its
// time or waits for the other clock, and no token or certificate ends early.
func TestClocks(t *testing.T) {
	kills, seed := number(t, "CLOCKS", 2), seedOf(t)
	server := wrongServer(t)
	m := newTorment(t, seed, 3, func(r *rig) { r.server, r.clocks = server, []string{"-600", "600"} })
	m.checkClocks()
	m.exec(witness)
	all := strikes(m.record())
	m.bringPerson()
	done := 0
	for i := 0; done < kills && i < 5*kills; i++ {
		s := all[m.random.IntN(len(all))]
		m.arm("kill", s.point, s.hit)
		m.begin(s.way)
		m.begin(s.way)
		if m.awaitDeath(s.way) {
			done += m.revive()
		}
	}
	j, slowest := m.settle()
	if done < kills || j.joined == 0 {
		t.Errorf("%d servers died, not %d, and %d runs joined", done, kills, j.joined)
	}
	harness.Report(t, t.Name(), seed, "apart=20m kills=%d bootstraps=%d joined=%d overlapping-leases=%d early=%d stale-writes=%d double=%d orphans=%d lost=%d stuck=%d slowest=%s",
		done, j.runs, j.joined, m.wrongs("overlap"), m.wrongs("early"), m.wrongs("stale"), j.double, j.orphans, j.lost, j.stuck, slowest)
}
