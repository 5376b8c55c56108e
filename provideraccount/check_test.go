package provideraccount

import (
	"context"
	"testing"

	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

func checkOf(a *model.ProviderAccount) model.CheckProviderAccountInput {
	return model.CheckProviderAccountInput{TenantID: a.TenantID, AccountID: a.ID}
}

func TestCheckChecks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	_, err := b.Check(t.Context(), checkOf(a))
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.Check(as(t.Context(), "user:viewer"), checkOf(a))
	wantCode(t, err, problem.Forbidden)
	_, err = b.Check(admin(t), model.CheckProviderAccountInput{TenantID: "!", AccountID: "!"})
	wantIssues(t, err, "tenantId", "accountId")
	_, err = b.Check(admin(t), model.CheckProviderAccountInput{TenantID: "t2", AccountID: a.ID})
	wantCode(t, err, problem.NotFound)
	if _, _, calls := b.cloud.counts(); calls != 0 {
		t.Errorf("refused checks made %d calls", calls)
	}
}

// A config is tried as it would be stored, and nothing stays of it.
func TestCheckConfig(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(t, "main")
	in := func(config string) model.CheckProviderConfigInput {
		return model.CheckProviderConfigInput{TenantID: "t1", Provider: "sim", Config: model.JSON(config)}
	}
	_, err := b.CheckConfig(t.Context(), in(`{}`))
	wantCode(t, err, problem.Unauthenticated)
	_, err = b.CheckConfig(as(t.Context(), "user:viewer"), in(`{}`))
	wantCode(t, err, problem.Forbidden)
	_, err = b.CheckConfig(admin(t), model.CheckProviderConfigInput{TenantID: "!", Provider: "!"})
	wantIssues(t, err, "tenantId", "provider")
	_, err = b.CheckConfig(admin(t), model.CheckProviderConfigInput{TenantID: "t1", Provider: "nobody"})
	wantIssues(t, err, "provider")
	_, err = b.CheckConfig(admin(t), in(`{"apiToken": "in clear"}`))
	wantCode(t, err, problem.InvalidInput)
	if _, _, calls := b.cloud.counts(); calls != 0 {
		t.Errorf("refused checks made %d calls", calls)
	}
	accounts := b.count(t, `SELECT sum(version) FROM provider_accounts WHERE refused_at IS NULL`)
	asked := 0
	for _, class := range []provider.Class{provider.Auth, provider.Forbidden, provider.Unavailable, provider.SecretUnresolved} {
		b.cloud.check = func(_ context.Context, a provider.Account) error {
			if asked++; string(a.Config) != `{}` {
				t.Errorf("checked %s", a.Config)
			}
			return provider.Errorf(class, "No.")
		}
		got, err := b.CheckConfig(admin(t), in(`{}`))
		if err != nil || got.OK || got.Reason == nil || got.Message != "sim: No." || got.At.IsZero() {
			t.Errorf("%s: %+v, %v", class, got, err)
		}
	}
	b.cloud.check = func(context.Context, provider.Account) error { return nil }
	if got, err := b.CheckConfig(admin(t), in(``)); err != nil || !got.OK || got.Reason != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if now := b.count(t, `SELECT sum(version) FROM provider_accounts WHERE refused_at IS NULL`); now != accounts || asked != 4 {
		t.Errorf("%d calls changed accounts: %d, were %d", asked, now, accounts)
	}
	if n := b.count(t, `SELECT count(*) FROM audit_log WHERE action = 'checkProviderConfig' AND outcome = 'allowed' AND object = 'compute-tenant/t1'`); n != 5 {
		t.Errorf("%d checks are in the audit log, want 5", n)
	}
}

