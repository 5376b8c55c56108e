package bootstrap

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"better/compute/model"
	"better/compute/provider/sim"
	simcloud "better/compute/provider/sim/cloud"
)

// simBench is a bench on the simulated cloud, whose ledger is the judge.
type simBench struct {
	*bench
	url, dir, offerID string
}

func setupSim(t *testing.T) *simBench {
	t.Helper()
	s := &simBench{dir: t.TempDir()}
	c, err := simcloud.Open(simcloud.Options{Dir: s.dir, ReadyDelay: time.Millisecond, InstallDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := c.Close(); err != nil {
			t.Errorf("closing the cloud: %v", err)
		}
		server.Close()
	})
	s.url = server.URL
	s.bench = setupWith(t, sim.New(sim.Options{Endpoint: s.url, Timeout: 10 * time.Second}), `{"apiToken":"env://CLOUD_TOKEN"}`)
	account, err := s.deps.Accounts.Account(t.Context(), s.db.DB, tenant, s.account)
	if err != nil {
		t.Fatal(err)
	}
	client, err := s.deps.Accounts.Open(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}
	offers, err := client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range offers {
		if o.Availability == model.Available {
			s.offerID = o.ID
		}
	}
	return s
}

// spoil scripts faults for the cloud's next orders.
func (s *simBench) spoil(kinds ...string) {
	s.t.Helper()
	var rules []map[string]any
	for _, kind := range kinds {
		delay := "1s"
		if kind == simcloud.FaultSlowBody {
			delay = "1h" // longer than anybody reads
		}
		rules = append(rules, map[string]any{
			"kind": kind, "delay": delay, "match": map[string]string{"method": "POST", "path": "/v1/machines"},
		})
	}
	body, err := json.Marshal(rules)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/v1/_faults", bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set(simcloud.AdminHeader, "test")
	res, err := http.DefaultClient.Do(req)
	if err != nil || res.StatusCode != http.StatusNoContent {
		s.t.Fatalf("scripting faults: %v, %v", res, err)
	}
	_ = res.Body.Close()
}

func (s *simBench) offer(key string) model.BootstrapMachineInput {
	in := s.bench.offer(key)
	in.OfferID = &s.offerID
	return in
}

// ledger counts the orders and releases of machines that carry the operation.
func (s *simBench) ledger(operationID string) (orders, releases int) {
	s.t.Helper()
	entries, err := simcloud.ReadLedger(s.dir)
	if err != nil {
		s.t.Fatal(err)
	}
	machines := map[string]bool{}
	for _, e := range entries {
		switch {
		case e.Kind == simcloud.EntryOrder && e.Name == operationID:
			machines[e.MachineID] = true
			orders++
		case e.Kind == simcloud.EntryRelease && machines[e.MachineID]:
			releases++
		}
	}
	return orders, releases
}

// claimed drives the run until it has its machine or has failed.
func (s *simBench) claimed(runID string) *run {
	s.t.Helper()
	return s.driveTo(runID, "a machine or a failure", func(r *run) bool {
		return r.Status != model.Claiming && r.Status != model.Identifying
	})
}

// Whatever the cloud does to an order, its ledger has one, or none and a reason.
func TestOrderAgainstFaults(t *testing.T) {
	t.Parallel()
	for kind, reason := range map[string]model.FailureReason{
		simcloud.FaultHang: "", simcloud.FaultHangAfter: "", simcloud.FaultReset: "", simcloud.FaultResetAfter: "", simcloud.Fault500Before: "",
		simcloud.Fault500After: "", simcloud.Fault503: "", simcloud.FaultSlowBody: "", simcloud.FaultDuplicate: "", simcloud.FaultHalfJSON: "",
		simcloud.FaultHTML: "", simcloud.FaultWrongID: "", simcloud.FaultClockOff: "", simcloud.FaultLateListing: "", simcloud.FaultLostLabel: "",
		simcloud.Fault429: "", simcloud.Fault429RetryAfter: "",
		simcloud.FaultQuota: model.QuotaExceeded, simcloud.FaultPayment: model.PaymentRequired,
		simcloud.FaultOutOfStock: model.OfferOutOfStock, simcloud.FaultOfferGone: model.OfferGone,
		simcloud.FaultUnauthorized: model.CredentialsRejected, simcloud.FaultForbidden: model.CredentialsRejected,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := setupSim(t)
			s.spoil(kind)
			r := s.claimed(s.start(s.offer("k")))
			want := 1
			if reason != "" {
				want = 0
				equal(t, "reason", r.Failure.Reason, reason)
			}
			orders, _ := s.ledger(r.OperationID)
			equal(t, "orders", orders, want)
			if reason != "" {
				equal(t, "cleanup", r.Cleanup, model.CleanupNone)
				return
			}
			s.cancel(r.ID)
			equal(t, "cleanup", s.driveToEnd(r.ID).Cleanup, model.CleanupReleased)
			_, releases := s.ledger(r.OperationID)
			equal(t, "releases", releases, 1)
		})
	}
}

// Deaths and faults together, at random: of each run the cloud has one order, and after the run was cancelled none.
func TestOrderAgainstDeathsAndFaults(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	faults := []string{
		simcloud.FaultResetAfter, simcloud.Fault500After, simcloud.Fault500Before, simcloud.FaultReset, simcloud.FaultHalfJSON, simcloud.FaultWrongID,
		simcloud.FaultDuplicate, simcloud.Fault429, simcloud.FaultLostLabel,
	}
	deaths := []string{"leased", "claiming.intended", "claiming.looked", "claiming.attempted", "claiming.ordered", "decided", "transition", "settled", "waiting"}
	s := setupSim(t)
	for i := range 40 {
		runID := s.start(s.offer(fmt.Sprint("k", i)))
		for range random.IntN(3) {
			s.spoil(faults[random.IntN(len(faults))])
			doomed := s.dieAt(deaths[random.IntN(len(deaths))], 1+random.IntN(2))
			for range 4 {
				if s.row(runID).Status != model.Claiming || s.stepOrDie(doomed, runID) {
					break
				}
			}
			s.endLease(runID)
		}
		r := s.claimed(runID)
		orders, _ := s.ledger(r.OperationID)
		if orders != 1 || r.Status == model.Failed {
			t.Fatalf("run %d: %d orders, status %s, %v", i, orders, r.Status, r.Failure)
		}
		s.cancel(runID)
		equal(t, "cleanup", s.driveToEnd(runID).Cleanup, model.CleanupReleased)
		_, releases := s.ledger(r.OperationID)
		equal(t, "releases", releases, 1)
		equal(t, "chain", len(s.history(runID)), len(s.events(runID)))
	}
}
