package torture

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	neturl "net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uptrace/bun"

	"better/compute/apitest/harness"
)

// Two tenants, each with two accounts at one project of the cloud, all want one machine, through two servers: one gets it, and the others are
// not told who has.
func TestRaces(t *testing.T) {
	races := number(t, "RACES", 20)
	// No run may end, and give the machine back, while others still ask; nor fail, since a tenant whose runs fail to reach a machine has no time
	// to itself with the next.
	r := newRig(t, 2, 2, func(r *rig) { r.timing.Identifying = time.Hour })
	r.killCloud()
	for _, a := range r.accounts {
		r.exec("UPDATE provider_accounts SET config = jsonb_build_object('apiToken', ?::text) WHERE id = ?", firstSecret, a.id)
	}
	won, conflicts, told := 0, 0, 0
	for race := range races {
		errs, ids := make([]error, len(r.accounts)), make([]string, len(r.accounts))
		var wait sync.WaitGroup
		for i, a := range r.accounts {
			wait.Go(func() {
				ids[i], errs[i] = r.start(t.Context(), a, fmt.Sprint("m-race-", race), fmt.Sprintf("race-%d-%d", race, i))
			})
		}
		wait.Wait()
		winners := 0
		for i, err := range errs {
			e, refused := errors.AsType[*refusal](err)
			switch {
			case err == nil:
				winners++
			case refused && e.Code == "CONFLICT":
				conflicts++
				if r.tells(e.Message, i, ids) {
					told++
					t.Errorf("the loser is told %q", e.Message)
				}
			default:
				t.Errorf("race %d: %v", race, err)
			}
		}
		if winners != 1 {
			t.Errorf("race %d has %d winners", race, winners)
		}
		won += winners
	}
	harness.Report(t, t.Name(), 0, "races=%d runners=%d won=%d conflicts=%d told-of-others=%d", races, len(r.accounts), won, conflicts, told)
}

// namesakes stands between the servers and the cloud, and shows machines of one name, whichever project has them and whatever their id is, as
// one machine in the world: two accounts at two providers may reach it. It lets nothing be installed, so that no run gets to its end.
func (r *rig) namesakes() (url string) {
	r.t.Helper()
	target, err := neturl.Parse(r.cloudURL)
	if err != nil {
		r.t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:        func(p *httputil.ProxyRequest) { p.SetURL(target) },
		ModifyResponse: sameByName,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/install") {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		proxy.ServeHTTP(w, req)
	}))
	r.t.Cleanup(server.Close)
	return server.URL
}

func sameByName(res *http.Response) error {
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	var machine map[string]any
	_ = json.Unmarshal(text, &machine) // anything else is passed on as it is
	if name, ok := machine["name"].(string); ok && machine["serial"] != nil {
		sum := sha256.Sum256([]byte(name))
		machine["serial"], machine["osMachineId"] = "SN-"+name, hex.EncodeToString(sum[:16])
		if text, err = json.Marshal(machine); err != nil {
			return err
		}
	}
	res.Body = io.NopCloser(bytes.NewReader(text))
	res.ContentLength = int64(len(text))
	res.Header.Set("Content-Length", strconv.Itoa(len(text)))
	return nil
}

// order has the project of the account buy a machine of that name, past the servers.
func (r *rig) order(a account, name string) (machineID string) {
	r.t.Helper()
	var machine struct{ ID string }
	text := r.cloudCall(http.MethodPost, "/v1/machines", a.secret, map[string]any{"offerId": r.offer, "name": name, "clientToken": name})
	if err := json.Unmarshal(text, &machine); err != nil {
		r.t.Fatal(err)
	}
	return machine.ID
}

// The same where each account knows the machine by another id, so that only what the machine says of itself tells that it is one.
func TestRacesByOtherNames(t *testing.T) {
	races := number(t, "RACES", 20)
	r := newRig(t, 2, 2, func(r *rig) {
		r.timing.Identifying, r.timing.Preparing, r.timing.Installing = time.Hour, time.Hour, time.Hour
	})
	between := r.namesakes()
	for _, p := range r.replicas {
		p.config["providers"] = []any{map[string]any{"name": "sim", "endpoint": between}}
		p.Kill()
		p.start()
	}
	for _, p := range r.replicas {
		p.Ready(t)
	}
	const abreast = 10
	won, inUse, told := 0, 0, 0
	for first := 0; first < races && !t.Failed(); first += abreast {
		var names []string
		for race := first; race < min(first+abreast, races); race++ {
			names = append(names, fmt.Sprint("race-", race))
		}
		w, u, n := r.raceFor(names)
		won, inUse, told = won+w, inUse+u, told+n
	}
	if others := races * (len(r.accounts) - 1); won != races || inUse != others {
		t.Errorf("%d races were won, and %d runs found the machine in use; want %d and %d", won, inUse, races, others)
	}
	harness.Report(t, t.Name(), 0, "races=%d runners=%d won=%d in-use=%d told-of-others=%d", races, len(r.accounts), won, inUse, told)
}

// raceFor has a run through each account want each of the machines, and counts what came of them.
func (r *rig) raceFor(names []string) (won, inUse, told int) {
	r.t.Helper()
	ids := make([][]string, len(names))
	var wait sync.WaitGroup
	for race, name := range names {
		ids[race] = make([]string, len(r.accounts))
		for i, a := range r.accounts {
			machineID := r.order(a, name)
			wait.Go(func() {
				var err error
				if ids[race][i], err = r.start(r.t.Context(), a, machineID, name+"-"+strconv.Itoa(i)); err != nil {
					r.t.Errorf("%s: %v", name, err)
				}
			})
		}
	}
	wait.Wait()
	for race, runs := range ids {
		harness.Await(r.t, "each run knows whose the machine is", func() bool {
			return r.count("SELECT count(*) FROM bootstraps WHERE id IN (?) AND status = 'identifying'", bun.List(runs)) == 0
		})
		winners := 0
		for i, runID := range runs {
			var failure string
			if err := r.db.NewRaw("SELECT coalesce(failure::text, '') FROM bootstraps WHERE id = ?", runID).Scan(r.t.Context(), &failure); err != nil {
				r.t.Fatal(err)
			}
			switch {
			case failure == "":
				winners++
				if err := r.cancel(r.t.Context(), r.accounts[i], runID); err != nil {
					r.t.Error(err)
				}
			case strings.Contains(failure, "MACHINE_IN_USE"):
				inUse++
			default:
				r.t.Errorf("%s: a run has failed with %s", names[race], failure)
			}
			if r.tells(failure, i, runs) {
				told++
				r.t.Errorf("the loser is told %q", failure)
			}
		}
		if winners != 1 {
			r.t.Errorf("%s has %d winners", names[race], winners)
		}
		won += winners
	}
	return won, inUse, told
}

// tells reports whether a text names another account, its tenant or pool, or anybody's run.
func (r *rig) tells(text string, loser int, runs []string) bool {
	for i, a := range r.accounts {
		others := []string{runs[i]}
		if i != loser {
			others = append(others, a.id)
		}
		if a.tenant != r.accounts[loser].tenant {
			others = append(others, a.tenant, a.pool)
		}
		for _, other := range others {
			if other != "" && strings.Contains(text, other) {
				return true
			}
		}
	}
	return false
}
