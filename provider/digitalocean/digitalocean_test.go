package digitalocean_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/netns"
	"better/compute/apitest/site"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/digitalocean"
	"better/compute/provider/providertest"
)

func TestMain(m *testing.M) { providertest.Main(m, site.Main) }

const (
	plainConfig = `{"apiToken":"secret://do","sshPrivateKey":"secret://do-ssh","sshKeyIds":[512189]}`
	first       = 3164444 // the droplet that is there
)

type options = providertest.Options[*fake]

var rig = &providertest.Rig[*fake]{
	Driver: func(url string, timeout time.Duration) provider.Driver {
		return digitalocean.New(digitalocean.Options{Endpoint: url, Networks: providertest.Loopback(), Timeout: timeout})
	},
	Config: plainConfig, SSHKey: "secret://do-ssh", Secret: secret,
	Fake: func() *fake {
		f := newFake()
		f.making = 1
		return f
	},
	Description: "testdata/openapi.json",
	OfferID:     "s-2vcpu-2gb:fra1", MachineID: fmt.Sprint(first), Sold: (*fake).sold,
	Place: func(f *fake, address string) {
		f.address = address
		f.give(f.droplets[0])
	},
}

func isOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == "/v2/droplets"
}

func onOrder(do providertest.Do) providertest.Fault { return providertest.On(isOrder, do) }

func refusedOrder(status int, message string) providertest.Situation {
	return rig.With(onOrder(providertest.Reply(status, refusal("unprocessable_entity", message))))
}

// oddOffer has a name that does not do for an id, so that it is looked for.
var oddOffer = options{OfferID: provider.OfferID("s/9 (beta)", "fra1"), Change: func(f *fake) { f.sizes = append(f.sizes, size("s/9 (beta)", 9, "fra1"), size("s:9", 9, "fra1")) }}

func TestConformance(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	plain := rig.Arranged(options{Host: hosts[0]})
	providertest.Run(t, providertest.Config{
		Driver: rig.Driver("http://127.0.0.1:1", 0),
		Configs: []string{
			plainConfig,
			`{"apiToken":"env://DO_TOKEN","sshPrivateKey":"vault://do#ssh","sshKeyIds":[1,2],"image":"debian-12-x64","gpuImage":"gpu-amd-base","hostFingerprints":{"3164444":"SHA256:uNiVztksCsDhcc0u9e8BrkpJcqtoUZRiiYKqKpwRbZA"}}`,
		},
		BadConfigs: []string{
			`{}`, `{"apiToken":"plain","sshPrivateKey":"secret://b","sshKeyIds":[1]}`, `{"apiToken":"secret://a","sshPrivateKey":"-----BEGIN","sshKeyIds":[1]}`,
			`{"apiToken":"secret://a","sshPrivateKey":"secret://b","sshKeyIds":[]}`, `{"apiToken":"secret://a","sshPrivateKey":"secret://b","sshKeyIds":[1],"hostFingerprints":{"a":"b"}}`,
		},
		Plain: plain,

		ThreePages:    rig.Changed(func(f *fake) { f.perPage = 4 }),
		EmptyLastPage: rig.Changed(func(f *fake) { f.perPage, f.emptyLastPage = 5, true }),
		RepeatedPage:  rig.Changed(func(f *fake) { f.perPage, f.repeatedPage = 4, true }),
		ExtraFields:   rig.With(providertest.Always(providertest.ExtraFields)),
		MissingPrice:  rig.Changed(func(f *fake) { f.sizes[0]["price_hourly"], f.sizes[0]["price_monthly"] = 0, 0 }),
		UnknownGPU:    rig.Changed(func(f *fake) { f.sizes[9]["gpu_info"].(object)["model"] = "acme_frobnicator_9" }),
		OddIDs:        rig.Arranged(oddOffer),

		AnswerLost:      rig.With(onOrder(providertest.AnswerLost)),
		HalfAnswer:      rig.With(onOrder(providertest.HalfAnswer)),
		OrderFails:      rig.With(onOrder(providertest.Reply(500, refusal("server_error", "Unexpected server-side error")))),
		Spoilt:          rig.Spoilt(isOrder, oddOffer),
		OutOfStock:      rig.Changed(func(f *fake) { f.sizes[1]["regions"] = []string{"nyc1"} }),
		OutOfStockLater: providertest.None("DigitalOcean finds a place for a droplet before it answers."),
		OfferGone:       rig.Changed(func(f *fake) { f.sizes = f.sizes[2:] }),
		Quota:           rig.Changed(func(f *fake) { f.limit = 2 }),
		Payment:         refusedOrder(422, "This size is currently restricted, please send an additional payment to unlock."),
		Locked:          providertest.None("An install goes over SSH, past DigitalOcean, and waits there for another one."),

		Unauthorized:   rig.With(providertest.Always(providertest.Reply(401, refusal("unauthorized", "Unable to authenticate you")))),
		Forbidden:      rig.With(providertest.OnNext(providertest.Reply(403, refusal("forbidden", "You are not authorized to perform this operation")))),
		RateLimited:    rig.With(providertest.OnNext(providertest.Reply(429, refusal("too_many_requests", "API Rate limit exceeded.")))),
		RateLimitedFor: rig.With(providertest.OnNext(providertest.Reply(429, refusal("too_many_requests", "API Rate limit exceeded."), "Retry-After", "7"))),
		Down:           rig.With(providertest.Always(providertest.Reply(503, refusal("service_unavailable", "Unavailable")))),
		Hangs:          rig.Arranged(options{Timeout: 300 * time.Millisecond}, providertest.OnNext(providertest.Hang)),
		Garbage:        rig.With(providertest.Always(providertest.HTML)),
		InstallFails:   rig.Arranged(options{Host: hosts[1], Payload: providertest.BrokenPayload}),
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "digitalocean", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 4
		f.address = "0.0.0.1" // where nobody is dialled
		f.give(f.droplets[0])
		return rig.Mutant(f, "generation-1")
	}})
}

