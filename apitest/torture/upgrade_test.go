package torture

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/harness"
)

// programOf is the server as it was at a commit.
func programOf(t testing.TB, commit string) string {
	t.Helper()
	dir := t.TempDir()
	const build = `git -C ../.. archive "$1" | tar x -C "$2" && cd "$2" && go build -tags=faults -o compute-api ./cmd/compute-api`
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", build, "build", commit, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the server of %s: %v\n%s", commit, err, out)
	}
	return filepath.Join(dir, "compute-api")
}

// mistakes counts what a replica took for an error of its own, in all its lives.
func (p *replica) mistakes() (n int) {
	p.r.t.Helper()
	for line := range strings.Lines(p.log.Text()) {
		if strings.Contains(line, `"level":"ERROR"`) {
			n++
			p.r.t.Errorf("%s: %s", p.name, line)
		}
	}
	return n
}

// restart stops a server in order and starts the program that the rig has now.
func (p *replica) restart() {
	p.r.t.Helper()
	if err := p.Stop(harness.Patience); err != nil {
		p.r.t.Errorf("%s ended with %v", p.name, err)
	}
	p.start()
	p.Ready(p.r.t)
}

// Two servers of the version before write while the schema is migrated, and on the new schema; one is started on it again, and then each gives
// way to the new version while the other goes on. Nothing fails, what was acknowledged is there, and every run gets its one machine.
func TestUpgrade(t *testing.T) {
	from := os.Getenv("FROM")
	if from == "" {
		t.Skip("make torture-upgrade runs it: it needs the version before")
	}
	now, before, d := programs.Program(t, "compute-api"), programOf(t, from), newDatabase(t)
	r := newRig(t, 1, 2, func(r *rig) { r.dsn, r.server = d.pg.URL(), before })
	migrated := func() int { return r.count("SELECT count(*) FROM bun_migrations") }
	told, done, old := new(acknowledged), make(chan struct{}), migrated()
	ended := r.writeOn(told, done)
	told.awaitMore(t, 200, 2)

	r.server = now
	began := time.Now()
	r.migrate()
	took := time.Since(began)
	told.awaitMore(t, 200, 2)

	r.server = before
	r.replicas[0].restart()
	told.awaitMore(t, 200, 2)
	r.server = now
	for _, p := range r.replicas {
		p.restart()
		told.awaitMore(t, 200, 2)
	}
	close(done)
	ended.Wait()
	harness.Await(t, "every run is final", func() bool { return r.count("SELECT count(*) FROM bootstraps WHERE live_account_id IS NOT NULL") == 0 })
	j, mistakes := r.judge(), 0
	for _, p := range r.replicas {
		mistakes += p.mistakes()
	}
	harness.Report(t, "upgrade", 0, "from=%s migrations=%d migrated-in=%s acknowledged=%d without-answer=%d errors=%d lost=%d runs=%d joined=%d double=%d orphans=%d lost-machines=%d stuck=%d retold=%d",
		from, migrated()-old, took.Round(10*time.Millisecond), len(told.accounts)+len(told.runs), told.lost, mistakes, told.missing(r),
		j.runs, j.joined, j.double, j.orphans, j.lost, j.stuck, j.retold)
}
