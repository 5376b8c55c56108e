package latitude_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"better/compute/apitest/netns"
	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/latitude"
	"better/compute/provider/providertest"
)

// TestMain makes of the test's own program an agent that does nothing, for as long as it is let.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		time.Sleep(time.Hour)
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	plainConfig = `{"apiToken":"secret://lat","projectId":"proj_gXQvNedwV0zpb","sshPrivateKey":"secret://lat-ssh"}`
	offerID     = "c2-small-x86:SAO"
	first       = "sv_Z1" // the server that is there
)

// operation is one whose server is known as ours.
var operation = "bcd-" + strings.Repeat("0", 26)

// bundle is an account of a test's own.
type bundle struct {
	*providertest.Account
	fake   *fake
	faults *providertest.Faults
	client everything
}

type everything interface {
	provider.Bootstrapper
	provider.Claimant
}

type options struct {
	timeout time.Duration
	host    *netns.Host // that the first server is
	key     string
	change  func(*fake)
}

func setup(t *testing.T, o options) *bundle {
	t.Helper()
	b := &bundle{fake: newFake()}
	config := plainConfig
	if o.host != nil {
		b.fake.address = o.host.Address.String()
		attributes(b.fake.servers[0])["primary_ipv4"] = b.fake.address
		config = fmt.Sprintf(`%s,"hostFingerprints":{%q:%q}}`, strings.TrimSuffix(plainConfig, "}"), first, o.host.Fingerprint)
		o.key = o.host.PrivateKey
	}
	if o.change != nil {
		o.change(b.fake)
	}
	b.faults = providertest.NewFaults(b.fake)
	server := httptest.NewServer(b.faults)
	b.client = open(server.URL, o.timeout, config, o.key)
	b.Account = &providertest.Account{Client: b.client, Secret: secret, OfferID: offerID, Sold: b.fake.sold}
	if o.host != nil {
		b.MachineID, b.Payload = first, payload
	}
	t.Cleanup(func() { _ = b.client.Close(); server.Close() })
	return b
}

func open(url string, timeout time.Duration, config, key string) everything {
	if key == "" {
		key = anyKey
	}
	client, err := driver(url, timeout).Open(context.Background(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(config),
		Secret: func(_ context.Context, reference string) (string, error) {
			if reference == "secret://lat-ssh" {
				return key, nil
			}
			return secret, nil
		},
	})
	if err != nil {
		panic(err)
	}
	return client.(everything)
}

var anyKey = netns.NewKey()

func driver(url string, timeout time.Duration) *latitude.Driver {
	return latitude.New(latitude.Options{Endpoint: url, Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: timeout})
}

func payload(generation int) provider.Payload {
	return delivered(generation, func() (io.ReadCloser, error) { return os.Open("/proc/self/exe") })
}

func delivered(generation int, agent func() (io.ReadCloser, error)) provider.Payload {
	return provider.Payload{
		Generation: generation, JoinURL: "https://192.0.2.1:8443", CAPin: "sha256:" + strings.Repeat("0", 64), Token: fmt.Sprintf("join-%d", generation),
		AgentBinary: func(string) (io.ReadCloser, error) { return agent() },
	}
}

// broken has an agent that ends at once.
func broken(generation int) provider.Payload {
	return delivered(generation, func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("#!/bin/sh\necho no >&2\nexit 3\n")), nil
	})
}

func with(faults ...providertest.Fault) providertest.Situation { return arranged(options{}, faults...) }

func changed(change func(*fake)) providertest.Situation { return arranged(options{change: change}) }

func arranged(o options, faults ...providertest.Fault) providertest.Situation {
	return providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
		t.Helper()
		b := setup(t, o)
		b.faults.Add(faults...)
		return b.Account
	}}
}

type do = func(http.ResponseWriter, *http.Request, http.Handler)

func isOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == "/servers"
}

func onOrder(d do) providertest.Fault { return providertest.Fault{Match: isOrder, Do: d} }
func onNext(d do) providertest.Fault  { return providertest.Fault{Do: d} }
func always(d do) providertest.Fault  { return providertest.Fault{Always: true, Do: d} }

func none(reason string) providertest.Situation { return providertest.Situation{Reason: reason} }