func TestOffersOfASize(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
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
	b := rig.Bench(t, options{Change: func(f *fake) { f.sizes = recordings[0].JSON.Sizes }})
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
	b := rig.Bench(t, options{Change: func(f *fake) { f.create("bcd-"+strings.Repeat("0", 26), "gpu-h100x8-640gb", "nyc2", nil) }})
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
		err := rig.Refused(t, onOrder(providertest.Reply(422, refusal("unprocessable_entity", message))))
		if provider.ClassOf(err) != want {
			t.Errorf("%s: %v, want class %s", message, err, want)
		}
	}
}

// TestABusyDropletIsReleasedLater: another action of the droplet's passes.
func TestABusyDropletIsReleasedLater(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{Change: func(f *fake) { f.create("bcd-1", "s-1vcpu-1gb", "nyc1", nil) }})
	b.Faults.Add(providertest.Fault{
		Match: func(r *http.Request) bool { return r.Method == http.MethodDelete },
		Do:    providertest.Reply(422, refusal("unprocessable_entity", "Droplet already has a pending event.")),
	})
	o := b.Client.(provider.Orderer)
	id := fmt.Sprint(first + 2)
	if err := o.Release(t.Context(), "bcd-1", id); provider.ClassOf(err) != provider.Conflict {
		t.Errorf("while it is busy: %v", err)
	}
	if err := o.Release(t.Context(), "bcd-1", id); err != nil || b.Fake.find(id) != nil {
		t.Errorf("then: %v", err)
	}
}

// TestInstallsOnWhatItOrdered has a machine take its order's user data as cloud-init does, and installs on it. A droplet that was not
// ordered is not spoken to.
func TestInstallsOnWhatItOrdered(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := rig.Bench(t, options{Change: func(f *fake) { f.address = host.Address.String() }})
	c := b.Whole()
	if _, err := c.Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: b.OfferID}); err != nil {
		t.Fatal(err)
	}
	host.TakeUserData(b.Fake.userData[first+2])
	id := fmt.Sprint(first + 2)
	identity := providertest.InstallsOnOrdered(t, c, host, id, fmt.Sprint(first))
	if identity.Serial != id {
		t.Errorf("identity %+v", identity)
	}
}
