package torture

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"better/compute/apitest/harness"
)

// Two tenants, each with two accounts at one project of the cloud, all want one machine, through two servers: one gets it, and the others are
// not told who has.
func TestRaces(t *testing.T) {
	races := number(t, "RACES", 20)
	r := newRig(t, 2, 2)
	r.killCloud() // so that no run ends, and gives the machine back, while others still ask
	for _, a := range r.accounts {
		r.exec(`UPDATE provider_accounts SET config = '{"apiToken":"env://PROJECT_0_0"}' WHERE id = ?`, a.id)
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