func TestConformance(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	providertest.Run(t, providertest.Config{
		Driver: driver("http://127.0.0.1:1", 0),
		Configs: []string{
			plainConfig,
			`{"apiToken":"env://LATITUDE_TOKEN","projectId":"proj_gXQvNedwV0zpb","sshPrivateKey":"vault://lat#ssh","sshKeyIds":["ssh_AxyQ5oV2aLzEv"],"operatingSystem":"debian_12",` +
				`"hostFingerprints":{"sv_ZWr75Zbjr5A91":"SHA256:uNiVztksCsDhcc0u9e8BrkpJcqtoUZRiiYKqKpwRbZA"}}`,
		},
		BadConfigs: []string{
			`{}`,
			strings.Replace(plainConfig, "secret://lat\"", "plain\"", 1),
			strings.Replace(plainConfig, "proj_", "", 1),
			strings.Replace(plainConfig, "proj_", "proj_/../", 1),
			strings.Replace(plainConfig, `"projectId"`, `"sshKeyIds":["x"],"projectId"`, 1),
		},
		Plain: arranged(options{host: hosts[0]}),

		ThreePages:    changed(func(f *fake) { f.perPage = 4 }),
		EmptyLastPage: changed(func(f *fake) { f.perPage = 11 }), // every list ends so
		RepeatedPage:  changed(func(f *fake) { f.perPage, f.repeatedPage = 4, true }),
		ExtraFields:   with(always(providertest.ExtraFields)),
		MissingPrice: changed(func(f *fake) {
			attributes(f.plans[0])["regions"].([]object)[0]["pricing"] = object{}
		}),
		UnknownGPU: changed(func(f *fake) {
			attributes(f.plans[9])["specs"].(object)["gpu"] = object{"count": 2, "type": "Acme Frobnicator 9"}
		}),
		OddIDs: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, options{change: func(f *fake) { f.plans = append(f.plans, plan("s/9 (beta)", 9), plan("s:9", 9)) }})
			b.OfferID = provider.OfferID("s/9 (beta)", "SAO")
			return b.Account
		}},

		AnswerLost:      with(onOrder(providertest.AnswerLost)),
		HalfAnswer:      with(onOrder(providertest.HalfAnswer)),
		OrderFails:      with(onOrder(providertest.Reply(500, refusal(500, "internal_server_error", "Something went wrong")))),
		OutOfStock:      with(onOrder(providertest.Reply(422, refusal(422, "SERVERS_OUT_OF_STOCK", "No stock availability")))),
		OutOfStockLater: none("Latitude.sh takes a server off its stock before it answers."),
		OfferGone:       changed(func(f *fake) { f.plans = f.plans[2:] }),
		Quota:           none("Latitude.sh tells of no code for a limit of the account."),
		Payment:         with(onOrder(providertest.Reply(402, refusal(402, "payment_required", "Payment required")))),
		Locked:          none("An install goes over SSH, past Latitude.sh, and waits there for another one."),

		Unauthorized:   with(always(providertest.Reply(401, refusal(401, "unauthorized", "Authentication required")))),
		Forbidden:      with(onNext(providertest.Reply(403, refusal(403, "forbidden", "Forbidden")))),
		RateLimited:    with(onNext(providertest.Reply(429, refusal(429, "too_many_requests", "Too many requests")))),
		RateLimitedFor: with(onNext(providertest.Reply(429, refusal(429, "too_many_requests", "Too many requests"), "Retry-After", "7"))),
		Down:           with(always(providertest.Reply(503, "upstream connect error"))),
		Hangs:          arranged(options{timeout: 300 * time.Millisecond}, onNext(providertest.Hang)),
		Garbage:        with(always(providertest.HTML)),
		InstallFails: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, options{host: hosts[1]})
			b.Payload = broken
			return b.Account
		}},
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "latitude", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 4
		attributes(f.servers[0])["primary_ipv4"] = "0.0.0.1" // where nobody is dialled
		return providertest.Mutant{
			Fake: f, OfferID: offerID, MachineID: first, InstallRef: "generation-1", Sold: f.sold,
			Open: func(url string) provider.Client { return open(url, 300*time.Millisecond, plainConfig, "") },
		}
	}})
}

