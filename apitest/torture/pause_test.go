package torture

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"better/compute/apitest/harness"
)

// witness has the database itself write down who took which lease, which lease was taken before the one before it had ended, which run was given
// up before its time, and who wrote what only the holder of the latest lease may write. An orphan that is given back counts as a run: each attempt
// is a lease of its own. The servers know nothing of it, and cannot read it.
const witness = `
CREATE SCHEMA witness;
CREATE TABLE witness.leases (run text PRIMARY KEY, epoch bigint, taken_by text);
CREATE VIEW witness.live AS SELECT id AS run, lease_epoch AS epoch FROM bootstraps WHERE live_account_id IS NOT NULL AND lease_until IS NOT NULL
	UNION ALL SELECT id, release_attempt FROM orphans WHERE release_at IS NOT NULL AND resolved_at IS NULL;
CREATE TABLE witness.takes (run text, epoch bigint, taken_by text);
CREATE TABLE witness.wrongs (run text, what text, told text);
CREATE FUNCTION witness.look() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	who text := current_setting('application_name');
	holder text;
BEGIN
	IF NEW.created_at = now() THEN
		RETURN NULL; -- the call that begins the run, which a retry writes in two steps, and nobody else sees before it is committed
	END IF;
	IF NEW.lease_epoch > OLD.lease_epoch AND NEW.lease_until IS NULL THEN
		RETURN NULL; -- a person's word, through any replica, which takes the run from whoever is at it
	END IF;
	IF NEW.lease_epoch > OLD.lease_epoch THEN
		IF OLD.lease_until > now() THEN
			INSERT INTO witness.wrongs VALUES (NEW.id, 'overlap', format('%s took epoch %s', who, NEW.lease_epoch));
		END IF;
		INSERT INTO witness.takes VALUES (NEW.id, NEW.lease_epoch, who);
		INSERT INTO witness.leases VALUES (NEW.id, NEW.lease_epoch, who) ON CONFLICT (run) DO UPDATE SET epoch = EXCLUDED.epoch, taken_by = who;
		RETURN NULL;
	END IF;
	IF NEW.status = 'failed' AND NEW.failure->>'reason' LIKE '%\_TIMEOUT' AND OLD.status <> 'failed' AND OLD.deadline_at > now() THEN
		INSERT INTO witness.wrongs VALUES (NEW.id, 'early', format('%s gave it up %s before its time', who, OLD.deadline_at - now()));
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
	SELECT taken_by INTO holder FROM witness.leases WHERE run = NEW.id;
	IF holder IS DISTINCT FROM who THEN
		INSERT INTO witness.wrongs VALUES (NEW.id, 'stale', format('%s wrote under epoch %s of %s: %s %s', who, NEW.lease_epoch, holder, NEW.status, NEW.step));
	END IF;
	RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER UPDATE ON bootstraps FOR EACH ROW EXECUTE FUNCTION witness.look();
CREATE FUNCTION witness.look_at_orphan() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
	who text := current_setting('application_name');
	holder text;
BEGIN
	IF NEW.release_attempt > OLD.release_attempt THEN
		IF OLD.release_at > now() THEN
			INSERT INTO witness.wrongs VALUES (NEW.id, 'overlap', format('%s took attempt %s', who, NEW.release_attempt));
		END IF;
		INSERT INTO witness.takes VALUES (NEW.id, NEW.release_attempt, who);
		INSERT INTO witness.leases VALUES (NEW.id, NEW.release_attempt, who) ON CONFLICT (run) DO UPDATE SET epoch = EXCLUDED.epoch, taken_by = who;
		RETURN NULL;
	END IF;
	IF (NEW.release_at, NEW.release_error, NEW.release_dropped_at, NEW.resolved_at)
		IS NOT DISTINCT FROM (OLD.release_at, OLD.release_error, OLD.release_dropped_at, OLD.resolved_at) THEN
		RETURN NULL; -- seen once more
	END IF;
	IF OLD.resolved_at IS NULL AND (NEW.release_asked_at IS DISTINCT FROM OLD.release_asked_at OR OLD.release_asked_at IS NULL OR OLD.release_dropped_at IS NOT NULL) THEN
		RETURN NULL; -- a person's word, or what a sweep finds of one that nobody gives back, through any replica
	END IF;
	SELECT taken_by INTO holder FROM witness.leases WHERE run = NEW.id AND epoch = OLD.release_attempt;
	IF holder IS DISTINCT FROM who OR OLD.resolved_at IS NOT NULL THEN
		INSERT INTO witness.wrongs VALUES (NEW.id, 'stale', format('%s wrote under attempt %s of %s, resolved %s', who, NEW.release_attempt, coalesce(holder, 'nobody'), OLD.resolved_at));
	END IF;
	DELETE FROM witness.leases WHERE run = NEW.id; -- the attempt is over
	RETURN NULL;
END $$;
CREATE TRIGGER witness AFTER UPDATE ON orphans FOR EACH ROW EXECUTE FUNCTION witness.look_at_orphan();
`

