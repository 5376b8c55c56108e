package linode_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/site"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/linode"
	"better/compute/provider/providertest"
)

func TestMain(m *testing.M) { site.Main(m) }

const plainConfig = `{"apiToken":"secret://linode"}`

type options = providertest.Options[*fake]

var rig = &providertest.Rig[*fake]{
	Driver: func(url string, timeout time.Duration) provider.Driver {
		return linode.New(linode.Options{Endpoint: url + "/v4", Networks: providertest.Loopback(), Timeout: timeout})
	},
	Config: plainConfig, Secret: secret,
	Fake: func() *fake {
		f := newFake()
		f.provisioning = 1
		return f
	},
	Description: "testdata/openapi.json",
	OfferID:     "g6-standard-2:us-east", MachineID: "123", Sold: (*fake).sold,
}

func isOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == "/v4/linode/instances"
}

func isChange(r *http.Request) bool { return r.Method != http.MethodGet }

func onOrder(do providertest.Do) providertest.Fault { return providertest.On(isOrder, do) }

// oddOffer has a name that does not do for an id, so that it is looked for.
var oddOffer = options{OfferID: provider.OfferID("g9/9 (beta)", "us-east"), Change: func(f *fake) {
	f.types = append(f.types, linodeType("g9/9 (beta)", "standard", 9), linodeType("g9:9", "standard", 9))
}}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Config{
		Driver:     rig.Driver("http://127.0.0.1:1", 0),
		Configs:    []string{plainConfig, `{"apiToken":"env://LINODE_TOKEN","image":"linode/ubuntu24.04","sshAuthorized":["ssh-ed25519 AAAA me@home"]}`},
		BadConfigs: []string{`{}`, `{"apiToken":"plain"}`, `{"apiToken":"secret://a","image":"debian"}`, `{"apiToken":"secret://a","sshAuthorized":["-----BEGIN OPENSSH PRIVATE KEY-----"]}`},
		Plain:      rig.With(),

		ThreePages:    rig.Changed(func(f *fake) { f.perPage = 4 }),
		EmptyLastPage: rig.Changed(func(f *fake) { f.perPage, f.emptyLastPage = 6, true }),
		RepeatedPage:  rig.Changed(func(f *fake) { f.perPage, f.repeatedPage = 4, true }),
		ExtraFields:   rig.With(providertest.Always(providertest.ExtraFields)),
		MissingPrice:  rig.Changed(func(f *fake) { f.types[0]["price"], f.types[0]["region_prices"] = object{}, []object{} }),
		UnknownGPU: rig.Changed(func(f *fake) {
			f.types[9]["label"], f.types[9]["id"] = "Dedicated 64GB + Frobnicator9 GPU x2", "g9-gpu-frobnicator"
		}),
		OddIDs: rig.Arranged(oddOffer),

		AnswerLost: rig.With(onOrder(providertest.AnswerLost)),
		HalfAnswer: rig.With(onOrder(providertest.HalfAnswer)),
		OrderFails: rig.With(onOrder(providertest.Reply(500, `{"errors":[]}`))),
		Spoilt:     rig.Spoilt(isOrder, oddOffer),
		OutOfStock: rig.Changed(func(f *fake) {
			f.stocks = append(f.stocks, object{"region": "us-east", "plan": "g6-standard-2", "available": false})
		}),
		OutOfStockLater: providertest.None("Linode finds a place for a Linode before it answers."),
		OfferGone:       rig.Changed(func(f *fake) { f.types = f.types[2:] }),
		Quota:           rig.Changed(func(f *fake) { f.limit = 1 }),
		Payment:         rig.With(onOrder(providertest.Reply(403, refusal("", "Please add a payment method to your account.")))),
		Locked:          rig.With(providertest.On(isChange, providertest.Reply(400, refusal("", "Linode busy.")))),

		Unauthorized:   rig.With(providertest.Always(providertest.Reply(401, refusal("", "Invalid Token")))),
		Forbidden:      rig.With(providertest.OnNext(providertest.Reply(403, refusal("", "Your OAuth token is not authorized to use this endpoint.")))),
		RateLimited:    rig.With(providertest.OnNext(providertest.Reply(429, refusal("", "Too many requests")))),
		RateLimitedFor: rig.With(providertest.OnNext(providertest.Reply(429, refusal("", "Too many requests"), "Retry-After", "7"))),
		Down:           rig.With(providertest.Always(providertest.Reply(503, `{}`))),
		Hangs:          rig.Arranged(options{Timeout: 300 * time.Millisecond}, providertest.OnNext(providertest.Hang)),
		Garbage:        rig.With(providertest.Always(providertest.HTML)),
		InstallFails:   rig.Changed(func(f *fake) { f.failRebuilds = true }),
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "linode", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 4
		f.instances[0]["status"] = "offline"
		f.events = []object{rebuildOf(123, "failed")}
		return rig.Mutant(f, "rebuild")
	}})
}

func TestOffersOfATypeInARegion(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const standard = `"kind":"vps","region":"%[1]s","providerRegion":"%[1]s","name":"Linode 4GB","arch":"amd64","vcpu":2,"memoryGiB":4,` +
		`"disks":[{"sizeGB":100,"count":1,"media":"ssd"}],"gpu":null,"price":{"hourly":"%[2]s","monthly":"%[3]s","setup":null,"currency":"USD","taxIncluded":false},"availability":"unknown",`
	providertest.WantOffers(t, offers, map[string]string{
		"g6-standard-2:us-east":       fmt.Sprintf(standard, "us-east", "0.036", "24"),
		"g6-standard-2:id-cgk":        fmt.Sprintf(standard, "id-cgk", "0.0432", "28.8"),
		"g1-gpu-rtx6000-2:us-east":    `"gpu":{"model":"Quadro-RTX-6000","vendor":"nvidia","count":2,"memoryGiB":24},`,
		"g1-gpu-rtx6000-2:eu-central": `"availability":"out_of_stock"`,
		"g1-gpu-rtx6000-2:id-cgk":     "",
		"g7-premium-4:eu-central":     `"availability":"unknown"`,
		"g7-premium-4:us-east":        "",
		"g6-standard-2:old":           "",
	})
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
	client := rig.Open(server.URL, options{})
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
	b := rig.Bench(t, options{Change: func(f *fake) { f.provisioning = 0 }})
	c := b.Client.(provider.Bootstrapper)
	for generation := range 2 {
		if _, err := c.Install(t.Context(), b.MachineID, providertest.Payload(generation)); err != nil {
			t.Fatal(err)
		}
		if p, err := c.Prepare(t.Context(), b.MachineID); err != nil || !p.Ready {
			t.Fatalf("after rebuild %d: %+v, %v", generation, p, err)
		}
	}
	got := b.Fake.userData[123]
	providertest.WantUserData(t, got, 1)
	if len(b.Fake.passwords) != 2 {
		t.Errorf("%d passwords for two rebuilds", len(b.Fake.passwords))
	}
}