func TestOrdersGoOutOnce(t *testing.T) {
	t.Parallel()
	providertest.SentOnce(t, isOrder, offerID, newFake(), func(url string) provider.Client { return open(url, 300*time.Millisecond, plainConfig, "") })
}

// bodies are those of the answers in a recording, which is YAML with each body on a line of its own.
func bodies(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	found := []string{}
	for line := range strings.Lines(string(text)) {
		body, ok := strings.CutPrefix(strings.TrimSpace(line), "body: '")
		if body, ended := strings.CutSuffix(body, "'"); ok && ended {
			found = append(found, strings.ReplaceAll(body, "''", "'"))
		}
	}
	return found
}

func replay(t *testing.T, body *string) everything {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, *body) }))
	client := open(server.URL, 0, plainConfig, "")
	t.Cleanup(func() { _ = client.Close(); server.Close() })
	return client
}

func TestRecordedPlan(t *testing.T) {
	t.Parallel()
	body := bodies(t, "TestAccPlan_Basic.yaml")[0]
	offers, err := replay(t, &body).Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"c2-small-x86:SAN3": `{"id":"c2-small-x86:SAN3","kind":"metal","region":"san3","providerRegion":"SAN3","name":"c2.small.x86","arch":"amd64","vcpu":4,"memoryGiB":32,` +
			`"disks":[{"sizeGB":500,"count":1,"media":"ssd"}],"gpu":null,"price":{"hourly":"0.22","monthly":"153","setup":null,"currency":"USD","taxIncluded":false},"availability":"available",`,
		"c2-small-x86:FRA": `{"id":"c2-small-x86:FRA",`,
		"c2-small-x86:BGT": `{"id":"c2-small-x86:BGT",`,
		"c2-small-x86:MIA": `{"id":"c2-small-x86:MIA",`,
	} {
		i := slices.IndexFunc(offers, func(o *model.Offer) bool { return o.ID == id })
		if i < 0 {
			t.Fatalf("%s is not among %d offers", id, len(offers))
		}
		got, err := json.Marshal(offers[i])
		if err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
		stock := map[string]model.Availability{"FRA": model.OutOfStock, "BGT": model.Limited, "MIA": model.OutOfStock, "SAN3": model.Available}
		if o := offers[i]; o.Availability != stock[o.ProviderRegion] {
			t.Errorf("%s is %s", id, o.Availability)
		}
	}
}

// TestRecordedServer has the server that Latitude.sh says is on twenty seconds after its order.
func TestRecordedServer(t *testing.T) {
	t.Parallel()
	recorded := bodies(t, "TestAccServer_Basic.yaml")
	body := recorded[1]
	c := replay(t, &body)
	identity, err := c.Identify(t.Context(), "sv_ZWr75Zbjr5A91")
	if err != nil || !slices.Equal(identity.Addresses, []string{"177.54.146.23"}) || identity.Serial != "" {
		t.Errorf("identity %+v, %v", identity, err)
	}
	body = `{"data":[` + strings.TrimSuffix(strings.TrimPrefix(recorded[0], `{"data":`), `,"meta":{}}`) + `],"meta":{}}`
	claim, err := c.FindClaim(t.Context(), "test")
	if err != nil || claim == nil || claim.State != provider.ClaimPending {
		t.Errorf("just ordered: %+v, %v", claim, err)
	}
}

// TestUserDataIsNotLeft: it has the host key in it.
func TestUserDataIsNotLeft(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	b.faults.Add(onOrder(providertest.Reply(422, refusal(422, "SERVERS_OUT_OF_STOCK", "No stock availability"))))
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID}); provider.ClassOf(err) != provider.OutOfStock || len(b.fake.texts) != 0 {
		t.Errorf("after a refusal: %v, %d texts", err, len(b.fake.texts))
	}
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID}); err != nil || len(b.fake.texts) != 1 {
		t.Fatalf("after an order: %v, %d texts", err, len(b.fake.texts))
	}
	b.faults.Add(providertest.Fault{
		Match: func(r *http.Request) bool {
			return r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, "/user_data/")
		},
		Do: providertest.Reply(500, "{}"),
	})
	if err := b.client.Release(t.Context(), operation, "sv_Z4"); err == nil {
		t.Error("the release left user data and does not say so")
	}
	if err := b.client.Release(t.Context(), operation, "sv_Z4"); err != nil || len(b.fake.texts) != 0 {
		t.Errorf("after the release: %v, %d texts", err, len(b.fake.texts))
	}
}

