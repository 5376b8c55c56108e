package hetznercloud_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/site"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/hetznercloud"
	"better/compute/provider/providertest"
)

func TestMain(m *testing.M) { site.Main(m) }

const plainConfig = `{"apiToken":"secret://hetzner"}`

type options = providertest.Options[*fake]

var rig = &providertest.Rig[*fake]{
	Driver: func(url string, timeout time.Duration) provider.Driver {
		return hetznercloud.New(hetznercloud.Options{Endpoint: url + "/v1", Networks: providertest.Loopback(), Timeout: timeout})
	},
	Config: plainConfig, Secret: secret,
	Fake: func() *fake {
		f := newFake()
		f.initializing = 1
		return f
	},
	Description: "testdata/openapi.json", Prefix: "/v1",
	OfferID: "cpx22:fsn1", MachineID: fmt.Sprint(newFake().servers[0]["id"]), Sold: (*fake).sold,
}

func isOrder(r *http.Request) bool  { return r.Method == http.MethodPost && r.URL.Path == "/v1/servers" }
func isChange(r *http.Request) bool { return r.Method != http.MethodGet }

func onOrder(do providertest.Do) providertest.Fault { return providertest.On(isOrder, do) }

func threePerPage(f *fake) { f.perPage = 3 }

func odd(f *fake) {
	f.types = append(f.types, serverType(99, "cpx/99 (beta)", "x86", 4))
	f.types = append(f.types, serverType(98, "cpx:98", "x86", 4))
}

// oddOffer has a name that does not do for an id, so that it is looked for.
var oddOffer = options{OfferID: provider.OfferID("cpx/99 (beta)", "fsn1"), Change: odd}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Config{
		Driver:     rig.Driver("http://127.0.0.1:1", 0),
		Configs:    []string{plainConfig, `{"apiToken":"env://HCLOUD_TOKEN","image":"ubuntu-24.04","sshKeyIds":[1,2]}`},
		BadConfigs: []string{`{}`, `{"apiToken":"plain"}`, `{"apiToken":7}`, `{"apiToken":"secret://a","endpoint":"https://evil.test"}`, `{"apiToken":"secret://a","sshKeyIds":[0]}`},
		Plain:      rig.With(),

		ThreePages:    rig.Changed(threePerPage),
		EmptyLastPage: rig.Changed(func(f *fake) { f.perPage, f.emptyLastPage = 5, true }),
		RepeatedPage:  rig.Changed(func(f *fake) { f.perPage, f.repeatedPage = 3, true }),
		ExtraFields:   rig.With(providertest.Always(providertest.ExtraFields)),
		MissingPrice:  rig.Changed(func(f *fake) { f.types[0]["prices"] = []object{} }),
		UnknownGPU:    providertest.None("Hetzner Cloud has no GPUs."),
		OddIDs:        rig.Arranged(oddOffer),

		AnswerLost:      rig.With(onOrder(providertest.AnswerLost)),
		HalfAnswer:      rig.With(onOrder(providertest.HalfAnswer)),
		OrderFails:      rig.With(onOrder(providertest.Reply(500, refusal("server_error")))),
		Spoilt:          rig.Spoilt(isOrder, oddOffer),
		OutOfStock:      rig.With(onOrder(providertest.Reply(412, refusal("resource_unavailable")))),
		OutOfStockLater: providertest.None("Hetzner Cloud finds a place for a server before it answers."),
		OfferGone:       rig.Changed(func(f *fake) { f.types = f.types[2:] }),
		Quota:           rig.Changed(func(f *fake) { f.limit = 1 }),
		Payment:         providertest.None("Hetzner Cloud bills later, and never asks for money first."),
		Locked:          rig.With(providertest.On(isChange, providertest.Reply(423, refusal("locked")))),

		Unauthorized:   rig.With(providertest.Always(providertest.Reply(401, refusal("unauthorized")))),
		Forbidden:      rig.With(providertest.OnNext(providertest.Reply(403, refusal("forbidden")))),
		RateLimited:    rig.With(providertest.OnNext(providertest.Reply(429, refusal("rate_limit_exceeded")))),
		RateLimitedFor: rig.With(providertest.OnNext(providertest.Reply(429, refusal("rate_limit_exceeded"), "Retry-After", "7"))),
		Down:           rig.With(providertest.Always(providertest.Reply(503, refusal("unavailable")))),
		Hangs:          rig.Arranged(options{Timeout: 300 * time.Millisecond}, providertest.OnNext(providertest.Hang)),
		Garbage:        rig.With(providertest.Always(providertest.HTML)),
		InstallFails:   rig.Changed(func(f *fake) { f.failRebuilds = true }),
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "hetzner-cloud", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 3
		machine := f.servers[0]["id"].(int64)
		action := f.action("rebuild_server", machine, "success")
		return rig.Mutant(f, fmt.Sprintf("action-%d", action["id"]))
	}})
}

