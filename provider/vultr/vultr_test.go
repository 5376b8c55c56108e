package vultr_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/netns"
	"better/compute/internal/leaktest"
	"better/compute/provider"
	"better/compute/provider/providertest"
	"better/compute/provider/vultr"
)

func TestMain(m *testing.M) { providertest.Main(m, func(m *testing.M) { leaktest.Main(m) }) }

const plainConfig = `{"apiKey":"secret://vultr","sshPrivateKey":"secret://vultr-ssh"}`

var operation = "bcd-" + strings.Repeat("0", 26)

type options = providertest.Options[*fake]

var rig = &providertest.Rig[*fake]{
	Driver: func(url string, timeout time.Duration) provider.Driver {
		return vultr.New(vultr.Options{Endpoint: url + "/v2", Networks: providertest.Loopback(), Timeout: timeout})
	},
	Config: plainConfig, SSHKey: "secret://vultr-ssh", Secret: secret,
	Fake: func() *fake {
		f := newFake()
		f.making = 1
		return f
	},
	Description: "testdata/openapi.json",
	OfferID:     "vc2-2c-2gb:ewr", MachineID: number(1), Sold: (*fake).sold,
	Place: func(f *fake, address string) {
		f.address = address
		f.machines[0]["main_ip"] = address
	},
}

func isOrder(r *http.Request) bool { return r.Method == http.MethodPost }

func onOrder(do providertest.Do) providertest.Fault { return providertest.On(isOrder, do) }

// oddOffer has a name that does not do for an id, so that it is looked for.
var oddOffer = options{OfferID: provider.OfferID("vc9/9 (beta)", "ewr"), Change: func(f *fake) { f.plans = append(f.plans, plan("vc9/9 (beta)", 9), plan("vc9:9", 9)) }}

func TestConformance(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	providertest.Run(t, providertest.Config{
		Driver: rig.Driver("http://127.0.0.1:1", 0),
		Configs: []string{
			plainConfig,
			`{"apiKey":"env://VULTR_KEY","sshPrivateKey":"vault://vultr#ssh","sshKeyIds":["3b8066a7-b438-455a-9688-44afc9a3597f"],"osId":2284,` +
				`"hostFingerprints":{"metal-cb676a46-66fd-4dfb-b839-443f2e6c0b60":"SHA256:uNiVztksCsDhcc0u9e8BrkpJcqtoUZRiiYKqKpwRbZA"}}`,
		},
		BadConfigs: []string{
			`{}`, `{"apiKey":"plain","sshPrivateKey":"secret://b"}`, `{"apiKey":"secret://a"}`, `{"apiKey":"secret://a","sshPrivateKey":"secret://b","osId":0}`,
			`{"apiKey":"secret://a","sshPrivateKey":"secret://b","hostFingerprints":{"a":"b"}}`,
		},
		Plain: rig.Arranged(options{Host: hosts[0]}),

		ThreePages:    rig.Changed(func(f *fake) { f.perPage = 4 }),
		EmptyLastPage: rig.Changed(func(f *fake) { f.perPage, f.emptyLastPage = 6, true }),
		RepeatedPage:  rig.Changed(func(f *fake) { f.perPage, f.repeatedPage = 4, true }),
		ExtraFields:   rig.With(providertest.Always(providertest.ExtraFields)),
		MissingPrice:  rig.Changed(func(f *fake) { delete(f.plans[0], "monthly_cost") }),
		UnknownGPU:    rig.Changed(func(f *fake) { f.plans[0]["gpu_type"], f.plans[0]["gpu_vram_gb"] = "ACME_FROBNICATOR_9", 7 }),
		OddIDs:        rig.Arranged(oddOffer),

		AnswerLost:      rig.With(onOrder(providertest.AnswerLost)),
		HalfAnswer:      rig.With(onOrder(providertest.HalfAnswer)),
		OrderFails:      rig.With(onOrder(providertest.Reply(500, refusal(500, "Server add failed")))),
		Spoilt:          rig.Spoilt(isOrder, oddOffer),
		OutOfStock:      rig.Changed(func(f *fake) { f.soldOut = []string{"vc2-2c-2gb"} }),
		OutOfStockLater: providertest.None("Vultr finds a place for a machine before it answers."),
		OfferGone: rig.Changed(func(f *fake) {
			f.plans = slices.DeleteFunc(f.plans, func(p object) bool { return p["id"] == "vc2-2c-2gb" })
		}),
		Quota:   rig.Changed(func(f *fake) { f.limit = 2 }),
		Payment: rig.With(onOrder(providertest.Reply(400, refusal(400, "Your account does not have enough credit.")))),
		Locked:  providertest.None("An install goes over SSH, past Vultr, and waits there for another one."),

		Unauthorized:   rig.With(providertest.Always(providertest.Reply(401, refusal(401, "Invalid API token.")))),
		Forbidden:      rig.With(providertest.OnNext(providertest.Reply(403, refusal(403, "Unauthorized")))),
		RateLimited:    rig.With(providertest.OnNext(providertest.Reply(429, refusal(429, "Rate limit exceeded")))),
		RateLimitedFor: rig.With(providertest.OnNext(providertest.Reply(429, refusal(429, "Rate limit exceeded"), "Retry-After", "7"))),
		Down:           rig.With(providertest.Always(providertest.Reply(503, `{}`))),
		Hangs:          rig.Arranged(options{Timeout: 300 * time.Millisecond}, providertest.OnNext(providertest.Hang)),
		Garbage:        rig.With(providertest.Always(providertest.HTML)),
		InstallFails:   rig.Arranged(options{Host: hosts[1], Payload: providertest.BrokenPayload}),
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "vultr", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 4
		f.machines[0]["main_ip"] = "0.0.0.1" // where nobody is dialled
		return rig.Mutant(f, "generation-1")
	}})
}