// wrongs are what the witness has written down of one kind.
func (r *rig) wrongs(what string) int {
	r.t.Helper()
	var told []string
	if err := r.db.NewRaw("SELECT run || ': ' || told FROM witness.wrongs WHERE what = ?", what).Scan(r.t.Context(), &told); err != nil {
		r.t.Fatal(err)
	}
	for _, line := range told {
		r.t.Errorf("%s: %s", what, line)
	}
	return len(told)
}

// paused is what becomes of what a server was at when it stopped.
type paused struct {
	takenOver int // others took over all the runs that it held the leases of
	insideTx  int // nobody can take some of it: the database keeps the row for a transaction that the server is in
	between   int // it held nothing: the lease was given back, or the point is in a call of the API
}

// A server that is stopped at every point for longer than its leases, and goes on after another has taken its runs, writes nothing and orders
// nothing.
func TestPauses(t *testing.T) {
	pauses, seed := number(t, "PAUSES", 6), seedOf(t)
	m := newTorment(t, seed, 3, func(r *rig) { r.http.Timeout = 5 * time.Second }) // a server that has stopped says nothing
	m.exec(witness)
	m.bringPerson()
	all := strikes(m.record(pausedIn(pauses)...))
	m.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	points, tried, done, sum := map[string]bool{}, map[string]int{}, 0, paused{}
	for i := 0; done < pauses && !t.Failed(); i++ {
		s := nextPause(all, i, points)
		if !m.pauseAt(s, &sum) {
			if tried[s.point]++; tried[s.point] > 20 {
				t.Errorf("no server that can lose anything comes to %s", s.point)
			}
			continue
		}
		points[s.point] = true
		done++
	}
	if want := min(pauses, pointsOf(all)); len(points) < want {
		t.Errorf("servers stopped at %d points, not %d", len(points), want)
	}
	if sum.takenOver == 0 {
		t.Errorf("of %d servers that stopped, none lost anything", done)
	}
	m.wake()
	j, slowest := m.settle()
	harness.Report(t, t.Name(), seed, "points=%d/%d pauses=%d taken-over=%d inside-tx=%d between=%d bootstraps=%d stale-writes=%d overlaps=%d early=%d double=%d orphans=%d lost=%d stuck=%d slowest=%s",
		len(points), pointsOf(all), done, sum.takenOver, sum.insideTx, sum.between, j.runs, m.wrongs("stale"), m.wrongs("overlap"), m.wrongs("early"),
		j.double, j.orphans, j.lost, j.stuck, slowest)
}

// pausedIn are the ways whose points servers stop at: in a small run not the ones that wait for a person.
func pausedIn(pauses int) []way {
	if pauses < 40 {
		return []way{toTheEnd, givenBack, left, cancelled, retried}
	}
	return allWays()[:unseen]
}

// nextPause takes the strikes in turn, but those at points where no server has stopped yet before the others.
func nextPause(all []strike, i int, points map[string]bool) strike {
	for n := range all {
		if s := all[(i+n)%len(all)]; !points[s.point] {
			return s
		}
	}
	return all[i%len(all)]
}

