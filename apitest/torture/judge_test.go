package torture

import (
	"fmt"
	"slices"

	"better/compute/provider/sim/cloud"
)

// judgement is what came of it, by the cloud's ledger.
type judgement struct {
	runs, joined, failed int
	double               int // operations with more than one order that took effect
	orphans              int // machines that are paid for, and are no host
	leaked               int // machines that a run should have given back, and a person had to
	lost                 int // hosts without their machine
	stuck                int // runs that are not final
	retold               int // transitions without exactly one event, and states that a run entered twice
	modes                int // claim modes that machines were sold in
	said                 int // orders that a person said what became of
	released             int // machines that were given back on a person's word
	retried              int // runs that went on with the machine of another
	faults               map[string]bool
}

// sold counts the orders of each operation that took effect, by the cloud's ledger. One that was delivered twice is one that the server sent.
func (r *rig) sold() map[string]int {
	sold, seen := map[string]int{}, map[string]bool{}
	for _, e := range r.ledger() {
		if e.Kind == cloud.EntryOrder && !seen[e.RequestID] {
			seen[e.RequestID] = true
			sold[e.Name]++
		}
	}
	return sold
}

// kept are the machines that each operation has at the cloud.
func (r *rig) kept() map[string][]string {
	kept, operation := map[string][]string{}, map[string]string{}
	for _, e := range r.ledger() {
		switch e.Kind {
		case cloud.EntryOrder:
			kept[e.Name] = append(kept[e.Name], e.MachineID)
			operation[e.MachineID] = e.Name
		case cloud.EntryRelease:
			name := operation[e.MachineID]
			kept[name] = slices.DeleteFunc(kept[name], func(id string) bool { return id == e.MachineID })
		}
	}
	return kept
}

// hosts are the machines that are hosts, and whether they were ordered.
func (r *rig) hosts() map[string]bool {
	r.t.Helper()
	var rows []struct {
		MachineID string `bun:"machine_id"`
		Ordered   bool   `bun:"ordered"`
	}
	err := r.db.NewRaw(`SELECT h.machine_id, b.offer_id IS NOT NULL AS ordered FROM hosts h JOIN bootstraps b ON b.id = h.bootstrap_id
		WHERE h.removed_at IS NULL`).Scan(r.t.Context(), &rows)
	if err != nil {
		r.t.Fatal(err)
	}
	hosts := map[string]bool{}
	for _, row := range rows {
		hosts[row.MachineID] = row.Ordered
	}
	return hosts
}

// strays are the machines that were ordered and are no host, with the operation of each.
func (r *rig) strays() map[string]string {
	r.t.Helper()
	strays, hosts := map[string]string{}, r.hosts()
	for operation, machines := range r.kept() {
		for _, id := range machines {
			if _, is := hosts[id]; !is {
				strays[id] = operation
			}
		}
	}
	return strays
}

// judge compares the runs with the ledger, and reports each that is wrong.
func (r *rig) judge() judgement {
	r.t.Helper()
	j := judgement{faults: map[string]bool{}, said: int(r.said.Load())}
	var runs []struct {
		ID          string `bun:"id"`
		Status      string `bun:"status"`
		OperationID string `bun:"operation_id"`
		Provider    string `bun:"provider"`
		Live        bool   `bun:"live"`
		Told        string `bun:"told"`
	}
	err := r.db.NewRaw(`SELECT b.id, status, operation_id, provider, live_account_id IS NOT NULL AS live,
		concat_ws(' ', provider, step, wait_reason, cleanup, failure->>'reason', last_error, 'attempt', attempt) AS told
		FROM bootstraps b JOIN provider_accounts a ON a.id = b.account_id`).Scan(r.t.Context(), &runs)
	if err != nil {
		r.t.Fatal(err)
	}
	sold, modes := r.sold(), map[string]bool{}
	told := map[string]string{}
	for _, run := range runs {
		j.runs++
		switch {
		case run.Live:
			j.stuck++
			r.t.Errorf("%s is not final: %s %s", run.ID, run.Status, run.Told)
		case run.Status == "joined":
			j.joined++
		default:
			j.failed++
		}
		told[run.OperationID] = fmt.Sprint(run.ID, " ", run.Status, " ", run.Told)
		if sold[run.OperationID] > 0 {
			modes[run.Provider] = true
		}
	}
	for operation, times := range sold {
		if times > 1 {
			j.double++
			r.t.Errorf("%s was ordered %d times: %s", operation, times, told[operation])
		}
	}
	for id, operation := range r.strays() {
		j.orphans++
		r.t.Errorf("the cloud has %s of %s, which is no host: %s; %s", id, operation, told[operation], r.tellStray(id))
	}
	j.leaked = r.judgeOrphans()
	j.lost = r.judgeHosts()
	j.modes = len(modes)
	for _, e := range r.ledger() {
		if e.Kind == cloud.EntryFault {
			j.faults[e.Fault] = true
		}
	}
	j.released = r.count("SELECT count(*) FROM orphans WHERE resolved_at IS NOT NULL AND release_asked_at IS NOT NULL")
	j.retried = r.count("SELECT count(*) FROM bootstraps WHERE retry_of IS NOT NULL")
	j.retold = r.judgeHistory()
	return j
}

