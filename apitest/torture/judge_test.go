package torture

import "better/compute/provider/sim/cloud"

// judgement is what came of it, by the cloud's ledger.
type judgement struct {
	runs, joined, failed int
	double               int // operations with more than one machine
	orphans              int // machines that are paid for, and belong to no host
	lost                 int // hosts without their machine
	stuck                int // runs that are not final
	retold               int // transitions without exactly one event, and states that a run entered twice
	faults               map[string]bool
}

// judge compares the runs with the ledger, and reports each that is wrong.
func (r *rig) judge() judgement {
	r.t.Helper()
	j := judgement{faults: map[string]bool{}}
	var runs []struct {
		ID          string  `bun:"id"`
		Status      string  `bun:"status"`
		OperationID string  `bun:"operation_id"`
		OfferID     *string `bun:"offer_id"`
		Live        bool    `bun:"live"`
		Told        string  `bun:"told"`
	}
	err := r.db.NewRaw(`SELECT id, status, operation_id, offer_id, live_account_id IS NOT NULL AS live,
		concat_ws(' ', step, wait_reason, cleanup, failure->>'reason', last_error, 'attempt', attempt) AS told FROM bootstraps`).Scan(r.t.Context(), &runs)
	if err != nil {
		r.t.Fatal(err)
	}
	bought, kept := map[string]int{}, map[string]int{}
	operation := map[string]string{}
	for _, e := range r.ledger() {
		switch e.Kind {
		case cloud.EntryOrder:
			bought[e.Name]++
			kept[e.Name]++
			operation[e.MachineID] = e.Name
		case cloud.EntryRelease:
			kept[operation[e.MachineID]]--
		case cloud.EntryFault:
			j.faults[e.Fault] = true
		}
	}
	for _, run := range runs {
		j.runs++
		joined := run.Status == "joined"
		switch {
		case run.Live:
			j.stuck++
			r.t.Errorf("%s is not final: %s %s", run.ID, run.Status, run.Told)
		case joined:
			j.joined++
		default:
			j.failed++
		}
		if bought[run.OperationID] > 1 {
			j.double++
			r.t.Errorf("%s ordered %d machines: %s %s", run.ID, bought[run.OperationID], run.Status, run.Told)
		}
		if kept[run.OperationID] > 0 && !joined {
			j.orphans += kept[run.OperationID]
			r.t.Errorf("%s has left a machine at the cloud: %s %s", run.ID, run.Status, run.Told)
		}
		if kept[run.OperationID] == 0 && joined && run.OfferID != nil {
			j.lost++
			r.t.Errorf("%s joined, and the cloud has not its machine any more", run.ID)
		}
		delete(kept, run.OperationID)
	}
	for name, n := range kept {
		if n > 0 {
			j.orphans += n
			r.t.Errorf("the cloud has %d machines of %s, which no run knows", n, name)
		}
	}
	j.retold = r.count(`SELECT count(*) FROM (
		SELECT bootstrap_id, to_status, count(*) AS times,
			(SELECT count(*) FROM events e WHERE e.bootstrap_id = t.bootstrap_id AND e.data->'data'->>'to' = t.to_status) AS told
		FROM bootstrap_transitions t GROUP BY bootstrap_id, to_status) x WHERE times <> 1 OR told <> 1`)
	if j.retold > 0 {
		r.t.Errorf("%d transitions were told less or more than once", j.retold)
	}
	if twice := r.count("SELECT count(*) FROM (SELECT FROM hosts GROUP BY bootstrap_id HAVING count(*) > 1) x"); twice > 0 {
		r.t.Errorf("%d runs made more than one host", twice)
	}
	return j
}
