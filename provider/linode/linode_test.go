package linode_test

import (
	"context"
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

	"better/compute/apitest/site"
	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/linode"
	"better/compute/provider/providertest"
)

func TestMain(m *testing.M) { site.Main(m) }

const plainConfig = `{"apiToken":"secret://linode"}`

// bundle is an account of a test's own.
type bundle struct {
	*providertest.Account
	fake   *fake
	faults *providertest.Faults
}

func setup(t *testing.T, timeout time.Duration, change func(*fake)) *bundle {
	t.Helper()
	b := &bundle{fake: newFake()}
	b.fake.provisioning = 1
	if change != nil {
		change(b.fake)
	}
	b.faults = providertest.NewFaults(providertest.Contract(t, "testdata/openapi.json", "", b.fake))
	server := httptest.NewServer(b.faults)
	client := open(server.URL, timeout)
	b.Account = &providertest.Account{
		Client: client, Secret: secret, OfferID: "g6-standard-2:us-east", MachineID: "123", Sold: b.fake.sold, Payload: payload,
	}
	t.Cleanup(func() { _ = client.Close(); server.Close() })
	return b
}

func open(url string, timeout time.Duration) provider.Client {
	client, err := driver(url, timeout).Open(context.Background(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(plainConfig),
		Secret: func(context.Context, string) (string, error) { return secret, nil },
	})
	if err != nil {
		panic(err)
	}
	return client
}

func driver(url string, timeout time.Duration) *linode.Driver {
	return linode.New(linode.Options{Endpoint: url + "/v4", Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: timeout})
}

func payload(generation int) provider.Payload {
	return provider.Payload{
		Generation: generation, JoinURL: "https://192.0.2.1:8443", CAPin: "sha256:" + strings.Repeat("0", 64), Token: fmt.Sprintf("join-%d", generation),
		AgentBinary: func(arch string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("agent of " + arch)), nil
		},
	}
}

func with(faults ...providertest.Fault) providertest.Situation { return arranged(0, nil, faults...) }

func changed(change func(*fake)) providertest.Situation { return arranged(0, change) }

func arranged(timeout time.Duration, change func(*fake), faults ...providertest.Fault) providertest.Situation {
	return providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
		t.Helper()
		b := setup(t, timeout, change)
		b.faults.Add(faults...)
		return b.Account
	}}
}

func isOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == "/v4/linode/instances"
}

func isChange(r *http.Request) bool { return r.Method != http.MethodGet }

type do = func(http.ResponseWriter, *http.Request, http.Handler)

func onOrder(d do) providertest.Fault { return providertest.Fault{Match: isOrder, Do: d} }
func onNext(d do) providertest.Fault  { return providertest.Fault{Do: d} }
func always(d do) providertest.Fault  { return providertest.Fault{Always: true, Do: d} }

func none(reason string) providertest.Situation { return providertest.Situation{Reason: reason} }

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Config{
		Driver:     driver("http://127.0.0.1:1", 0),
		Configs:    []string{plainConfig, `{"apiToken":"env://LINODE_TOKEN","image":"linode/ubuntu24.04","sshAuthorized":["ssh-ed25519 AAAA me@home"]}`},
		BadConfigs: []string{`{}`, `{"apiToken":"plain"}`, `{"apiToken":"secret://a","image":"debian"}`, `{"apiToken":"secret://a","sshAuthorized":["-----BEGIN OPENSSH PRIVATE KEY-----"]}`},
		Plain:      with(),

		ThreePages:    changed(func(f *fake) { f.perPage = 4 }),
		EmptyLastPage: changed(func(f *fake) { f.perPage, f.emptyLastPage = 6, true }),
		RepeatedPage:  changed(func(f *fake) { f.perPage, f.repeatedPage = 4, true }),
		ExtraFields:   with(always(providertest.ExtraFields)),
		MissingPrice:  changed(func(f *fake) { f.types[0]["price"], f.types[0]["region_prices"] = object{}, []object{} }),
		UnknownGPU: changed(func(f *fake) {
			f.types[9]["label"], f.types[9]["id"] = "Dedicated 64GB + Frobnicator9 GPU x2", "g9-gpu-frobnicator"
		}),
		OddIDs: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, 0, func(f *fake) {
				f.types = append(f.types, linodeType("g9/9 (beta)", "standard", 9), linodeType("g9:9", "standard", 9))
			})
			b.OfferID = provider.OfferID("g9/9 (beta)", "us-east")
			return b.Account
		}},

		AnswerLost: with(onOrder(providertest.AnswerLost)),
		HalfAnswer: with(onOrder(providertest.HalfAnswer)),
		OrderFails: with(onOrder(providertest.Reply(500, `{"errors":[]}`))),
		OutOfStock: changed(func(f *fake) {
			f.stocks = append(f.stocks, object{"region": "us-east", "plan": "g6-standard-2", "available": false})
		}),
		OutOfStockLater: none("Linode finds a place for a Linode before it answers."),
		OfferGone:       changed(func(f *fake) { f.types = f.types[2:] }),
		Quota:           changed(func(f *fake) { f.limit = 1 }),
		Payment:         with(onOrder(providertest.Reply(403, refusal("", "Please add a payment method to your account.")))),
		Locked:          with(providertest.Fault{Match: isChange, Do: providertest.Reply(400, refusal("", "Linode busy."))}),

		Unauthorized:   with(always(providertest.Reply(401, refusal("", "Invalid Token")))),
		Forbidden:      with(onNext(providertest.Reply(403, refusal("", "Your OAuth token is not authorized to use this endpoint.")))),
		RateLimited:    with(onNext(providertest.Reply(429, refusal("", "Too many requests")))),
		RateLimitedFor: with(onNext(providertest.Reply(429, refusal("", "Too many requests"), "Retry-After", "7"))),
		Down:           with(always(providertest.Reply(503, `{}`))),
		Hangs:          arranged(300*time.Millisecond, nil, onNext(providertest.Hang)),
		Garbage:        with(always(providertest.HTML)),
		InstallFails:   changed(func(f *fake) { f.failRebuilds = true }),
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "linode", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 4
		f.instances[0]["status"] = "offline"
		f.events = []object{rebuildOf(123, "failed")}
		return providertest.Mutant{
			Fake: f, OfferID: "g6-standard-2:us-east", MachineID: "123", InstallRef: "rebuild", Sold: f.sold,
			Open: func(url string) provider.Client { return open(url, 300*time.Millisecond) },
		}
	}})
}