// TestNoStockCostsNoOrder: what the list says is believed before an order goes out.
func TestNoStockCostsNoOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	b.faults.Add(onOrder(providertest.Reply(500, "{}")))
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: operation, OfferID: "c2-small-x86:NYC"}); provider.ClassOf(err) != provider.OutOfStock {
		t.Errorf("%v", err)
	}
}

func TestOtherProjectsAndLocksAreRespected(t *testing.T) {
	t.Parallel()
	b := setup(t, options{change: func(f *fake) {
		attributes(f.servers[0])["project"] = object{"id": "proj_other"}
		attributes(f.create(operation, "c1-small-x86", "SAO"))["locked"] = true
	}})
	if _, err := b.client.Identify(t.Context(), first); provider.ClassOf(err) != provider.NotFound {
		t.Errorf("identify: %v", err)
	}
	if err := b.client.Release(t.Context(), operation, "sv_Z3"); provider.ClassOf(err) != provider.Conflict || b.fake.sold(operation) != 1 {
		t.Errorf("release: %v", err)
	}
}

func TestAFailedDeploymentIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t, options{change: func(f *fake) { attributes(f.create(operation, "c1-small-x86", "SAO"))["status"] = "failed_deployment" }})
	if claim, err := b.client.FindClaim(t.Context(), operation); err != nil || claim == nil || claim.State != provider.ClaimReady {
		t.Fatalf("claim %+v, %v", claim, err)
	}
	if _, err := b.client.Prepare(t.Context(), "sv_Z3"); provider.ClassOf(err) != provider.InstallError {
		t.Errorf("prepare: %v", err)
	}
}

// TestInstallsOnWhatItOrdered meets the machine first while it is deployed, with another host key; then has it take its order's user data as
// cloud-init does, and installs on it. A server that was not ordered is not spoken to.
func TestInstallsOnWhatItOrdered(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := setup(t, options{key: netns.NewKey(), change: func(f *fake) { f.address = host.Address.String() }})
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID}); err != nil {
		t.Fatal(err)
	}
	const machine = "sv_Z4"
	identity, err := b.client.Identify(t.Context(), machine)
	for ; provider.ClassOf(err) == provider.Unavailable && err != nil; identity, err = b.client.Identify(t.Context(), machine) { // it is made after some looks
	}
	if err != nil || !strings.HasPrefix(identity.SSHHostKey, "SHA256:") {
		t.Fatalf("identity %+v, %v", identity, err)
	}
	if p, err := b.client.Prepare(t.Context(), machine); err != nil || p.Ready || p.Wait <= 0 {
		t.Fatalf("prepare while it is deployed: %+v, %v", p, err)
	}
	created := attributes(b.fake.servers[2])
	created["created_at"] = time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339)
	if _, err := b.client.Prepare(t.Context(), machine); provider.ClassOf(err) != provider.SSHHostKey {
		t.Errorf("prepare long after it was deployed: %v", err)
	}
	text, err := base64.StdEncoding.DecodeString(attributes(b.fake.texts[0])["content"].(string))
	if err != nil {
		t.Fatal(err)
	}
	host.TakeUserData(string(text))
	if p, err := b.client.Prepare(t.Context(), machine); err != nil || !p.Ready {
		t.Fatalf("prepare: %+v, %v", p, err)
	}
	ref, err := b.client.Install(t.Context(), machine, payload(1))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(host.Run("cat /etc/bcd/join-token")); got != "join-1" {
		t.Errorf("token %q", got)
	}
	if _, err := b.client.InstallStatus(t.Context(), machine, ref); err != nil {
		t.Error(err)
	}
	if _, err := b.client.Prepare(t.Context(), first); provider.ClassOf(err) != provider.InvalidConfig || !strings.Contains(err.Error(), "hostFingerprints") {
		t.Errorf("a server that nobody ordered: %v", err)
	}
}