func TestOfferOfATypeInALocation(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(offers, func(o *model.Offer) bool { return o.ID == "cax11:hel1" })
	if i < 0 {
		t.Fatalf("cax11:hel1 is not among %d offers", len(offers))
	}
	got, err := json.Marshal(offers[i])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"cax11:hel1","kind":"vps","region":"hel1","providerRegion":"hel1","name":"CAX11","arch":"arm64","vcpu":2,"memoryGiB":4,` +
		`"disks":[{"sizeGB":80,"count":1,"media":"nvme"}],"gpu":null,"price":{"hourly":"0.002","monthly":"2.49","setup":null,"currency":"EUR","taxIncluded":false},` +
		`"availability":"available",`
	if !strings.HasPrefix(string(got), want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestUserDataIsDelivered looks at what a rebuild carries: the token of the last delivery, and the digest of this server's agent.
func TestUserDataIsDelivered(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
	c := b.Client.(provider.Bootstrapper)
	for generation := range 2 {
		if _, err := c.Install(t.Context(), b.MachineID, providertest.Payload(generation)); err != nil {
			t.Fatal(err)
		}
	}
	got := b.Fake.userData[b.Fake.servers[0]["id"].(int64)]
	providertest.WantUserData(t, got, 1)
}

// TestKeysOfOrderedServers: the SDK sends ids as numbers, which Hetzner takes and its description leaves out; so no contract here.
func TestKeysOfOrderedServers(t *testing.T) {
	t.Parallel()
	sent := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent <- string(body)
		refuse(w, http.StatusConflict, "uniqueness_error")
	}))
	defer server.Close()
	client := rig.Open(server.URL, options{Config: `{"apiToken":"secret://hetzner","image":"ubuntu-24.04","sshKeyIds":[23,42]}`})
	defer func() { _ = client.Close() }()
	_, err := client.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: "cpx22:fsn1"})
	if provider.ClassOf(err) != provider.UnknownOutcome {
		t.Errorf("a name that is taken: %v", err)
	}
	if got := <-sent; !strings.Contains(got, `"ssh_keys":[23,42]`) || !strings.Contains(got, `"image":"ubuntu-24.04"`) || !strings.Contains(got, `"name":"bcd-1"`) {
		t.Errorf("sent %s", got)
	}
}

// TestProtectedServers: an account must not be cut off for what one server is protected against.
func TestProtectedServers(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{Change: func(f *fake) { f.servers[0]["labels"] = object{"bcd-operation": "bcd-1"} }})
	b.Faults.Add(providertest.Fault{Match: isChange, Always: true, Do: providertest.Reply(403, refusal("protected"))})
	if err := b.Client.(provider.Orderer).Release(t.Context(), "bcd-1", b.MachineID); provider.ClassOf(err) != provider.Fatal {
		t.Errorf("release: %v", err)
	}
	b.Fake.servers[0]["protection"] = object{"delete": true, "rebuild": true}
	if _, err := b.Client.(provider.Bootstrapper).Prepare(t.Context(), b.MachineID); provider.ClassOf(err) != provider.Fatal || !strings.Contains(err.Error(), "protect") {
		t.Errorf("prepare: %v", err)
	}
}

func TestOrdersAreSentOnce(t *testing.T) {
	t.Parallel()
	rig.SentOnce(t, isOrder)
}
