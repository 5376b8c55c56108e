package digitalocean_test

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

	"better/compute/apitest/netns"
	"better/compute/apitest/site"
	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/digitalocean"
	"better/compute/provider/providertest"
)

// TestMain makes of the test's own program an agent that does nothing, for as long as it is let.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		time.Sleep(time.Hour)
		return
	}
	site.Main(m)
}

const (
	plainConfig = `{"apiToken":"secret://do","sshPrivateKey":"secret://do-ssh","sshKeyIds":[512189]}`
	first       = 3164444 // the droplet that is there
)

// bundle is an account of a test's own.
type bundle struct {
	*providertest.Account
	fake   *fake
	faults *providertest.Faults
}

type options struct {
	timeout time.Duration
	host    *netns.Host // that the first droplet is
	key     string
	change  func(*fake)
}

func setup(t *testing.T, o options) *bundle {
	t.Helper()
	b := &bundle{fake: newFake()}
	b.fake.making = 1
	config := plainConfig
	if o.host != nil {
		b.fake.address = o.host.Address.String()
		b.fake.give(b.fake.droplets[0])
		config = fmt.Sprintf(`%s,"hostFingerprints":{"%d":%q}}`, strings.TrimSuffix(plainConfig, "}"), first, o.host.Fingerprint)
		o.key = o.host.PrivateKey
	}
	if o.change != nil {
		o.change(b.fake)
	}
	b.faults = providertest.NewFaults(providertest.Contract(t, "testdata/openapi.json", "", b.fake))
	server := httptest.NewServer(b.faults)
	client := open(server.URL, o.timeout, config, o.key)
	b.Account = &providertest.Account{Client: client, Secret: secret, OfferID: "s-2vcpu-2gb:fra1", Sold: b.fake.sold}
	if o.host != nil {
		b.MachineID, b.Payload = fmt.Sprint(first), payload
	}
	t.Cleanup(func() { _ = client.Close(); server.Close() })
	return b
}

