package vultr_test

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

	"go.uber.org/goleak"

	"better/compute/apitest/netns"
	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/providertest"
	"better/compute/provider/vultr"
)

// TestMain makes of the test's own program an agent that does nothing, for as long as it is let.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		time.Sleep(time.Hour)
		return
	}
	goleak.VerifyTestMain(m)
}

const plainConfig = `{"apiKey":"secret://vultr","sshPrivateKey":"secret://vultr-ssh"}`

var operation = "bcd-" + strings.Repeat("0", 26)

// bundle is an account of a test's own.
type bundle struct {
	*providertest.Account
	fake   *fake
	faults *providertest.Faults
}

// setup has the host for all machines of the account; nil is none.
func setup(t *testing.T, timeout time.Duration, host *netns.Host, change func(*fake)) *bundle {
	t.Helper()
	b := &bundle{fake: newFake()}
	b.fake.making = 1
	config, key := plainConfig, netns.NewKey()
	if host != nil {
		b.fake.address = host.Address.String()
		b.fake.machines[0]["main_ip"] = b.fake.address
		config = fmt.Sprintf(`%s,"hostFingerprints":{%q:%q}}`, strings.TrimSuffix(plainConfig, "}"), number(1), host.Fingerprint)
		key = host.PrivateKey
	}
	if change != nil {
		change(b.fake)
	}
	b.faults = providertest.NewFaults(providertest.Contract(t, "testdata/openapi.json", "", b.fake))
	server := httptest.NewServer(b.faults)
	client := open(server.URL, timeout, config, key)
	b.Account = &providertest.Account{Client: client, Secret: secret, OfferID: "vc2-2c-2gb:ewr", Sold: b.fake.sold}
	if host != nil {
		b.MachineID, b.Payload = number(1), payload
	}
	t.Cleanup(func() { _ = client.Close(); server.Close() })
	return b
}

func open(url string, timeout time.Duration, config, key string) provider.Client {
	client, err := driver(url, timeout).Open(context.Background(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(config),
		Secret: func(_ context.Context, reference string) (string, error) {
			if reference == "secret://vultr-ssh" {
				return key, nil
			}
			return secret, nil
		},
	})
	if err != nil {
		panic(err)
	}
	return client
}