func TestOffersOfAPlan(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{Change: func(f *fake) { f.soldOut = []string{"vc2-3c-3gb"} }})
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	providertest.WantOffers(t, offers, map[string]string{
		"vc2-2c-2gb:AMS": `{"id":"vc2-2c-2gb:AMS","kind":"vps","region":"ams","providerRegion":"AMS","name":"vc2-2c-2gb","arch":"amd64","vcpu":2,"memoryGiB":2,` +
			`"disks":[{"sizeGB":50,"count":1,"media":"ssd"}],"gpu":null,"price":{"hourly":null,"monthly":"10","setup":null,"currency":"USD","taxIncluded":false},"availability":"AVAILABLE",`,
		"vc2-3c-3gb:ewr":                 `"availability":"OUT_OF_STOCK"`,
		"vcg-a100-24c-240g-160vram:ewr":  `"gpu":{"model":"A100-80GB","vendor":"nvidia","count":2,"memoryGiB":80}`,
		"vcg-a16-2c-8g-2vram:ewr":        `"gpu":null`,
		"vbm-4c-32gb:ewr":                `"kind":"metal","region":"ewr","providerRegion":"ewr","name":"vbm-4c-32gb","arch":"amd64","vcpu":8,"memoryGiB":32,"disks":[{"sizeGB":240,"count":2,"media":"ssd"}],"gpu":null,`,
		"vbm-112c-2048gb-8-h100-gpu:ewr": `"gpu":{"model":"H100","vendor":"nvidia","count":8,"memoryGiB":80}`,
	})
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
		err := rig.Refused(t, onOrder(providertest.Reply(400, refusal(400, message))))
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
	b := rig.Bench(t, options{Change: func(f *fake) { f.address = host.Address.String() }})
	c := b.Whole()
	if _, err := c.Order(t.Context(), provider.Order{OperationID: operation, OfferID: "vbm-4c-32gb:ewr"}); err != nil {
		t.Fatal(err)
	}
	host.TakeUserData(b.Fake.userData[number(3)])
	id := "metal-" + number(3)
	providertest.InstallsOnOrdered(t, c, host, id, number(1))
	if claim, err := c.FindClaim(t.Context(), operation); err != nil || claim == nil || claim.MachineID != id {
		t.Errorf("claim %+v, %v", claim, err)
	}
	if err := c.Release(t.Context(), operation, id); err != nil || b.Fake.sold(operation) != 0 {
		t.Errorf("release: %v", err)
	}
}
