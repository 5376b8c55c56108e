package latitude_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/netns"
	"better/compute/internal/leaktest"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/latitude"
	"better/compute/provider/providertest"
)

func TestMain(m *testing.M) { providertest.Main(m, func(m *testing.M) { leaktest.Main(m) }) }

const (
	plainConfig = `{"apiToken":"secret://lat","projectId":"proj_gXQvNedwV0zpb","sshPrivateKey":"secret://lat-ssh"}`
	offerID     = "c2-small-x86:SAO"
	first       = "sv_Z1" // the server that is there
)

// operation is one whose server is known as ours.
var operation = "bcd-" + strings.Repeat("0", 26)

type options = providertest.Options[*fake]

var rig = &providertest.Rig[*fake]{
	Driver: func(url string, timeout time.Duration) provider.Driver {
		return latitude.New(latitude.Options{Endpoint: url, Networks: providertest.Loopback(), Timeout: timeout})
	},
	Config: plainConfig, SSHKey: "secret://lat-ssh", Secret: secret,
	Fake:    newFake,
	OfferID: offerID, MachineID: first, Sold: (*fake).sold,
	Place: func(f *fake, address string) {
		f.address = address
		attributes(f.servers[0])["primary_ipv4"] = address
	},
}

func isOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == "/servers"
}

func onOrder(do providertest.Do) providertest.Fault { return providertest.On(isOrder, do) }

// oddOffer has a name that does not do for an id, so that it is looked for.
var oddOffer = options{OfferID: provider.OfferID("s/9 (beta)", "SAO"), Change: func(f *fake) { f.plans = append(f.plans, plan("s/9 (beta)", 9), plan("s:9", 9)) }}

func TestConformance(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	providertest.Run(t, providertest.Config{
		Driver: rig.Driver("http://127.0.0.1:1", 0),
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
		Plain: rig.Arranged(options{Host: hosts[0]}),

		ThreePages:    rig.Changed(func(f *fake) { f.perPage = 4 }),
		EmptyLastPage: rig.Changed(func(f *fake) { f.perPage = 11 }), // every list ends so
		RepeatedPage:  rig.Changed(func(f *fake) { f.perPage, f.repeatedPage = 4, true }),
		ExtraFields:   rig.With(providertest.Always(providertest.ExtraFields)),
		MissingPrice: rig.Changed(func(f *fake) {
			attributes(f.plans[0])["regions"].([]object)[0]["pricing"] = object{}
		}),
		UnknownGPU: rig.Changed(func(f *fake) {
			attributes(f.plans[9])["specs"].(object)["gpu"] = object{"count": 2, "type": "Acme Frobnicator 9"}
		}),
		OddIDs: rig.Arranged(oddOffer),

		AnswerLost:      rig.With(onOrder(providertest.AnswerLost)),
		HalfAnswer:      rig.With(onOrder(providertest.HalfAnswer)),
		OrderFails:      rig.With(onOrder(providertest.Reply(500, refusal(500, "internal_server_error", "Something went wrong")))),
		Spoilt:          rig.Spoilt(isOrder, oddOffer),
		OutOfStock:      rig.With(onOrder(providertest.Reply(422, refusal(422, "SERVERS_OUT_OF_STOCK", "No stock availability")))),
		OutOfStockLater: providertest.None("Latitude.sh takes a server off its stock before it answers."),
		OfferGone:       rig.Changed(func(f *fake) { f.plans = f.plans[2:] }),
		Quota:           providertest.None("Latitude.sh tells of no code for a limit of the account."),
		Payment:         rig.With(onOrder(providertest.Reply(402, refusal(402, "payment_required", "Payment required")))),
		Locked:          providertest.None("An install goes over SSH, past Latitude.sh, and waits there for another one."),

		Unauthorized:   rig.With(providertest.Always(providertest.Reply(401, refusal(401, "unauthorized", "Authentication required")))),
		Forbidden:      rig.With(providertest.OnNext(providertest.Reply(403, refusal(403, "forbidden", "Forbidden")))),
		RateLimited:    rig.With(providertest.OnNext(providertest.Reply(429, refusal(429, "too_many_requests", "Too many requests")))),
		RateLimitedFor: rig.With(providertest.OnNext(providertest.Reply(429, refusal(429, "too_many_requests", "Too many requests"), "Retry-After", "7"))),
		Down:           rig.With(providertest.Always(providertest.Reply(503, "upstream connect error"))),
		Hangs:          rig.Arranged(options{Timeout: 300 * time.Millisecond}, providertest.OnNext(providertest.Hang)),
		Garbage:        rig.With(providertest.Always(providertest.HTML)),
		InstallFails:   rig.Arranged(options{Host: hosts[1], Payload: providertest.BrokenPayload}),
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "latitude", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 4
		attributes(f.servers[0])["primary_ipv4"] = "0.0.0.1" // where nobody is dialled
		return rig.Mutant(f, "generation-1")
	}})
}