func driver(url string, timeout time.Duration) *vultr.Driver {
	return vultr.New(vultr.Options{Endpoint: url + "/v2", Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: timeout})
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

type do = func(http.ResponseWriter, *http.Request, http.Handler)

func isOrder(r *http.Request) bool { return r.Method == http.MethodPost }

func onOrder(d do) providertest.Fault { return providertest.Fault{Match: isOrder, Do: d} }
func onNext(d do) providertest.Fault  { return providertest.Fault{Do: d} }
func always(d do) providertest.Fault  { return providertest.Fault{Always: true, Do: d} }

func none(reason string) providertest.Situation { return providertest.Situation{Reason: reason} }

func TestConformance(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 3)
	arranged := func(timeout time.Duration, change func(*fake), faults ...providertest.Fault) providertest.Situation {
		return providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, timeout, hosts[2], change)
			b.MachineID = ""
			b.faults.Add(faults...)
			return b.Account
		}}
	}
	with := func(faults ...providertest.Fault) providertest.Situation { return arranged(0, nil, faults...) }
	changed := func(change func(*fake)) providertest.Situation { return arranged(0, change) }
	providertest.Run(t, providertest.Config{
		Driver: driver("http://127.0.0.1:1", 0),
		Configs: []string{
			plainConfig,
			`{"apiKey":"env://VULTR_KEY","sshPrivateKey":"vault://vultr#ssh","sshKeyIds":["3b8066a7-b438-455a-9688-44afc9a3597f"],"osId":2284,` +
				`"hostFingerprints":{"metal-cb676a46-66fd-4dfb-b839-443f2e6c0b60":"SHA256:uNiVztksCsDhcc0u9e8BrkpJcqtoUZRiiYKqKpwRbZA"}}`,
		},
		BadConfigs: []string{
			`{}`, `{"apiKey":"plain","sshPrivateKey":"secret://b"}`, `{"apiKey":"secret://a"}`, `{"apiKey":"secret://a","sshPrivateKey":"secret://b","osId":0}`,
			`{"apiKey":"secret://a","sshPrivateKey":"secret://b","hostFingerprints":{"a":"b"}}`,
		},
		Plain: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account { t.Helper(); return setup(t, 0, hosts[0], nil).Account }},

		ThreePages:    changed(func(f *fake) { f.perPage = 4 }),
		EmptyLastPage: changed(func(f *fake) { f.perPage, f.emptyLastPage = 6, true }),
		RepeatedPage:  changed(func(f *fake) { f.perPage, f.repeatedPage = 4, true }),
		ExtraFields:   with(always(providertest.ExtraFields)),
		MissingPrice:  changed(func(f *fake) { delete(f.plans[0], "monthly_cost") }),
		UnknownGPU:    changed(func(f *fake) { f.plans[0]["gpu_type"], f.plans[0]["gpu_vram_gb"] = "ACME_FROBNICATOR_9", 7 }),
		OddIDs: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, 0, hosts[2], func(f *fake) { f.plans = append(f.plans, plan("vc9/9 (beta)", 9), plan("vc9:9", 9)) })
			b.OfferID, b.MachineID = provider.OfferID("vc9/9 (beta)", "ewr"), ""
			return b.Account
		}},

		AnswerLost:      with(onOrder(providertest.AnswerLost)),
		HalfAnswer:      with(onOrder(providertest.HalfAnswer)),
		OrderFails:      with(onOrder(providertest.Reply(500, refusal(500, "Server add failed")))),
		OutOfStock:      changed(func(f *fake) { f.soldOut = []string{"vc2-2c-2gb"} }),
		OutOfStockLater: none("Vultr finds a place for a machine before it answers."),
		OfferGone: changed(func(f *fake) {
			f.plans = slices.DeleteFunc(f.plans, func(p object) bool { return p["id"] == "vc2-2c-2gb" })
		}),
		Quota:   changed(func(f *fake) { f.limit = 2 }),
		Payment: with(onOrder(providertest.Reply(400, refusal(400, "Your account does not have enough credit.")))),
		Locked:  none("An install goes over SSH, past Vultr, and waits there for another one."),

		Unauthorized:   with(always(providertest.Reply(401, refusal(401, "Invalid API token.")))),
		Forbidden:      with(onNext(providertest.Reply(403, refusal(403, "Unauthorized")))),
		RateLimited:    with(onNext(providertest.Reply(429, refusal(429, "Rate limit exceeded")))),
		RateLimitedFor: with(onNext(providertest.Reply(429, refusal(429, "Rate limit exceeded"), "Retry-After", "7"))),
		Down:           with(always(providertest.Reply(503, `{}`))),
		Hangs:          arranged(300*time.Millisecond, nil, onNext(providertest.Hang)),
		Garbage:        with(always(providertest.HTML)),
		InstallFails: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, 0, hosts[1], nil)
			b.Payload = broken
			return b.Account
		}},
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	key := netns.NewKey()
	providertest.Mutate(t, providertest.Mutants{Provider: "vultr", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 4
		f.machines[0]["main_ip"] = "0.0.0.1" // where nobody is dialled
		return providertest.Mutant{
			Fake: f, OfferID: "vc2-2c-2gb:ewr", MachineID: number(1), InstallRef: "generation-1", Sold: f.sold,
			Open: func(url string) provider.Client { return open(url, 300*time.Millisecond, plainConfig, key) },
		}
	}})
}