// judgeOrphans counts the machines that came to be without an owner although their run's way makes none: it failed, had said that it gave back what
// it ordered or left it to somebody, and had ordered just that. The person gives such a machine back before anybody sees it among the strays.
func (r *rig) judgeOrphans() (leaked int) {
	r.t.Helper()
	var shown []struct {
		MachineID   string `bun:"machine_id"`
		OperationID string `bun:"operation_id"`
		Told        string `bun:"told"`
	}
	err := r.db.NewRaw(`SELECT DISTINCT ON (o.machine_id) o.machine_id, o.operation_id, concat_ws(' ', b.id, b.cleanup, b.failure->>'reason', b.claim_resolution) AS told
		FROM orphans o JOIN bootstraps b ON b.operation_id = o.operation_id
		WHERE o.kind = 'not-ours' AND b.status = 'failed' AND b.cleanup IN ('released', 'kept')`).Scan(r.t.Context(), &shown)
	if err != nil {
		r.t.Fatal(err)
	}
	brought := map[string][]string{}
	for _, e := range r.ledger() {
		if e.Kind == cloud.EntryOrder {
			brought[e.Name] = append(brought[e.Name], e.MachineID)
		}
	}
	for _, o := range shown {
		if slices.Equal(brought[o.OperationID], []string{o.MachineID}) {
			leaked++
			r.t.Errorf("%s was never given back, until a person saw that it is nobody's: %s", o.MachineID, o.Told)
		}
	}
	return leaked
}

// judgeHosts counts the hosts whose machine the cloud has not any more.
func (r *rig) judgeHosts() (lost int) {
	there := map[string]bool{}
	for _, machines := range r.kept() {
		for _, id := range machines {
			there[id] = true
		}
	}
	for id, ordered := range r.hosts() {
		if ordered && !there[id] {
			lost++
			r.t.Errorf("%s is a host, and the cloud has it not any more", id)
		}
	}
	if twice := r.count("SELECT count(*) FROM (SELECT FROM hosts GROUP BY bootstrap_id HAVING count(*) > 1) x"); twice > 0 {
		r.t.Errorf("%d runs made more than one host", twice)
	}
	return lost
}

// tellStray says what the servers know of a machine, and what the cloud did with it.
func (r *rig) tellStray(machineID string) string {
	var told []string
	err := r.db.NewRaw(`SELECT concat_ws(' ', 'orphan of', account_id, 'seen', first_seen_at, 'to', last_seen_at, 'resolved', resolved_at,
			'asked', release_asked_at, 'dropped', release_dropped_at, release_error) FROM orphans WHERE machine_id = ?0
		UNION ALL SELECT concat_ws(' ', 'host', h.id, 'removed', h.removed_at) FROM hosts h WHERE machine_id = ?0
		UNION ALL SELECT concat_ws(' ', 'run', b.id, b.status, 'of', b.machine_id, b.claim_resolution, 'account refused', a.refused_at, 'swept', a.swept_at)
			FROM bootstraps b JOIN provider_accounts a ON a.id = b.account_id WHERE machine_id = ?0`, machineID).Scan(r.t.Context(), &told)
	for _, e := range r.ledger() {
		if e.MachineID == machineID && e.Kind != cloud.EntryInstall {
			told = append(told, fmt.Sprintf("%+v", e))
		}
	}
	return fmt.Sprint(told, err)
}

func (r *rig) judgeHistory() (retold int) {
	retold = r.count(`SELECT count(*) FROM (
		SELECT bootstrap_id, to_status, count(*) AS times,
			(SELECT count(*) FROM events e WHERE e.bootstrap_id = t.bootstrap_id AND e.data->'data'->>'to' = t.to_status) AS told
		FROM bootstrap_transitions t GROUP BY bootstrap_id, to_status) x WHERE times <> 1 OR told <> 1`)
	if retold > 0 {
		r.t.Errorf("%d transitions were told less or more than once", retold)
	}
	return retold
}
