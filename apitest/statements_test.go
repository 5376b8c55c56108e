package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"better/compute/internal/id"
	"better/compute/internal/postgres/pgtest"
)

// A page with everything that hangs on it takes as many statements for fifty accounts as for five.
func TestStatementsDoNotGrowWithThePage(t *testing.T) {
	t.Parallel()
	s := newServices(t)
	const accounts, runs, tenant = 50, 4, "paged"
	for i := range accounts {
		account, pool := id.New("pacct"), id.New("pool")
		s.exec(t, "INSERT INTO provider_accounts (id, tenant_id, provider, name, created_by) VALUES (?, ?, 'sim', ?, '')", account, tenant, fmt.Sprintf("a%02d", i))
		s.exec(t, "INSERT INTO pools (id, tenant_id, name, class, agent, account_id) VALUES (?, ?, ?, 'vps-host', 'bcd', ?)", pool, tenant, fmt.Sprintf("p%02d", i), account)
		for range runs {
			run := id.New("boot")
			s.exec(t, `INSERT INTO bootstraps (id, tenant_id, account_id, pool_id, created_by, offer_id, status, operation_id)
				VALUES (?0, ?1, ?2, ?3, '', 'o', 'claiming', ?0)`, run, tenant, account, pool)
			s.exec(t, "INSERT INTO bootstrap_transitions (bootstrap_id, to_status) VALUES (?, 'claiming')", run)
		}
	}
	count := pgtest.CountQueries(s.db)
	statements := map[int]int{}
	for _, first := range []int{5, 50, 5, 50} { // the second round has nothing left to cache
		before := count()
		nodes := s.page(t, tenant, first)
		statements[first] = count() - before
		if nodes != first*3 {
			t.Fatalf("a page of %d accounts has %d runs with account, pool, history and claim, want %d", first, nodes, first*3)
		}
	}
	t.Logf("statements by size of the page: %v", statements)
	if statements[5] != statements[50] || statements[50] == 0 || statements[50] > 10 {
		t.Errorf("statements by size of the page: %v, want one number, of at most 10", statements)
	}
}

// page reads the accounts with their last three runs, and counts the runs that came complete.
func (s *services) page(t *testing.T, tenant string, first int) (complete int) {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"query": `query($tenant: ID!, $first: Int!) { providerAccounts(tenantId: $tenant, first: $first) { nodes { name
			bootstraps(first: 3) { nodes { id account { name } pool { name account { name } } history { to } claim { operationId } retryOf } } } } }`,
		"variables": map[string]any{"tenant": tenant, "first": first},
	})
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, graphqlPath, strings.NewReader(string(body)))
	req.Header.Set("Authorization", "Bearer "+localToken)
	req.Header.Set("Content-Type", typeJSON)
	rec := httptest.NewRecorder()
	s.api.Handler().ServeHTTP(rec, req)
	var answer struct {
		Errors []any
		Data   struct {
			ProviderAccounts struct {
				Nodes []struct {
					Name       string
					Bootstraps struct {
						Nodes []struct {
							Account struct{ Name string }
							Pool    struct{ Account struct{ Name string } }
							History []any
							Claim   *struct{ OperationID string }
						}
					}
				}
			}
		}
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &answer); err != nil || len(answer.Errors) > 0 {
		t.Fatalf("%v: %s", err, rec.Body)
	}
	for _, account := range answer.Data.ProviderAccounts.Nodes {
		for _, run := range account.Bootstraps.Nodes {
			if run.Account.Name == account.Name && run.Pool.Account.Name == account.Name && len(run.History) == 1 && run.Claim != nil && run.Claim.OperationID != "" {
				complete++
			}
		}
	}
	return complete
}
