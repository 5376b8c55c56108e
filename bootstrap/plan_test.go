package bootstrap

import (
	"fmt"
	"testing"
	"time"

	"better/compute/internal/id"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provideraccount"
)

func (b *bench) planOffer(offer string) PlanInput {
	return PlanInput{TenantID: tenant, AccountID: b.account, PoolID: b.pool, OfferID: &offer}
}

func (b *bench) planMachine(machine string) PlanInput {
	return PlanInput{TenantID: tenant, AccountID: b.account, PoolID: b.pool, MachineID: &machine}
}

// plan gives the plan and its preconditions as text: the name, and the code of a red one.
func (b *bench) plan(s *Service, in PlanInput) (*model.BootstrapPlan, []string) {
	b.t.Helper()
	p, err := s.Plan(b.ctx, in)
	if err != nil {
		b.t.Fatalf("Plan: %v", err)
	}
	var all []string
	ready := true
	for _, c := range p.Preconditions {
		text := string(c.Name)
		if !c.Ok {
			text += " " + deref(c.Code)
			ready = false
		}
		if c.Ok != (c.Code == nil) || c.Message == "" {
			b.t.Errorf("%s: ok %v, code %v, message %q", c.Name, c.Ok, c.Code, c.Message)
		}
		all = append(all, text)
	}
	if p.Ready != ready {
		b.t.Errorf("ready is %v with %v", p.Ready, all)
	}
	return p, all
}

func TestPlanChecks(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	_, err := b.service.Plan(t.Context(), b.planOffer("small"))
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.service.Plan(b.ctx, PlanInput{})
	if issues := wantCode(t, err, problem.InvalidInput).Details["issues"].([]problem.Issue); len(issues) != 4 {
		t.Errorf("issues = %v", issues)
	}
	b.grant("user:reader", "provider-viewer", "compute-tenant/"+tenant)
	_, err = b.service.Plan(as(t.Context(), "user:reader"), b.planOffer("small"))
	wantCode(t, err, problem.Forbidden)
	equal(t, "calls", len(b.cloud.calls), 0)
}

func TestPlanOfAnOffer(t *testing.T) {
	t.Parallel()
	c := newCloud(model.ClaimToken)
	c.manifest.Typical = map[model.MachineKind]time.Duration{model.VPS: 90 * time.Second}
	c.manifest.Wipes = []string{"All."}
	b := setupWith(t, c, "{}")
	b.cloud = c
	p, all := b.plan(b.service, b.planOffer("small"))
	equal(t, "preconditions", all, []string{"SERVER", "ACCOUNT", "CAPABILITIES", "POOL", "CREDENTIALS", "AVAILABILITY", "ORDER_LIMIT"})
	if p.Price == nil || *p.Price.Hourly != "0.01" || *p.ExpectedMinutes != 2 || len(p.Wipes) != 0 {
		t.Errorf("the plan is %+v", p)
	}
	equal(t, "calls", b.cloud.calls, []string{"check", "offers"})

	_, all = b.plan(b.service, b.planOffer("large"))
	equal(t, "an offer that is gone", all[5], "AVAILABILITY OFFER_GONE")
	b.cloud.change(func() { b.cloud.sold = model.OutOfStock })
	_, all = b.plan(b.service, b.planOffer("small"))
	equal(t, "none left", all[5], "AVAILABILITY OUT_OF_STOCK")
	b.cloud.change(func() { b.cloud.sold = model.AvailabilityUnknown })
	_, all = b.plan(b.service, b.planOffer("small"))
	equal(t, "unknown stock", all[5], "AVAILABILITY")

	limited := *b.service
	limited.OrdersPerHour = 1
	b.driveToStatus(b.start(b.offer("k")), model.Identifying)
	_, all = b.plan(&limited, b.planOffer("small"))
	equal(t, "over the limit", all[6], "ORDER_LIMIT ORDER_LIMIT")
}

func TestPlanOfAMachine(t *testing.T) {
	t.Parallel()
	c := newCloud(model.ClaimToken)
	c.manifest.Wipes = []string{"All."}
	c.boxes = []string{"box"}
	b := setupWith(t, c, "{}")
	b.cloud = c
	p, all := b.plan(b.service, b.planMachine("box"))
	equal(t, "preconditions", all, []string{"SERVER", "ACCOUNT", "CAPABILITIES", "POOL", "CREDENTIALS", "AVAILABILITY", "MACHINE_FREE"})
	equal(t, "wipes", p.Wipes, []string{"All."})
	if p.Price != nil || p.ExpectedMinutes != nil {
		t.Errorf("the plan is %+v", p)
	}
	_, all = b.plan(b.service, b.planMachine("other"))
	equal(t, "no such machine", all[5:], []string{"AVAILABILITY MACHINE_NOT_FOUND", "MACHINE_FREE"})
	b.start(b.machine("box", "k"))
	_, all = b.plan(b.service, b.planMachine("box"))
	equal(t, "in use", all[5:], []string{"AVAILABILITY", "MACHINE_FREE CONFLICT"})
}

