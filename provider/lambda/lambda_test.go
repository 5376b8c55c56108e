package lambda_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/netns"
	"better/compute/internal/leaktest"
	"better/compute/provider"
	"better/compute/provider/lambda"
	"better/compute/provider/providertest"
	"better/compute/provider/vendor"
)

func TestMain(m *testing.M) { providertest.Main(m, func(m *testing.M) { leaktest.Main(m) }) }

const plainConfig = `{"apiKey":"secret://lambda","sshPrivateKey":"secret://lambda-ssh","sshKeyName":"compute"}`

var operation = "bcd-" + strings.Repeat("0", 26)

type options = providertest.Options[*fake]

var rig = &providertest.Rig[*fake]{
	Driver: func(url string, timeout time.Duration) provider.Driver {
		return lambda.New(lambda.Options{Endpoint: url + "/api/v1", Networks: providertest.Loopback(), Timeout: timeout, Rate: vendor.Rate{PerSecond: 1000, Burst: 1000}})
	},
	Config: plainConfig, SSHKey: "secret://lambda-ssh", Secret: secret,
	Fake: func() *fake {
		f := newFake()
		f.booting = 1
		return f
	},
	Description: "testdata/openapi.json",
	OfferID:     "gpu_1x_h100_sxm5:us-west-2", MachineID: id(1), Sold: (*fake).sold,
	Place: func(f *fake, address string) {
		f.address = address
		f.instances[0]["ip"] = address
	},
}

func isOrder(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/launch") }

func onOrder(do providertest.Do) providertest.Fault { return providertest.On(isOrder, do) }

const onePage = "Lambda's lists come whole."

// addedFields adds to all objects but the map of types, in which another member would be another type.
func addedFields(w http.ResponseWriter, r *http.Request, fake http.Handler) {
	if strings.HasSuffix(r.URL.Path, "/instance-types") {
		fake.ServeHTTP(w, r)
		return
	}
	providertest.ExtraFields(w, r, fake)
}

// oddOffer has a name that does not do for an id, so that it is looked for.
var oddOffer = options{OfferID: provider.OfferID("gpu/9 (beta)", "us-east-1"), Change: func(f *fake) {
	f.add("gpu/9 (beta)", "L40S (48 GB)", 1, 9, "us-east-1")
	f.add("gpu:9", "L40S (48 GB)", 1, 9, "us-east-1")
}}

func TestConformance(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	providertest.Run(t, providertest.Config{
		Driver: rig.Driver("http://127.0.0.1:1", 0),
		Configs: []string{
			plainConfig,
			`{"apiKey":"env://LAMBDA_KEY","sshPrivateKey":"vault://lambda#ssh","sshKeyName":"compute","imageFamily":"lambda-stack-24-04",` +
				`"hostFingerprints":{"0920582c7ff041399e34823a0be62549":"SHA256:uNiVztksCsDhcc0u9e8BrkpJcqtoUZRiiYKqKpwRbZA"}}`,
		},
		BadConfigs: []string{
			`{}`, `{"apiKey":"plain","sshPrivateKey":"secret://b","sshKeyName":"compute"}`, `{"apiKey":"secret://a","sshPrivateKey":"secret://b"}`,
			`{"apiKey":"secret://a","sshPrivateKey":"secret://b","sshKeyName":"compute","hostFingerprints":{"a":"b"}}`,
		},
		Plain: rig.Arranged(options{Host: hosts[0]}),

		ThreePages: providertest.None(onePage), EmptyLastPage: providertest.None(onePage), RepeatedPage: providertest.None(onePage),
		ExtraFields:  rig.With(providertest.Always(addedFields)),
		MissingPrice: rig.Changed(func(f *fake) { f.typeOf("gpu_8x_a100")["price_cents_per_hour"] = 0 }),
		UnknownGPU:   rig.Changed(func(f *fake) { f.typeOf("gpu_8x_a100")["gpu_description"] = "Frobnicator 9 (7 GB)" }),
		OddIDs:       rig.Arranged(oddOffer),

		AnswerLost:      rig.With(onOrder(providertest.AnswerLost)),
		HalfAnswer:      rig.With(onOrder(providertest.HalfAnswer)),
		OrderFails:      rig.With(onOrder(providertest.Reply(500, refusal("global/internal-error", "An error occurred.")))),
		Spoilt:          rig.Spoilt(isOrder, oddOffer),
		OutOfStock:      rig.Changed(func(f *fake) { f.soldOut = []string{"gpu_1x_h100_sxm5"} }),
		OutOfStockLater: providertest.None("Lambda finds a place for a machine before it answers."),
		OfferGone:       rig.Changed(func(f *fake) { delete(f.types, "gpu_1x_h100_sxm5") }),
		Quota:           rig.Changed(func(f *fake) { f.limit = 1 }),
		Payment:         rig.With(onOrder(providertest.Reply(400, refusal("global/invalid-address", "Your billing address is invalid.")))),
		Locked:          providertest.None("An install goes over SSH, past Lambda, and waits there for another one."),

		Unauthorized:   rig.With(providertest.Always(providertest.Reply(401, refusal("global/invalid-api-key", "API key was invalid, expired, or deleted.")))),
		Forbidden:      rig.With(providertest.OnNext(providertest.Reply(403, refusal("global/account-inactive", "Your account is inactive.")))),
		RateLimited:    rig.With(providertest.OnNext(providertest.Reply(429, refusal("global/too-many-requests", "Slow down.")))),
		RateLimitedFor: rig.With(providertest.OnNext(providertest.Reply(429, refusal("global/too-many-requests", "Slow down."), "Retry-After", "7"))),
		Down:           rig.With(providertest.Always(providertest.Reply(503, `{}`))),
		Hangs:          rig.Arranged(options{Timeout: 300 * time.Millisecond}, providertest.OnNext(providertest.Hang)),
		Garbage:        rig.With(providertest.Always(providertest.HTML)),
		InstallFails:   rig.Arranged(options{Host: hosts[1], Payload: providertest.BrokenPayload}),
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "lambda", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.instances[0]["ip"] = "0.0.0.1" // where nobody is dialled
		return rig.Mutant(f, "generation-1")
	}})
}