func open(url string, timeout time.Duration, config, key string) provider.Client {
	if key == "" {
		key = anyKey
	}
	client, err := driver(url, timeout).Open(context.Background(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(config),
		Secret: func(_ context.Context, reference string) (string, error) {
			if reference == "secret://do-ssh" {
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

var anyKey = netns.NewKey()

func driver(url string, timeout time.Duration) *digitalocean.Driver {
	return digitalocean.New(digitalocean.Options{Endpoint: url, Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: timeout})
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
	return r.Method == http.MethodPost && r.URL.Path == "/v2/droplets"
}

func onOrder(d do) providertest.Fault { return providertest.Fault{Match: isOrder, Do: d} }
func onNext(d do) providertest.Fault  { return providertest.Fault{Do: d} }
func always(d do) providertest.Fault  { return providertest.Fault{Always: true, Do: d} }

func refusedOrder(status int, message string) providertest.Situation {
	return with(onOrder(providertest.Reply(status, refusal("unprocessable_entity", message))))
}

func none(reason string) providertest.Situation { return providertest.Situation{Reason: reason} }

func TestConformance(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	plain := arranged(options{host: hosts[0]})
	providertest.Run(t, providertest.Config{
		Driver: driver("http://127.0.0.1:1", 0),
		Configs: []string{
			plainConfig,
			`{"apiToken":"env://DO_TOKEN","sshPrivateKey":"vault://do#ssh","sshKeyIds":[1,2],"image":"debian-12-x64","gpuImage":"gpu-amd-base","hostFingerprints":{"3164444":"SHA256:uNiVztksCsDhcc0u9e8BrkpJcqtoUZRiiYKqKpwRbZA"}}`,
		},
		BadConfigs: []string{
			`{}`, `{"apiToken":"plain","sshPrivateKey":"secret://b","sshKeyIds":[1]}`, `{"apiToken":"secret://a","sshPrivateKey":"-----BEGIN","sshKeyIds":[1]}`,
			`{"apiToken":"secret://a","sshPrivateKey":"secret://b","sshKeyIds":[]}`, `{"apiToken":"secret://a","sshPrivateKey":"secret://b","sshKeyIds":[1],"hostFingerprints":{"a":"b"}}`,
		},
		Plain: plain,

		ThreePages:    changed(func(f *fake) { f.perPage = 4 }),
		EmptyLastPage: changed(func(f *fake) { f.perPage, f.emptyLastPage = 5, true }),
		RepeatedPage:  changed(func(f *fake) { f.perPage, f.repeatedPage = 4, true }),
		ExtraFields:   with(always(providertest.ExtraFields)),
		MissingPrice:  changed(func(f *fake) { f.sizes[0]["price_hourly"], f.sizes[0]["price_monthly"] = 0, 0 }),
		UnknownGPU:    changed(func(f *fake) { f.sizes[9]["gpu_info"].(object)["model"] = "acme_frobnicator_9" }),
		OddIDs: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, options{change: func(f *fake) { f.sizes = append(f.sizes, size("s/9 (beta)", 9, "fra1"), size("s:9", 9, "fra1")) }})
			b.OfferID = provider.OfferID("s/9 (beta)", "fra1")
			return b.Account
		}},

		AnswerLost:      with(onOrder(providertest.AnswerLost)),
		HalfAnswer:      with(onOrder(providertest.HalfAnswer)),
		OrderFails:      with(onOrder(providertest.Reply(500, refusal("server_error", "Unexpected server-side error")))),
		OutOfStock:      changed(func(f *fake) { f.sizes[1]["regions"] = []string{"nyc1"} }),
		OutOfStockLater: none("DigitalOcean finds a place for a droplet before it answers."),
		OfferGone:       changed(func(f *fake) { f.sizes = f.sizes[2:] }),
		Quota:           changed(func(f *fake) { f.limit = 2 }),
		Payment:         refusedOrder(422, "This size is currently restricted, please send an additional payment to unlock."),
		Locked:          none("An install goes over SSH, past DigitalOcean, and waits there for another one."),

		Unauthorized:   with(always(providertest.Reply(401, refusal("unauthorized", "Unable to authenticate you")))),
		Forbidden:      with(onNext(providertest.Reply(403, refusal("forbidden", "You are not authorized to perform this operation")))),
		RateLimited:    with(onNext(providertest.Reply(429, refusal("too_many_requests", "API Rate limit exceeded.")))),
		RateLimitedFor: with(onNext(providertest.Reply(429, refusal("too_many_requests", "API Rate limit exceeded."), "Retry-After", "7"))),
		Down:           with(always(providertest.Reply(503, refusal("service_unavailable", "Unavailable")))),
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
	providertest.Mutate(t, providertest.Mutants{Provider: "digitalocean", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 4
		f.address = "0.0.0.1" // where nobody is dialled
		f.give(f.droplets[0])
		return providertest.Mutant{
			Fake: f, OfferID: "s-2vcpu-2gb:fra1", MachineID: fmt.Sprint(first), InstallRef: "generation-1", Sold: f.sold,
			Open: func(url string) provider.Client { return open(url, 300*time.Millisecond, plainConfig, "") },
		}
	}})
}

func TestOffersOfASize(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"s-1vcpu-1gb:nyc1": `{"id":"s-1vcpu-1gb:nyc1","kind":"vps","region":"nyc1","providerRegion":"nyc1","name":"Basic (s-1vcpu-1gb)","arch":"amd64","vcpu":1,"memoryGiB":1,` +
			`"disks":[{"sizeGB":25,"count":1,"media":"ssd"}],"gpu":null,"price":{"hourly":"0.00744","monthly":"5","setup":null,"currency":"USD","taxIncluded":false},"availability":"available",`,
		"gpu-h100x8-640gb:nyc2": `{"id":"gpu-h100x8-640gb:nyc2","kind":"vps","region":"nyc2","providerRegion":"nyc2","name":"Basic (gpu-h100x8-640gb)","arch":"amd64","vcpu":160,"memoryGiB":160,` +
			`"disks":[{"sizeGB":2046,"count":1,"media":"ssd"},{"sizeGB":40960,"count":1,"media":"ssd"}],"gpu":{"model":"H100","vendor":"nvidia","count":8,"memoryGiB":80},`,
		"s-old:nyc1": `{"id":"s-old:nyc1",`,
	} {
		i := slices.IndexFunc(offers, func(o *model.Offer) bool { return o.ID == id })
		if i < 0 {
			t.Fatalf("%s is not among %d offers", id, len(offers))
		}
		got, err := json.Marshal(offers[i])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(got), want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if (id == "s-old:nyc1") != (offers[i].Availability == model.OutOfStock) {
			t.Errorf("%s is %s", id, offers[i].Availability)
		}
	}
}

// TestRecordedSizes reads the sizes that the SDK's own tests have, two with GPUs among them.
func TestRecordedSizes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/sizes.json")
	if err != nil {
		t.Fatal(err)
	}
	var recordings []struct {
		JSON struct{ Sizes []object }
	}
	if err := json.Unmarshal(text, &recordings); err != nil {
		t.Fatal(err)
	}
	b := setup(t, options{change: func(f *fake) { f.sizes = recordings[0].JSON.Sizes }})
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gpus := []string{}
	for _, o := range offers {
		if o.GPU != nil {
			gpus = append(gpus, fmt.Sprintf("%s: %d %s %s of %g GiB", o.ID, o.GPU.Count, o.GPU.Vendor, o.GPU.Model, *o.GPU.MemoryGiB))
		}
	}
	want := []string{"gpu-h100x8-640gb-200:tor1: 8 nvidia H100 of 80 GiB", "gpu-mi350x1-288gb:tor1: 1 amd MI350X of 288 GiB"}
	if !slices.Equal(gpus, want) || len(offers) != 6 {
		t.Errorf("%d offers, GPUs %v", len(offers), gpus)
	}
}

// TestGPUDropletsAreFound: DigitalOcean leaves them out of the plain list, and of that by name.
func TestGPUDropletsAreFound(t *testing.T) {
	t.Parallel()
	b := setup(t, options{change: func(f *fake) { f.create("bcd-"+strings.Repeat("0", 26), "gpu-h100x8-640gb", "nyc2", nil) }})
	o := b.Client.(provider.Claimant)
	machines, err := o.Machines(t.Context())
	if err != nil || len(machines) != 3 {
		t.Errorf("%d machines, %v", len(machines), err)
	}
	claim, err := o.FindClaim(t.Context(), "bcd-"+strings.Repeat("0", 26))
	if err != nil || claim == nil || claim.State != provider.ClaimReady {
		t.Errorf("claim %+v, %v", claim, err)
	}
	if claims, err := o.Claims(t.Context()); err != nil || len(claims) != 1 {
		t.Errorf("claims %+v, %v", claims, err)
	}
	if _, err := o.Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: "gpu-h100x8-640gb:nyc2"}); err != nil {
		t.Errorf("an order with the image for GPUs: %v", err)
	}
}