func TestOffersOfATypeInARegion(t *testing.T) {
	t.Parallel()
	b := setup(t, 0, nil)
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const standard = `"kind":"vps","region":"%[1]s","providerRegion":"%[1]s","name":"Linode 4GB","arch":"amd64","vcpu":2,"memoryGiB":4,` +
		`"disks":[{"sizeGB":100,"count":1,"media":"ssd"}],"gpu":null,"price":{"hourly":"%[2]s","monthly":"%[3]s","setup":null,"currency":"USD","taxIncluded":false},"availability":"unknown",`
	for id, want := range map[string]string{
		"g6-standard-2:us-east":       fmt.Sprintf(standard, "us-east", "0.036", "24"),
		"g6-standard-2:id-cgk":        fmt.Sprintf(standard, "id-cgk", "0.0432", "28.8"),
		"g1-gpu-rtx6000-2:us-east":    `"gpu":{"model":"Quadro-RTX-6000","vendor":"nvidia","count":2,"memoryGiB":24},`,
		"g1-gpu-rtx6000-2:eu-central": `"availability":"out_of_stock"`,
		"g1-gpu-rtx6000-2:id-cgk":     "",
		"g7-premium-4:eu-central":     `"availability":"unknown"`,
		"g7-premium-4:us-east":        "",
		"g6-standard-2:old":           "",
	} {
		i := slices.IndexFunc(offers, func(o *model.Offer) bool { return o.ID == id })
		if i < 0 || want == "" {
			if i >= 0 || want != "" {
				t.Errorf("%s: at %d of %d offers", id, i, len(offers))
			}
			continue
		}
		got, err := json.Marshal(offers[i])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(strings.ToLower(string(got)), strings.ToLower(want)) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestRecordings reads what Linode itself has answered.
func TestRecordings(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/recordings.json")
	if err != nil {
		t.Fatal(err)
	}
	var answers map[string]json.RawMessage
	if err := json.Unmarshal(text, &answers); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, known := answers[strings.TrimPrefix(r.URL.Path, "/v4")+"?page="+r.URL.Query().Get("page")]
		if !known {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(body)
	}))
	defer server.Close()
	client := open(server.URL, 0)
	defer func() { _ = client.Close() }()
	offers, err := client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.CheckOffers(offers); err != nil {
		t.Error(err)
	}
	priced, gpus, stock := 0, map[string]int{}, map[model.Availability]int{}
	for _, o := range offers {
		if o.Price != nil && o.Price.Hourly != nil {
			priced++
		}
		if o.GPU != nil {
			gpus[o.GPU.Model]++
		}
		stock[o.Availability]++
	}
	t.Logf("%d offers, %d with prices, GPUs %v, stock %v", len(offers), priced, gpus, stock)
	if len(offers) < 500 || priced != len(offers) || gpus["Quadro-RTX-6000"] == 0 || stock[model.Available] == 0 || stock[model.OutOfStock] == 0 || stock[model.AvailabilityUnknown] == 0 {
		t.Error("the recordings give other offers than that")
	}
	machines, err := client.Machines(t.Context())
	if err != nil || len(machines) != 1 || machines[0].ID != "82372946" || machines[0].Region != "us-sea" || len(machines[0].Addresses) != 2 {
		t.Errorf("machines %+v, %v", machines, err)
	}
}

// TestUserDataIsDelivered looks at what a rebuild carries: the token of the last delivery, and a password that nobody has had before.
func TestUserDataIsDelivered(t *testing.T) {
	t.Parallel()
	b := setup(t, 0, func(f *fake) { f.provisioning = 0 })
	c := b.Client.(provider.Bootstrapper)
	for generation := range 2 {
		if _, err := c.Install(t.Context(), b.MachineID, payload(generation)); err != nil {
			t.Fatal(err)
		}
		if p, err := c.Prepare(t.Context(), b.MachineID); err != nil || !p.Ready {
			t.Fatalf("after rebuild %d: %+v, %v", generation, p, err)
		}
	}
	got := b.fake.userData[123]
	if !strings.HasPrefix(got, "#!/bin/sh\n") || !strings.Contains(got, "join-1") || strings.Contains(got, "join-0") || !strings.Contains(got, "https://192.0.2.1:8443/v1/agent") {
		t.Errorf("user data %s", got)
	}
	if len(b.fake.passwords) != 2 {
		t.Errorf("%d passwords for two rebuilds", len(b.fake.passwords))
	}
}