func TestOffersOfAPlan(t *testing.T) {
	t.Parallel()
	b := setup(t, 0, nil, func(f *fake) { f.soldOut = []string{"vc2-3c-3gb"} })
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"vc2-2c-2gb:AMS": `{"id":"vc2-2c-2gb:AMS","kind":"vps","region":"ams","providerRegion":"AMS","name":"vc2-2c-2gb","arch":"amd64","vcpu":2,"memoryGiB":2,` +
			`"disks":[{"sizeGB":50,"count":1,"media":"ssd"}],"gpu":null,"price":{"hourly":null,"monthly":"10","setup":null,"currency":"USD","taxIncluded":false},"availability":"AVAILABLE",`,
		"vc2-3c-3gb:ewr":                 `"availability":"OUT_OF_STOCK"`,
		"vcg-a100-24c-240g-160vram:ewr":  `"gpu":{"model":"A100-80GB","vendor":"nvidia","count":2,"memoryGiB":80}`,
		"vcg-a16-2c-8g-2vram:ewr":        `"gpu":null`,
		"vbm-4c-32gb:ewr":                `"kind":"metal","region":"ewr","providerRegion":"ewr","name":"vbm-4c-32gb","arch":"amd64","vcpu":8,"memoryGiB":32,"disks":[{"sizeGB":240,"count":2,"media":"ssd"}],"gpu":null,`,
		"vbm-112c-2048gb-8-h100-gpu:ewr": `"gpu":{"model":"H100","vendor":"nvidia","count":8,"memoryGiB":80}`,
	} {
		i := slices.IndexFunc(offers, func(o *model.Offer) bool { return o.ID == id })
		if i < 0 {
			t.Errorf("%s is not among %d offers", id, len(offers))
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

// TestRefusals: there are no codes, and the words tell refusals apart.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]provider.Class{
		"Invalid os_id.":                               provider.InvalidConfig,
		"Invalid SSH key.":                             provider.InvalidConfig,
		"Invalid region chosen.":                       provider.OfferGone,
		"Server add failed: this plan is out of stock": provider.OutOfStock,
		"You have reached the maximum monthly fee limit for this account.": provider.Quota,
		"Please add a payment method before deploying.":                    provider.Payment,
		"Unable to do so: the server is currently locked":                  provider.Conflict,
		"Something new": provider.Fatal,
	} {
		b := setup(t, 0, nil, nil)
		b.faults.Add(onOrder(providertest.Reply(400, refusal(400, message))))
		_, err := b.Client.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: operation, OfferID: b.OfferID})
		if provider.ClassOf(err) != want {
			t.Errorf("%s: %v, want class %s", message, err, want)
		}
	}
}

// TestInstallsOnBareMetalThatItOrdered has a machine take its order's user data as cloud-init does, and installs on it. A machine that was
// not ordered is not spoken to.
func TestInstallsOnBareMetalThatItOrdered(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := setup(t, 0, nil, func(f *fake) { f.address = host.Address.String() })
	c := b.Client.(interface {
		provider.Bootstrapper
		provider.Claimant
	})
	if _, err := c.Order(t.Context(), provider.Order{OperationID: operation, OfferID: "vbm-4c-32gb:ewr"}); err != nil {
		t.Fatal(err)
	}
	host.TakeUserData(b.fake.userData[number(3)])
	id := "metal-" + number(3)
	claim, err := c.FindClaim(t.Context(), operation)
	for ; err == nil && claim != nil && claim.State == provider.ClaimPending; claim, err = c.FindClaim(t.Context(), operation) { // it is made after some looks
	}
	if err != nil || claim == nil || claim.MachineID != id {
		t.Fatalf("claim %+v, %v", claim, err)
	}
	if identity, err := c.Identify(t.Context(), id); err != nil || !strings.HasPrefix(identity.SSHHostKey, "SHA256:") {
		t.Fatalf("identity %+v, %v", identity, err)
	}
	if p, err := c.Prepare(t.Context(), id); err != nil || !p.Ready {
		t.Fatalf("prepare: %+v, %v", p, err)
	}
	if _, err := c.Install(t.Context(), id, payload(1)); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(host.Run("cat /etc/bcd/join-token")); got != "join-1" {
		t.Errorf("token %q", got)
	}
	if _, err := c.Prepare(t.Context(), number(1)); provider.ClassOf(err) != provider.InvalidConfig || !strings.Contains(err.Error(), "hostFingerprints") {
		t.Errorf("a machine that nobody ordered: %v", err)
	}
	if err := c.Release(t.Context(), operation, id); err != nil || b.fake.sold(operation) != 0 {
		t.Errorf("release: %v", err)
	}
}