// TestRefusals: one code has many meanings, and the words tell them apart.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]provider.Class{
		"You specified an invalid image for Droplet creation.":          provider.InvalidConfig,
		"512189 are invalid key identifiers for Droplet creation.":      provider.InvalidConfig,
		"Region is not available":                                       provider.OutOfStock,
		"The size is currently unavailable":                             provider.OutOfStock,
		"You specified an invalid region for Droplet creation.":         provider.OfferGone,
		"creating this/these droplet(s) will exceed your droplet limit": provider.Quota,
		"Please add a valid payment method before creating droplets":    provider.Payment,
		"Something new": provider.Fatal,
	} {
		b := setup(t, options{})
		b.faults.Add(onOrder(providertest.Reply(422, refusal("unprocessable_entity", message))))
		_, err := b.Client.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: b.OfferID})
		if provider.ClassOf(err) != want {
			t.Errorf("%s: %v, want class %s", message, err, want)
		}
	}
}

// TestABusyDropletIsReleasedLater: another action of the droplet's passes.
func TestABusyDropletIsReleasedLater(t *testing.T) {
	t.Parallel()
	b := setup(t, options{change: func(f *fake) { f.create("bcd-1", "s-1vcpu-1gb", "nyc1", nil) }})
	b.faults.Add(providertest.Fault{
		Match: func(r *http.Request) bool { return r.Method == http.MethodDelete },
		Do:    providertest.Reply(422, refusal("unprocessable_entity", "Droplet already has a pending event.")),
	})
	o := b.Client.(provider.Orderer)
	id := fmt.Sprint(first + 2)
	if err := o.Release(t.Context(), "bcd-1", id); provider.ClassOf(err) != provider.Conflict {
		t.Errorf("while it is busy: %v", err)
	}
	if err := o.Release(t.Context(), "bcd-1", id); err != nil || b.fake.find(id) != nil {
		t.Errorf("then: %v", err)
	}
}

// TestInstallsOnWhatItOrdered has a machine take its order's user data as cloud-init does, and installs on it. A droplet that was not
// ordered is not spoken to.
func TestInstallsOnWhatItOrdered(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := setup(t, options{key: netns.NewKey(), change: func(f *fake) { f.address = host.Address.String() }})
	c := b.Client.(interface {
		provider.Bootstrapper
		provider.Orderer
	})
	if _, err := c.Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: b.OfferID}); err != nil {
		t.Fatal(err)
	}
	host.TakeUserData(b.fake.userData[first+2])
	id := fmt.Sprint(first + 2)
	identity, err := c.Identify(t.Context(), id)
	for ; provider.ClassOf(err) == provider.Unavailable && err != nil; identity, err = c.Identify(t.Context(), id) { // it is made after some looks
	}
	if err != nil || identity.Serial != id || !strings.HasPrefix(identity.SSHHostKey, "SHA256:") {
		t.Fatalf("identity %+v, %v", identity, err)
	}
	if p, err := c.Prepare(t.Context(), id); err != nil || !p.Ready {
		t.Fatalf("prepare: %+v, %v", p, err)
	}
	ref, err := c.Install(t.Context(), id, payload(1))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(host.Run("cat /etc/bcd/join-token")); got != "join-1" {
		t.Errorf("token %q", got)
	}
	if _, err := c.InstallStatus(t.Context(), id, ref); err != nil {
		t.Error(err)
	}
	if _, err := c.Prepare(t.Context(), fmt.Sprint(first)); provider.ClassOf(err) != provider.InvalidConfig || !strings.Contains(err.Error(), "hostFingerprints") {
		t.Errorf("a droplet that nobody ordered: %v", err)
	}
}