func TestOffersOfAType(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	providertest.WantOffers(t, offers, map[string]string{
		"gpu_1x_h100_sxm5:us-east-1": `{"id":"gpu_1x_h100_sxm5:us-east-1","kind":"vps","region":"us-east-1","providerRegion":"us-east-1","name":"1x H100 (80 GB SXM5)","arch":"amd64","vcpu":26,` +
			`"memoryGiB":225,"disks":[{"sizeGB":2816,"count":1,"media":"ssd"}],"gpu":{"model":"H100","vendor":"nvidia","count":1,"memoryGiB":80},` +
			`"price":{"hourly":"3.29","monthly":null,"setup":null,"currency":"USD","taxIncluded":false},"availability":"AVAILABLE",`,
		"gpu_8x_a100:us-west-1":    `"gpu":{"model":"A100-40GB","vendor":"nvidia","count":8,"memoryGiB":40},"price":{"hourly":"10.32",`,
		"gpu_1x_gh200:us-east-3":   `"arch":"arm64",`,
		"gpu_1x_rtx6000:us-east-1": `"gpu":{"model":"Quadro-RTX-6000","vendor":"nvidia","count":1,"memoryGiB":24}`,
		"cpu_4x_general:us-east-1": `"gpu":null`,
	})
	if len(offers) != 6 {
		t.Errorf("%d offers", len(offers))
	}
}

// TestRefusals: one code is for all that does not exist, and the words tell apart whose it is.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]provider.Class{
		"Specified SSH key does not exist.":       provider.InvalidConfig,
		"Specified image family does not exist.":  provider.InvalidConfig,
		"Specified instance type does not exist.": provider.OfferGone,
		"Specified region does not exist.":        provider.OfferGone,
	} {
		err := rig.Refused(t, onOrder(providertest.Reply(404, refusal("global/object-does-not-exist", message))))
		if provider.ClassOf(err) != want {
			t.Errorf("%s: %v, want class %s", message, err, want)
		}
	}
}

// TestInstallsOnWhatItOrdered has a machine take its order's user data as cloud-init does, and installs on it. A machine that was
// not ordered is not spoken to.
func TestInstallsOnWhatItOrdered(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := rig.Bench(t, options{Change: func(f *fake) { f.address = host.Address.String() }})
	c := b.Whole()
	if _, err := c.Order(t.Context(), provider.Order{OperationID: operation, OfferID: b.OfferID}); err != nil {
		t.Fatal(err)
	}
	host.TakeUserData(b.Fake.userData[id(2)])
	launched := id(2)
	providertest.InstallsOnOrdered(t, c, host, launched, id(1))
	if claim, err := c.FindClaim(t.Context(), operation); err != nil || claim == nil || claim.MachineID != launched {
		t.Errorf("claim %+v, %v", claim, err)
	}
	if err := c.Release(t.Context(), operation, launched); err != nil || b.Fake.sold(operation) != 0 {
		t.Errorf("release: %v", err)
	}
}