func TestOrdersGoOutOnce(t *testing.T) {
	t.Parallel()
	rig.SentOnce(t, isOrder)
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

func replay(t *testing.T, body *string) providertest.Whole {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, *body) }))
	client := rig.Open(server.URL, options{}).(providertest.Whole)
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
	b := rig.Bench(t, options{})
	b.Faults.Add(onOrder(providertest.Reply(422, refusal(422, "SERVERS_OUT_OF_STOCK", "No stock availability"))))
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID}); provider.ClassOf(err) != provider.OutOfStock || len(b.Fake.texts) != 0 {
		t.Errorf("after a refusal: %v, %d texts", err, len(b.Fake.texts))
	}
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID}); err != nil || len(b.Fake.texts) != 1 {
		t.Fatalf("after an order: %v, %d texts", err, len(b.Fake.texts))
	}
	b.Faults.Add(providertest.Fault{
		Match: func(r *http.Request) bool {
			return r.Method == http.MethodDelete && strings.HasPrefix(r.URL.Path, "/user_data/")
		},
		Do: providertest.Reply(500, "{}"),
	})
	if err := b.Whole().Release(t.Context(), operation, "sv_Z4"); err == nil {
		t.Error("the release left user data and does not say so")
	}
	if err := b.Whole().Release(t.Context(), operation, "sv_Z4"); err != nil || len(b.Fake.texts) != 0 {
		t.Errorf("after the release: %v, %d texts", err, len(b.Fake.texts))
	}
}

// TestNoStockCostsNoOrder: what the list says is believed before an order goes out.
func TestNoStockCostsNoOrder(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
	b.Faults.Add(onOrder(providertest.Reply(500, "{}")))
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: operation, OfferID: "c2-small-x86:NYC"}); provider.ClassOf(err) != provider.OutOfStock {
		t.Errorf("%v", err)
	}
}

func TestOtherProjectsAndLocksAreRespected(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{Change: func(f *fake) {
		attributes(f.servers[0])["project"] = object{"id": "proj_other"}
		attributes(f.create(operation, "c1-small-x86", "SAO"))["locked"] = true
	}})
	if _, err := b.Whole().Identify(t.Context(), first); provider.ClassOf(err) != provider.NotFound {
		t.Errorf("identify: %v", err)
	}
	if err := b.Whole().Release(t.Context(), operation, "sv_Z3"); provider.ClassOf(err) != provider.Conflict || b.Fake.sold(operation) != 1 {
		t.Errorf("release: %v", err)
	}
}

func TestAFailedDeploymentIsTold(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{Change: func(f *fake) { attributes(f.create(operation, "c1-small-x86", "SAO"))["status"] = "failed_deployment" }})
	if claim, err := b.Whole().FindClaim(t.Context(), operation); err != nil || claim == nil || claim.State != provider.ClaimReady {
		t.Fatalf("claim %+v, %v", claim, err)
	}
	if _, err := b.Whole().Prepare(t.Context(), "sv_Z3"); provider.ClassOf(err) != provider.InstallError {
		t.Errorf("prepare: %v", err)
	}
}

// TestInstallsOnWhatItOrdered meets the machine first while it is deployed, with another host key; then has it take its order's user data as
// cloud-init does, and installs on it. A server that was not ordered is not spoken to.
func TestInstallsOnWhatItOrdered(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := rig.Bench(t, options{Change: func(f *fake) { f.address = host.Address.String() }})
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID}); err != nil {
		t.Fatal(err)
	}
	const machine = "sv_Z4"
	identity, err := b.Whole().Identify(t.Context(), machine)
	for ; provider.ClassOf(err) == provider.Unavailable && err != nil; identity, err = b.Whole().Identify(t.Context(), machine) { // it is made after some looks
	}
	if err != nil || !strings.HasPrefix(identity.SSHHostKey, "SHA256:") {
		t.Fatalf("identity %+v, %v", identity, err)
	}
	if p, err := b.Whole().Prepare(t.Context(), machine); err != nil || p.Ready || p.Wait <= 0 {
		t.Fatalf("prepare while it is deployed: %+v, %v", p, err)
	}
	created := attributes(b.Fake.servers[2])
	created["created_at"] = time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339)
	if _, err := b.Whole().Prepare(t.Context(), machine); provider.ClassOf(err) != provider.SSHHostKey {
		t.Errorf("prepare long after it was deployed: %v", err)
	}
	text, err := base64.StdEncoding.DecodeString(attributes(b.Fake.texts[0])["content"].(string))
	if err != nil {
		t.Fatal(err)
	}
	host.TakeUserData(string(text))
	providertest.InstallsOnOrdered(t, b.Whole(), host, machine, first)
}
