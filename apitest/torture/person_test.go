package torture

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// bringPerson has a person there until the runs have settled.
func (m *torment) bringPerson() {
	ctx, leave := context.WithCancel(m.t.Context())
	m.leave = leave
	m.t.Cleanup(leave)
	m.wait.Go(func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
			m.checkAccounts(ctx)
			m.resolveClaims(ctx)
			m.releaseOrphans(ctx)
		}
	})
}

// say makes a call as the person, who repeats himself when it fails.
func say(ctx context.Context, r *rig, mutation, input string, values map[string]any) bool {
	asked, stop := context.WithTimeout(ctx, callLimit)
	defer stop()
	_, err := ask[struct {
		Typename string `json:"__typename"`
	}](asked, r, mutation, input, "{ __typename }", values)
	return err == nil
}

// checkAccounts has the credentials of an account checked once they work again. While they are refused it is not swept either, whoever waits for it.
func (m *torment) checkAccounts(ctx context.Context) {
	var waiting []string
	err := m.db.NewRaw(`SELECT DISTINCT account_id FROM bootstraps WHERE live_account_id IS NOT NULL AND wait_reason = 'CREDENTIALS_REJECTED'
		AND (status = 'failed' OR next_at > now() + interval '1 second')
		UNION SELECT id FROM provider_accounts WHERE refused_at < now() - interval '2 seconds'`).Scan(ctx, &waiting)
	if err != nil {
		return
	}
	for _, id := range waiting {
		a := m.accounts[slices.IndexFunc(m.accounts, func(a account) bool { return a.id == id })]
		say(ctx, m.rig, "checkProviderAccount", "CheckProviderAccountInput", map[string]any{"tenantId": a.tenant, "accountId": id})
	}
}

// uncertain is a run that asks what became of its order.
type uncertain struct {
	ID          string `bun:"id"`
	AccountID   string `bun:"account_id"`
	OperationID string `bun:"operation_id"`
	Refused     bool   `bun:"refused"` // a person named the machine, and it could not be given back
}

// resolveClaims says what became of the orders that servers do not know of, as the provider's own books have it. Where a server may not give a
// machine back the person does, at the provider.
func (m *torment) resolveClaims(ctx context.Context) {
	var asking []uncertain
	err := m.db.NewRaw(`SELECT id, account_id, operation_id, cleanup = 'blocked' AND coalesce(claim_resolution, '') = 'machine' AS refused FROM bootstraps
		WHERE live_account_id IS NOT NULL AND wait_reason = 'CLAIM_UNCERTAIN' AND coalesce(order_attempt_at < now() - interval '3 seconds', true)`).Scan(ctx, &asking)
	if err != nil || len(asking) == 0 {
		return
	}
	kept := m.kept()
	for _, run := range asking {
		a := m.accounts[slices.IndexFunc(m.accounts, func(a account) bool { return a.id == run.AccountID })]
		machines := kept[run.OperationID]
		if run.Refused {
			if !m.giveBack(ctx, a, machines...) {
				continue // who has not seen them go does not say that there are none
			}
			machines = nil
		}
		values := map[string]any{"tenantId": a.tenant, "bootstrapId": run.ID}
		if len(machines) > 0 {
			values["machineId"] = machines[0]
		} else {
			values["nothingOrdered"] = true
		}
		if say(ctx, m.rig, "resolveClaim", "ResolveClaimInput", values) {
			m.said.Add(1)
		}
	}
}

// giveBack is what a person does at the provider's console, which spoils that as it does anything. It reports whether all of them are gone.
func (m *torment) giveBack(ctx context.Context, a account, machines ...string) (gone bool) {
	gone = true
	for _, id := range machines {
		req, err := http.NewRequestWithContext(ctx, http.MethodDelete, m.cloudURL+"/v1/machines/"+id, nil)
		if err != nil {
			return false
		}
		req.Header.Set("Authorization", "Bearer "+a.secret)
		res, err := m.http.Do(req)
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		gone = gone && (res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotFound)
	}
	return gone
}

// releaseOrphans gives back whatever is shown as without an owner, and believes that. What a server may not give back, as it carries no operation,
// the person gives back at the provider.
func (m *torment) releaseOrphans(ctx context.Context) {
	var open []struct {
		ID        string `bun:"id"`
		TenantID  string `bun:"tenant_id"`
		AccountID string `bun:"account_id"`
		MachineID string `bun:"machine_id"`
		Dropped   bool   `bun:"dropped"`
	}
	err := m.db.NewRaw(`SELECT id, tenant_id, account_id, machine_id, release_dropped_at IS NOT NULL AS dropped FROM orphans
		WHERE kind = 'not-ours' AND resolved_at IS NULL AND (release_asked_at IS NULL OR release_dropped_at IS NOT NULL)`).Scan(ctx, &open)
	if err != nil {
		return
	}
	for _, o := range open {
		if o.Dropped {
			m.giveBack(ctx, m.accounts[slices.IndexFunc(m.accounts, func(a account) bool { return a.id == o.AccountID })], o.MachineID)
			continue
		}
		say(ctx, m.rig, "releaseMachine", "ReleaseMachineInput", map[string]any{"tenantId": o.TenantID, "orphanId": o.ID, "machineId": o.MachineID})
	}
}