// pauseAt has a server stop itself at the point, until what it held is with others. False when none comes there, or one that had lost its lease
// before, as on a computer that is too busy for leases of a second.
func (m *torment) pauseAt(s strike, sum *paused) bool {
	m.t.Helper()
	m.wake()
	m.arm("stop", s.point, s.hit)
	m.begin(s.way)
	m.begin(s.way)
	stopped := m.awaitStop(s.way)
	m.disarm()
	if stopped == nil {
		return false
	}
	defer stopped.Signal(syscall.SIGCONT)
	return m.watchPaused(stopped, s, sum)
}

// wake has a server go on that had come to its point before that was disarmed, and stopped of it later.
func (m *torment) wake() {
	for _, p := range m.replicas {
		_ = p.Signal(syscall.SIGCONT)
	}
}

// leasedAt tells the points that a worker passes only with a lease in its hands, or an orphan.
var leasedAt = regexp.MustCompile(`^(leased|decided|releasing\.(taken|released)|(claiming|identifying|preparing|installing|delivering|cleaning)\..*)$`)

// watchPaused waits until others have all that the stopped server held, where the database lets anybody have it.
func (m *torment) watchPaused(stopped *replica, s strike, sum *paused) bool {
	m.t.Helper()
	name := fmt.Sprintf("%s.%d", stopped.name, stopped.starts)
	m.exec("DROP TABLE IF EXISTS witness.held")
	m.exec("CREATE TABLE witness.held AS SELECT w.run, w.epoch FROM witness.leases w JOIN witness.live l USING (run, epoch) WHERE w.taken_by = ?", name)
	if m.count("SELECT count(*) FROM witness.held") == 0 {
		if leasedAt.MatchString(s.point) {
			return false
		}
		sum.between++
		m.awaitLeaseEnd()
		return true
	}
	if m.awaitTaken(name, s.point) {
		sum.takenOver++
	} else {
		sum.insideTx++
	}
	return true
}

// awaitTaken waits until all that is held was taken under a later epoch by another, or is over, by a join that came through another. False when
// what is left is locked, and its lease is long over.
func (m *torment) awaitTaken(name, point string) bool {
	m.t.Helper()
	const held = `FROM witness.held h WHERE (EXISTS (SELECT FROM bootstraps b WHERE b.id = h.run AND b.live_account_id IS NOT NULL)
			OR EXISTS (SELECT FROM orphans o WHERE o.id = h.run AND o.release_at IS NOT NULL AND o.resolved_at IS NULL))
		AND NOT EXISTS (SELECT FROM witness.takes t WHERE t.run = h.run AND t.epoch > h.epoch AND t.taken_by <> ?0)`
	const over = "FROM bootstraps WHERE id IN (SELECT h.run " + held + ") AND lease_until < now() - ?1 * interval '1 second'"
	left, locked := 0, 0
	harness.Await(m.t, "others have the runs of a server that stopped at "+point, func() bool {
		left = m.count("SELECT count(*) "+held, name)
		locked = m.count("SELECT count(*) "+over, name, 3*lease.Seconds()) -
			m.count("SELECT count(*) FROM (SELECT "+over+" FOR NO KEY UPDATE SKIP LOCKED) AS free", name, 3*lease.Seconds())
		return left == 0 || left == locked
	})
	return left == 0
}

// awaitLeaseEnd waits until every lease of this moment has ended: what is stopped then goes on later than it may.
func (m *torment) awaitLeaseEnd() {
	m.t.Helper()
	var end time.Time
	if err := m.db.NewRaw("SELECT now() + ? * interval '1 second'", 2*lease.Seconds()).Scan(m.t.Context(), &end); err != nil {
		m.t.Fatal(err)
	}
	harness.Await(m.t, "a lease has ended", func() bool { return m.count("SELECT (now() > ?)::int", end) == 1 })
}

// awaitStop is the replica that has stopped itself; nil when none came to the point. It starts more runs when those that are there do not pass it.
func (m *torment) awaitStop(w way) *replica {
	path := filepath.Join(m.dir, "faults", fmt.Sprint("stopped-", m.armed))
	again := time.Now().Add(patienceFor(w))
	for deadline := time.Now().Add(reachIn); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		again = m.beginAgain(w, again)
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
