package apitest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"better/compute/internal/id"
	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
)

const (
	raceRounds = 700 // with three rivals each
	raceTenant = "raced"
)

// TestDeleteRacesWhatUsesTheAccount deletes accounts while a run, a pool and an instance come to use them, all at the same moment:
// either the account goes and none of them is there, or it stays.
func TestDeleteRacesWhatUsesTheAccount(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	hosts := id.New("pool")
	s.exec(t, "INSERT INTO pools (id, tenant_id, name, class, agent) VALUES (?, ?, 'hosts', 'vps-host', 'bcd')", hosts, raceTenant)
	var mu sync.Mutex
	ends := map[string]int{}
	var rounds errgroup.Group
	rounds.SetLimit(4)
	for i := range raceRounds {
		rounds.Go(func() error {
			end, err := s.raceOnce(t, hosts, i)
			mu.Lock()
			defer mu.Unlock()
			ends[end]++
			return err
		})
	}
	if err := rounds.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("how %d rounds ended: %v", raceRounds, ends)
	if ends["deleted"] == 0 || ends["kept"] == 0 {
		t.Errorf("one side won all races, so there were none: %v", ends)
	}
	for what, query := range map[string]string{
		"pools":      "SELECT count(*) FROM pools p WHERE account_id IS NOT NULL AND NOT EXISTS (SELECT FROM provider_accounts WHERE id = p.account_id)",
		"instances":  "SELECT count(*) FROM instances i WHERE account_id IS NOT NULL AND NOT EXISTS (SELECT FROM provider_accounts WHERE id = i.account_id)",
		"bootstraps": "SELECT count(*) FROM bootstraps b WHERE NOT EXISTS (SELECT FROM provider_accounts WHERE id = b.account_id)",
	} {
		var n int
		if err := s.db.NewRaw(query).Scan(t.Context(), &n); err != nil || n != 0 {
			t.Errorf("%d %s without their account, %v", n, what, err)
		}
	}
}

// raceOnce tells how the round ended: "deleted" or "kept".
func (s *services) raceOnce(t *testing.T, hosts string, round int) (end string, err error) {
	account := id.New("pacct")
	if _, err := s.db.NewRaw("INSERT INTO provider_accounts (id, tenant_id, provider, name, config, created_by) VALUES (?, ?, 'sim', ?, ?, '')",
		account, raceTenant, fmt.Sprint("a", round), `{"apiToken":"secret://sim"}`).Exec(t.Context()); err != nil {
		return "", err
	}
	rivals := []func() error{
		func() error {
			_, err := s.accounts.Delete(s.ctx, model.DeleteProviderAccountInput{TenantID: raceTenant, AccountID: account})
			return err
		},
		func() error {
			offer := "vps-small:fra1"
			_, err := s.runs.Start(s.ctx, model.BootstrapMachineInput{
				TenantID: raceTenant, AccountID: account, PoolID: hosts, OfferID: &offer, IdempotencyKey: fmt.Sprint("k", round),
			})
			return err
		},
		func() error {
			_, err := s.pools.Create(s.ctx, model.CreatePoolInput{
				TenantID: raceTenant, Name: fmt.Sprint("p", round), Class: model.ClassVPS, Agent: model.AgentNone, AccountID: &account,
			})
			return err
		},
		func() error { return s.insertInstance(t.Context(), hosts, account) },
	}
	errs := make([]error, len(rivals))
	start := make(chan struct{})
	var running sync.WaitGroup
	for i := range rivals {
		who := (i + round) % len(rivals) // each is first in its turn
		running.Go(func() {
			<-start
			for range who * round % 7 { // a little later, now and then
				runtime.Gosched()
			}
			errs[who] = rivals[who]()
		})
	}
	close(start)
	running.Wait()
	return judge(errs[0], errs[1:])
}

func (s *services) insertInstance(ctx context.Context, poolID, account string) error {
	_, err := s.db.NewRaw("INSERT INTO instances (id, tenant_id, pool_id, account_id, name) VALUES (?, ?, ?, ?, 'i')",
		id.New("inst"), raceTenant, poolID, account).Exec(ctx)
	if _, broken := postgres.ForeignKeyViolation(err); broken {
		return problem.New(problem.NotFound, "The account is gone.")
	}
	return err
}

// judge wants of the errors that they fit together.
func judge(deletion error, uses []error) (end string, err error) {
	used := 0
	for _, err := range uses {
		if err == nil {
			used++
		} else if !problem.Is(err, problem.NotFound) {
			return "", fmt.Errorf("using the account: %w", err)
		}
	}
	switch {
	case deletion == nil && used == 0:
		return "deleted", nil
	case problem.Is(deletion, problem.InvalidState) && used == len(uses):
		return "kept", nil
	}
	return "", fmt.Errorf("the delete ended with %v, and %d of %d uses succeeded", deletion, used, len(uses))
}
