package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"better/compute/apitest/harness"
)

// witness has the database itself write down who took which lease, which lease was taken before the one before it had ended, and who
// wrote what only the holder of the latest lease may write. The servers know nothing of it.
const witness = `
CREATE TABLE witness_leases (run text PRIMARY KEY, epoch bigint, taken_by text);
CREATE TABLE witness_wrongs (run text, what text, told text);
CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	who text := current_setting('application_name');
	holder text;
BEGIN
	IF NEW.lease_epoch > OLD.lease_epoch AND NEW.lease_until IS NOT NULL THEN
		IF OLD.lease_until > now() THEN
			INSERT INTO witness_wrongs VALUES (NEW.id, 'overlap', format('%s took epoch %s', who, NEW.lease_epoch));
		END IF;
		INSERT INTO witness_leases VALUES (NEW.id, NEW.lease_epoch, who) ON CONFLICT (run) DO UPDATE SET epoch = EXCLUDED.epoch, taken_by = who;
		RETURN NULL;
	END IF;
	IF NEW.status <> OLD.status AND NEW.token_used_at IS NOT NULL AND NEW.status IN ('installed', 'joined') THEN
		RETURN NULL; -- a join, which any replica may take
	END IF;
	IF (NEW.status, NEW.step, NEW.wait_reason, NEW.order_intent, NEW.order_attempt_at, NEW.order_ref, NEW.machine_id, NEW.machine, NEW.boot_id,
			NEW.generation, NEW.token_hash, NEW.delivered_at, NEW.install_ref, NEW.cleanup, NEW.attempt, NEW.last_error)
		IS NOT DISTINCT FROM
		(OLD.status, OLD.step, OLD.wait_reason, OLD.order_intent, OLD.order_attempt_at, OLD.order_ref, OLD.machine_id, OLD.machine, OLD.boot_id,
			OLD.generation, OLD.token_hash, OLD.delivered_at, OLD.install_ref, OLD.cleanup, OLD.attempt, OLD.last_error) THEN
		RETURN NULL;
	END IF;
	SELECT taken_by INTO holder FROM witness_leases WHERE run = NEW.id;
	IF holder IS DISTINCT FROM who THEN
		INSERT INTO witness_wrongs VALUES (NEW.id, 'stale', format('%s wrote under epoch %s of %s: %s %s', who, NEW.lease_epoch, holder, NEW.status, NEW.step));
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER UPDATE ON bootstraps FOR EACH ROW EXECUTE FUNCTION witness();
`

// wrongs are what the witness has written down of one kind.
func (r *rig) wrongs(what string) int {
	r.t.Helper()
	var told []string
	if err := r.db.NewRaw("SELECT run || ': ' || told FROM witness_wrongs WHERE what = ?", what).Scan(r.t.Context(), &told); err != nil {
		r.t.Fatal(err)
	}
	for _, line := range told {
		r.t.Errorf("%s: %s", what, line)
	}
	return len(told)
}

// A server that is stopped at any point for longer than its leases, and goes on after another has taken its runs, writes nothing and orders
// nothing.
func TestPauses(t *testing.T) {
	pauses, seed := number(t, "PAUSES", 6), seedOf(t)
	m := newTorment(t, seed, 3)
	m.exec(witness)
	all := strikes(m.record())
	m.bringPerson()
	points, done, taken := map[string]bool{}, 0, 0
	for i := 0; done < pauses && i < 4*pauses && !t.Failed(); i++ {
		if i%len(all) == 0 {
			m.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		}
		s := all[i%len(all)]
		m.arm("stop", s.point, s.hit)
		m.begin(s.way)
		m.begin(s.way)
		stopped := m.awaitStop()
		if stopped == nil {
			continue
		}
		m.disarm()
		done++
		points[s.point] = true
		if m.awaitTaken(stopped) {
			taken++
		}
		if err := stopped.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	if done < pauses {
		t.Errorf("a server stopped %d times, not %d", done, pauses)
	}
	j, slowest := m.settle()
	harness.Report(t, t.Name(), seed, "points=%d pauses=%d taken-over=%d bootstraps=%d stale-writes=%d overlaps=%d double=%d orphans=%d lost=%d stuck=%d slowest=%s",
		len(points), done, taken, j.runs, m.wrongs("stale"), m.wrongs("overlap"), j.double, j.orphans, j.lost, j.stuck, slowest)
}

// awaitStop is the replica that has stopped itself; nil when none came to the point.
func (m *torment) awaitStop() *replica {
	path := filepath.Join(m.dir, "faults", fmt.Sprint("stopped-", m.armed))
	for deadline := time.Now().Add(6 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(path)
		pid, bad := strconv.Atoi(string(text))
		if err != nil || bad != nil {
			continue
		}
		for _, p := range m.replicas {
			if p.Pid() == pid && isStopped(pid) {
				return p
			}
		}
	}
	return nil
}

func isStopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(text), ") ")
	return err == nil && ok && strings.HasPrefix(rest, "T")
}

// awaitTaken waits until every lease of the stopped server has ended and another has what it held. False when it holds a row in the middle of
// a transaction, so that nobody can take it.
func (m *torment) awaitTaken(stopped *replica) bool {
	name := fmt.Sprintf("%s.%d", stopped.name, stopped.starts)
	held := func() int {
		return m.count(`SELECT count(*) FROM bootstraps b JOIN witness_leases w ON w.run = b.id
			WHERE b.lease_until IS NOT NULL AND w.taken_by = ? AND b.live_account_id IS NOT NULL`, name)
	}
	for deadline := time.Now().Add(8 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if held() == 0 {
			return true
		}
	}
	return false
}