// All that is wrong is said at once, and what depends on it is not asked for.
func TestPlanSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	bare := *b.service
	bare.Options = nil
	in := b.planOffer("small")
	in.AccountID, in.PoolID = id.New("pacct"), id.New("pool")
	_, all := b.plan(&bare, in)
	equal(t, "preconditions", all, []string{
		"SERVER INVALID_CONFIG", "ACCOUNT NOT_FOUND", "CAPABILITIES NOT_FOUND", "POOL NOT_FOUND", "CREDENTIALS NOT_FOUND",
		"AVAILABILITY NOT_FOUND", "ORDER_LIMIT",
	})
	b.exec("UPDATE pools SET archived_at = now()")
	b.cloud.next("check", failsWith(provider.Auth))
	_, all = b.plan(b.service, b.planOffer("small"))
	equal(t, "refused credentials", all[3:], []string{
		"POOL INVALID_STATE", "CREDENTIALS CREDENTIALS_REJECTED", "AVAILABILITY CREDENTIALS_REJECTED", "ORDER_LIMIT",
	})
	b.cloud.next("offers", failsWith(provider.Auth))
	_, err := b.deps.Accounts.Offers(b.ctx, provideraccount.OffersInput{TenantID: tenant, AccountID: b.account})
	wantCode(t, err, problem.ProviderError)
	calls := len(b.cloud.calls)
	_, all = b.plan(b.service, b.planOffer("small")) // by the breaker, without a call
	equal(t, "refused before", all[4], "CREDENTIALS CREDENTIALS_REJECTED")
	equal(t, "calls", len(b.cloud.calls), calls)

	b.exec("UPDATE provider_accounts SET refused_stamp = NULL")
	for class, code := range map[provider.Class]string{
		provider.SecretUnresolved: "SECRET_UNRESOLVED", provider.Unavailable: "PROVIDER_ERROR", provider.RateLimited: "PROVIDER_ERROR",
	} {
		b.cloud.next("check", failsWith(class))
		_, all = b.plan(b.service, b.planOffer("small"))
		equal(t, string(class), all[4], "CREDENTIALS "+code)
	}
}

// Plans leave no trace: no row, and no call that could have an effect.
func TestPlanChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	b.cloud.boxes = []string{"box"}
	for _, in := range []PlanInput{b.planOffer("small"), b.planMachine("box")} {
		b.plan(b.service, in)
	}
	var n int
	err := b.db.NewRaw(`SELECT (SELECT count(*) FROM bootstraps) + (SELECT count(*) FROM events) + (SELECT count(*) FROM river_job)
		+ (SELECT count(*) FROM machine_reservations) + (SELECT count(*) FROM audit_log) + (SELECT count(*) FROM inventory_claims)`).Scan(t.Context(), &n)
	if err != nil || n != 0 {
		t.Errorf("plans left %d rows (%v)", n, err)
	}
	equal(t, "calls", b.cloud.calls, []string{"check", "offers", "check", "machines"})

	// Credentials that are refused are news to the plan alone, and so is that others are in their place.
	account := func() (row string) {
		t.Helper()
		if err := b.db.NewRaw("SELECT a::text FROM provider_accounts AS a").Scan(t.Context(), &row); err != nil {
			t.Fatal(err)
		}
		return row
	}
	before := account()
	b.cloud.next("check", failsWith(provider.Auth))
	if p, _ := b.plan(b.service, b.planOffer("small")); p.Ready {
		t.Error("an offer may be ordered with refused credentials")
	}
	equal(t, "the account after a refusal", account(), before)
	b.exec("UPDATE provider_accounts SET refused_stamp = 'of before', refused_at = now()")
	before = account()
	if p, _ := b.plan(b.service, b.planOffer("small")); !p.Ready {
		t.Error("credentials that nobody refused are refused")
	}
	equal(t, "the account after the refusal of others", account(), before)
}

// Once a few runs have joined, they tell how long it takes.
func TestPlanLearnsHowLongItTakes(t *testing.T) {
	t.Parallel()
	b := setup(t, model.ClaimToken)
	for i, minutes := range []int{7, 3, 9, 5} {
		runID := b.start(b.offer(fmt.Sprint("k", i)))
		b.driveToStatus(runID, model.Installed)
		b.mustJoin(runID)
		b.exec("UPDATE bootstraps SET created_at = joined_at - ? * interval '1 minute' WHERE id = ?", minutes, runID)
		p, _ := b.plan(b.service, b.planOffer("small"))
		if got, want := p.ExpectedMinutes, []int{0, 0, 7, 6}[i]; want == 0 != (got == nil) || got != nil && *got != want {
			t.Errorf("after %d runs it takes %v minutes, want %d", i+1, got, want)
		}
	}
	if p, _ := b.plan(b.service, b.planMachine("box")); p.ExpectedMinutes != nil {
		t.Error("runs that ordered tell nothing about those that do not")
	}
}

// What an order of a local provider takes stands there already, and may have something to lose.
func TestPlanOfALocalOfferTellsWhatIsWiped(t *testing.T) {
	t.Parallel()
	c := newCloud(model.ClaimLocal)
	c.manifest.Wipes = []string{"All."}
	b := setupWith(t, c, "{}")
	b.cloud = c
	p, _ := b.plan(b.service, b.planOffer("small"))
	equal(t, "wipes", p.Wipes, []string{"All."})
}
