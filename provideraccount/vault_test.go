package provideraccount

import (
	"context"
	"strings"
	"testing"

	"better/compute/internal/postgres"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/secret"
	"better/compute/secret/vault/vaulttest"
)

// withVault puts a vault and a variable of t2's before the service, in the place of what setup gave it.
func (b *bundle) withVault(t *testing.T) *vaulttest.Server {
	t.Helper()
	k := vaulttest.New(t)
	secrets := secret.New(secret.Deps{
		DB: b.db, Authz: b.authz, Vault: k.Client(t), EnvOf: map[string]map[string]string{"t2": {"THEIRS": "A"}},
		LookupEnv: func(string) (string, bool) { return canary, true },
	})
	b.clients.secrets, b.clients.stamps.secrets = secrets, secrets
	b.clients.breaker.stamps = b.clients.stamps
	return k
}

// theirs is what t2 may refer to, and nobody else, each with the like that is absent.
var theirs = map[string]string{"env://THEIRS": "env://NOBODYS", "vault://cloud#token": "vault://none#token"}

// tryReference checks a config that has the reference.
func (b *bundle) tryReference(ctx context.Context, tenantID, reference string) (*model.ProviderAccountCheck, error) {
	b.cloud.check = func(ctx context.Context, a provider.Account) error {
		_, err := a.Secret(ctx, reference)
		return err
	}
	return b.CheckConfig(ctx, model.CheckProviderConfigInput{
		TenantID: tenantID, Provider: "sim", Config: model.JSON(`{"apiToken":"` + reference + `"}`),
	})
}

// What another tenant may refer to is as good as absent in a config that is only tried, as in one that is stored.
func TestCheckConfigWithReferencesOfAnotherTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.withVault(t)
	k.Put("t2/cloud", canary)
	for reference := range theirs {
		if got, err := b.tryReference(admin(t), "t2", reference); err != nil || !got.OK {
			t.Errorf("%s of the tenant that has it: %+v, %v", reference, got, err)
		}
	}
	k.Taken()
	manager := as(t.Context(), "user:manager")
	for reference, absent := range theirs {
		got, err := b.tryReference(manager, "t1", reference)
		want, wantErr := b.tryReference(manager, "t1", absent)
		if err != nil || wantErr != nil {
			t.Fatal(err, wantErr)
		}
		if got.OK || *got.Reason != *want.Reason || strings.ReplaceAll(got.Message, reference, absent) != want.Message {
			t.Errorf("%s of another: %+v; want as of what is absent: %+v", reference, got, want)
		}
	}
	for _, form := range []string{"vault://../t2/cloud#token", "vault:///t2/cloud#token", "vault://t2%2fcloud#token", "vault://a/../../t2/cloud#token"} {
		_, err := b.tryReference(manager, "t1", form)
		wantCode(t, err, problem.InvalidInput)
	}
	for _, req := range k.Taken() {
		if !strings.HasPrefix(req.RequestURI, "/v1/secret/data/compute/t1/") {
			t.Errorf("the vault was asked for %s", req.RequestURI)
		}
	}
}

// It is so too in the other tenant itself, if the decisions let somebody in who sees none of its rows: then as where an account is stored there,
// nothing is resolved and nothing is kept.
func TestCheckConfigBehindTheDecisions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.withVault(t)
	k.Put("t2/cloud", canary)
	b.db.ScopeBy(func(context.Context) (postgres.Scope, error) { return postgres.Tenants("t1"), nil })
	for reference, absent := range theirs {
		var resolved []error
		for _, r := range []string{reference, absent} {
			_, err := b.tryReference(admin(t), "t2", r)
			wantCode(t, err, problem.Unavailable)
			_, err = b.clients.secrets.Resolve(admin(t), "t2", r)
			resolved = append(resolved, err)
		}
		if provider.ClassOf(resolved[0]) != provider.SecretUnresolved || strings.ReplaceAll(resolved[0].Error(), reference, absent) != resolved[1].Error() {
			t.Errorf("%s: %v; want as of what is absent: %v", reference, resolved[0], resolved[1])
		}
		_, err := b.Create(admin(t), model.CreateProviderAccountInput{
			TenantID: "t2", Provider: "sim", Name: "main", Config: model.JSON(`{"apiToken":"` + reference + `"}`),
		})
		wantCode(t, err, problem.Unavailable)
	}
	for _, req := range k.Taken() {
		t.Errorf("the vault was asked for %s", req.RequestURI)
	}
}

// Another value in the vault makes the account another project, and goes into no call that was meant for the one before. While the vault does
// not say, nobody knows what the account is, and nothing goes out.
func TestStampOfVaultValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	k := b.withVault(t)
	k.Put("t1/cloud", "project-1")
	created, err := b.Create(admin(t), model.CreateProviderAccountInput{
		TenantID: "t1", Provider: "sim", Name: "main", Config: model.JSON(`{"apiToken":"vault://cloud#token"}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	a := created.ProviderAccount
	stamp := func() string {
		t.Helper()
		s, err := b.Stamp(t.Context(), b.db.DB, a)
		if err != nil || strings.Contains(s, "project") {
			t.Fatalf("%q, %v", s, err)
		}
		return s
	}
	sent := ""
	b.cloud.offers = func(ctx context.Context, a provider.Account) (_ []*model.Offer, err error) {
		sent, err = a.Secret(ctx, "vault://cloud#token")
		return nil, err
	}
	ask := func(stamp string) error {
		t.Helper()
		sent = ""
		return b.Background(AtStamp(t.Context(), stamp), a, func(ctx context.Context, c provider.Client) error {
			_, err := c.Offers(ctx)
			return err
		})
	}
	first := stamp()
	if err := ask(first); err != nil || sent != "project-1" || stamp() != first {
		t.Errorf("at its stamp the account sends %q: %v", sent, err)
	}
	k.Put("t1/cloud", "project-2")
	second := stamp()
	if err := ask(first); provider.ClassOf(err) != provider.Unavailable || err == nil || sent != "" {
		t.Errorf("at the stamp of before, %q was sent: %v", sent, err)
	}
	if err := ask(second); err != nil || sent != "project-2" || second == first {
		t.Errorf("at the new stamp, which is new: %v, %q was sent: %v", second != first, sent, err)
	}
	k.SetAway(true)
	_, _, calls := b.cloud.counts()
	if got, err := b.Stamp(t.Context(), b.db.DB, a); got != "" || err == nil || provider.ClassOf(err) != provider.Unavailable {
		t.Errorf("the stamp while the vault is away: %q, %v", got, err)
	}
	if err := ask(second); provider.ClassOf(err) != provider.Unavailable || err == nil || !strings.Contains(err.Error(), "vault://cloud#token") {
		t.Errorf("a call while the vault is away: %v", err)
	}
	if got, err := b.Check(admin(t), checkOf(a)); err != nil || got.Check.OK || *got.Check.Reason != "unavailable" {
		t.Errorf("a check while the vault is away: %+v, %v", got, err)
	}
	if _, _, now := b.cloud.counts(); now != calls {
		t.Errorf("%d calls went out while the vault was away", now-calls)
	}
	k.SetAway(false)
	if stamp() != second {
		t.Error("the vault came back with another stamp")
	}
	k.Put("t1/cloud", "project-1")
	if stamp() != first {
		t.Error("the value of before has another stamp")
	}
}