// The answer stays with the account, in every replica, until an update; each check is in the audit log.
func TestCheckIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	other := b.replica(t)
	if a.Check != nil {
		t.Error("an account that nobody checked has a check")
	}
	for class, reason := range map[provider.Class]string{
		provider.Unavailable: "unavailable", provider.Timeout: "timeout", provider.SecretUnresolved: "secret_unresolved",
		provider.Auth: "credentials", provider.Forbidden: "credentials",
	} {
		b.cloud.check = func(context.Context, provider.Account) error { return provider.Errorf(class, "No.") }
		if _, err := b.Check(admin(t), checkOf(a)); err != nil {
			t.Fatalf("%s: %v", class, err)
		}
		got, err := other.Get(admin(t), GetInput{"t1", a.ID})
		if err != nil || got.Check == nil || got.Check.OK || *got.Check.Reason != reason || got.Check.Message != "sim: No." || got.Check.At.IsZero() {
			t.Errorf("%s: the account says %+v, %v", class, got.Check, err)
		}
	}
	n := b.count(t, `SELECT count(*) FROM audit_log WHERE action = 'checkProviderAccount' AND outcome = 'allowed'`)
	if n != 5 {
		t.Errorf("%d checks are in the audit log", n)
	}
	updated, err := b.Update(admin(t), update(a, `{}`))
	if err != nil || updated.ProviderAccount.Check != nil {
		t.Errorf("after an update the account says %+v, %v", updated, err)
	}
}

func TestCheckOfAnAccountThatChanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	b.cloud.check = func(context.Context, provider.Account) error {
		_, err := b.Update(admin(t), update(a, `{}`))
		return err
	}
	_, err := b.Check(admin(t), checkOf(a))
	wantCode(t, err, problem.Conflict)
	if got, err := b.Get(admin(t), GetInput{"t1", a.ID}); err != nil || got.Check != nil {
		t.Errorf("the check of another version was kept: %+v, %v", got.Check, err)
	}
}

// Once the provider has refused, no replica calls it through the account, until somebody acts: each of three ways is enough.
func TestBreakerHoldsInAllReplicas(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*testing.T, *bundle, *model.ProviderAccount){
		"update": func(t *testing.T, b *bundle, a *model.ProviderAccount) {
			t.Helper()
			if _, err := b.Update(admin(t), update(a, `{"apiToken":"secret://cloud"}`)); err != nil {
				t.Fatal(err)
			}
		},
		"secret": func(t *testing.T, b *bundle, _ *model.ProviderAccount) {
			t.Helper()
			b.exec(t, `UPDATE secrets SET updated_at = clock_timestamp()`)
		},
		"check": func(t *testing.T, b *bundle, a *model.ProviderAccount) {
			t.Helper()
			if _, err := b.Check(admin(t), checkOf(a)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(t, `INSERT INTO secrets (tenant_id, name, key_id, sealed) VALUES ('t1', 'cloud', 'k', '')`)
			payload, err := b.Create(admin(t), model.CreateProviderAccountInput{
				TenantID: "t1", Provider: "sim", Name: "main", Config: model.JSON(`{"apiToken":"secret://cloud"}`),
			})
			if err != nil {
				t.Fatal(err)
			}
			a, other := payload.ProviderAccount, b.replica(t)
			opened, err := other.Open(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			b.cloud.offers = func(context.Context, provider.Account) ([]*model.Offer, error) {
				return nil, provider.Errorf(provider.Auth, "No.")
			}
			for range 3 {
				_, err := b.Offers(admin(t), offersOf(a))
				if p := wantCode(t, err, problem.ProviderError); p.Details["reason"] != "credentials" {
					t.Error(p.Details)
				}
				if _, err := opened.Machines(t.Context()); provider.ClassOf(err) != provider.Auth {
					t.Errorf("another replica's client: %v", err)
				}
				_, err = other.Offers(admin(t), offersOf(a))
				wantCode(t, err, problem.ProviderError)
			}
			_, _, here := b.cloud.counts()
			_, _, there := other.cloud.counts()
			if here != 1 || there != 0 {
				t.Errorf("%d and %d calls, want 1 and 0", here, there)
			}
			act(t, b, a)
			if _, err := other.Offers(admin(t), offersOf(a)); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// A refusal that arrives late, of a version that is gone, says nothing about the present one.
func TestLateRefusalOfAnOldVersion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := b.create(t, "main")
	b.cloud.offers = func(context.Context, provider.Account) ([]*model.Offer, error) {
		if _, err := b.Update(admin(t), update(a, `{}`)); err != nil {
			t.Error(err)
		}
		return nil, provider.Errorf(provider.Auth, "No.")
	}
	_, err := b.Offers(admin(t), offersOf(a))
	wantCode(t, err, problem.ProviderError)
	if _, err := b.Machines(admin(t), GetInput{"t1", a.ID}); err != nil {
		t.Errorf("the new version: %v", err)
	}
}
