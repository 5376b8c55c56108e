package torture

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"better/compute/provider/sim/cloud"
)

// way is what a run goes through.
type way int

const (
	toTheEnd  way = iota // an order that becomes a host
	givenBack            // an order whose install fails, so that the machine is given back
	left                 // a named machine whose install fails, so that it is left to its owner
	cancelled            // an order that is cancelled at any moment
	retried              // an order whose install fails, and that is tried again on its machine
	removed              // a host that is removed, so that its machine is an orphan, and is given back on a person's word, while credentials are refused
	denied               // an order that had no effect and no answer: a person says that there was nothing
	found                // an order whose answer and mark are lost: a person says which machine it brought
	refused              // an account whose credentials are refused after the order, until a person has them checked
	doubled              // an order that is delivered twice, so that there is an orphan beside the host
	unseen               // an order that is answered and never shown, until a person gives its machine back or names it
	ways      = 11
)

func allWays() (all []way) {
	for w := range way(ways) {
		all = append(all, w)
	}
	return all
}

// anyWay is mostly the one to the end.
func (m *torment) anyWay() way {
	return max(0, way(m.random.IntN(2*ways))-ways)
}

// patienceFor is how long a run of the way takes to pass all of its points, more or less.
func patienceFor(w way) time.Duration {
	switch w {
	case removed, denied, found, doubled, unseen:
		return 15 * time.Second
	case givenBack, left, retried, refused:
		return 6 * time.Second
	case toTheEnd, cancelled:
	}
	return 3 * time.Second
}

// accountFor is the nth account on which a run of the way can come about: not every claim mode leaves a person anything to say.
func (m *torment) accountFor(w way, n int) account {
	fit := m.accounts
	if w == denied || w == found || w == doubled || w == unseen {
		fit = slices.Collect(func(yield func(account) bool) {
			for _, a := range m.accounts {
				if (a.provider == "sim-label" || a.provider == "sim-none") && !yield(a) {
					return
				}
			}
		})
	}
	return fit[n%len(fit)]
}

// begin starts a run, and has something go wrong in every second one. It does not wait for the run.
func (m *torment) begin(w way) {
	number := m.started
	a := m.accountFor(w, number)
	if m.random.IntN(2) == 0 {
		kind := m.kinds[number/2%len(m.kinds)] // every kind comes, whatever the seed
		at := faults()[kind]
		m.spoil(a, kind, at[m.random.IntN(len(at))], m.delayOf(kind))
	}
	m.beginOn(w, a)
}

// beginOn starts a run on an account, with what its way takes.
func (m *torment) beginOn(w way, a account) {
	number := m.started
	m.started++
	machineID := ""
	switch w {
	case left:
		machineID = a.machine
		m.spoil(a, cloud.FaultInstallFails, installs, 0)
	case givenBack, retried:
		m.spoil(a, cloud.FaultInstallFails, installs, 0)
	case denied:
		m.spoil(a, cloud.FaultReset, orders, 0)
	case found:
		m.spoil(a, cloud.FaultLostOrder, orders, 0)
	case refused:
		m.spoil(a, cloud.FaultUnauthorized, installs, 0)
	case doubled:
		m.spoil(a, cloud.FaultDuplicate, orders, 0)
	case unseen:
		m.spoil(a, cloud.FaultLostLabel, orders, 0)
	case toTheEnd, cancelled, removed:
	}
	patience := time.Duration(m.random.IntN(1500)) * time.Millisecond
	m.starters.Go(func() {
		runID, err := m.start(m.t.Context(), a, machineID, fmt.Sprint("run-", number))
		if e, refused := errors.AsType[*refusal](err); refused && e.Code == "CONFLICT" && machineID != "" {
			return
		}
		if err != nil {
			m.t.Errorf("starting run %d: %v", number, err)
			return
		}
		m.runs.Store(runID, a)
		if err := m.goOn(w, a, runID, patience); err != nil {
			m.t.Errorf("run %d: %v", number, err)
		}
	})
}

// goOn does what the way takes of a caller once its run has begun.
func (m *torment) goOn(w way, a account, runID string, patience time.Duration) error {
	switch w {
	case cancelled:
		select {
		case <-time.After(patience):
		case <-m.t.Context().Done():
		}
		return m.cancel(m.t.Context(), a, runID)
	case retried:
		if m.comesTo(runID, "status = 'failed' AND cleanup = 'pending' AND machine_id IS NOT NULL") {
			return m.retry(a, runID)
		}
	case removed:
		if m.comesTo(runID, "status = 'joined'") {
			m.spoil(a, cloud.FaultUnauthorized, looks, 0)
			return m.remove(a, runID)
		}
	case left:
		if m.comesTo(runID, "status = 'joined'") { // what should have spoilt it was forgotten, or met by another: the next run needs the machine
			return m.remove(a, runID)
		}
	case toTheEnd, givenBack, denied, found, refused, doubled, unseen:
	}
	return nil
}

// comesTo waits until it is so with the run; false when the run is over without it, or takes long.
func (m *torment) comesTo(runID, what string) bool {
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline) && m.t.Context().Err() == nil; time.Sleep(50 * time.Millisecond) {
		var so, over bool
		err := m.db.NewRaw("SELECT "+what+", live_account_id IS NULL FROM bootstraps WHERE id = ?", runID).Scan(m.t.Context(), &so, &over)
		if err == nil && (so || over) {
			return so
		}
	}
	return false
}

// tolerable is an answer of calls that come too late.
func tolerable(err error) error {
	if e, answered := errors.AsType[*refusal](err); answered && (e.Code == "INVALID_STATE" || e.Code == "CONFLICT" || e.Code == "NOT_FOUND") {
		return nil
	}
	return err
}

func (m *torment) retry(a account, runID string) error {
	again, err := ask[struct{ Bootstrap struct{ ID string } }](m.t.Context(), m.rig, "retryBootstrap", "RetryBootstrapInput", "{ bootstrap { id } }",
		map[string]any{"tenantId": a.tenant, "bootstrapId": runID, "idempotencyKey": "again-" + runID})
	if err == nil {
		m.runs.Store(again.Bootstrap.ID, a)
	}
	return tolerable(err)
}

func (m *torment) remove(a account, runID string) error {
	var hostID string
	if err := m.db.NewRaw("SELECT host_id FROM bootstraps WHERE id = ?", runID).Scan(m.t.Context(), &hostID); err != nil {
		return err
	}
	_, err := ask[struct{ Host struct{ ID string } }](m.t.Context(), m.rig, "removeHost", "RemoveHostInput", "{ host { id } }",
		map[string]any{"tenantId": a.tenant, "hostId": hostID})
	return tolerable(err)
}
