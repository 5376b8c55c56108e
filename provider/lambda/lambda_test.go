package lambda_test

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
	"better/compute/provider/lambda"
	"better/compute/provider/providertest"
	"better/compute/provider/vendor"
)

// TestMain makes of the test's own program an agent that does nothing, for as long as it is let.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		time.Sleep(time.Hour)
		return
	}
	goleak.VerifyTestMain(m)
}

const plainConfig = `{"apiKey":"secret://lambda","sshPrivateKey":"secret://lambda-ssh","sshKeyName":"compute"}`

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
	b.fake.booting = 1
	config, key := plainConfig, netns.NewKey()
	if host != nil {
		b.fake.address = host.Address.String()
		b.fake.instances[0]["ip"] = b.fake.address
		config = fmt.Sprintf(`%s,"hostFingerprints":{%q:%q}}`, strings.TrimSuffix(plainConfig, "}"), id(1), host.Fingerprint)
		key = host.PrivateKey
	}
	if change != nil {
		change(b.fake)
	}
	b.faults = providertest.NewFaults(providertest.Contract(t, "testdata/openapi.json", "", b.fake))
	server := httptest.NewServer(b.faults)
	client := open(server.URL, timeout, config, key)
	b.Account = &providertest.Account{Client: client, Secret: secret, OfferID: "gpu_1x_h100_sxm5:us-west-2", Sold: b.fake.sold}
	if host != nil {
		b.MachineID, b.Payload = id(1), payload
	}
	t.Cleanup(func() { _ = client.Close(); server.Close() })
	return b
}

func open(url string, timeout time.Duration, config, key string) provider.Client {
	client, err := driver(url, timeout).Open(context.Background(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(config),
		Secret: func(_ context.Context, reference string) (string, error) {
			if reference == "secret://lambda-ssh" {
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

func driver(url string, timeout time.Duration) *lambda.Driver {
	return lambda.New(lambda.Options{
		Endpoint: url + "/api/v1", Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: timeout, Rate: vendor.Rate{PerSecond: 1000, Burst: 1000},
	})
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

func isOrder(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/launch") }

func onOrder(d do) providertest.Fault { return providertest.Fault{Match: isOrder, Do: d} }
func onNext(d do) providertest.Fault  { return providertest.Fault{Do: d} }
func always(d do) providertest.Fault  { return providertest.Fault{Always: true, Do: d} }

func none(reason string) providertest.Situation { return providertest.Situation{Reason: reason} }

const onePage = "Lambda's lists come whole."

// addedFields adds to all objects but the map of types, in which another member would be another type.
func addedFields(w http.ResponseWriter, r *http.Request, fake http.Handler) {
	if strings.HasSuffix(r.URL.Path, "/instance-types") {
		fake.ServeHTTP(w, r)
		return
	}
	providertest.ExtraFields(w, r, fake)
}

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
			`{"apiKey":"env://LAMBDA_KEY","sshPrivateKey":"vault://lambda#ssh","sshKeyName":"compute","imageFamily":"lambda-stack-24-04",` +
				`"hostFingerprints":{"0920582c7ff041399e34823a0be62549":"SHA256:uNiVztksCsDhcc0u9e8BrkpJcqtoUZRiiYKqKpwRbZA"}}`,
		},
		BadConfigs: []string{
			`{}`, `{"apiKey":"plain","sshPrivateKey":"secret://b","sshKeyName":"compute"}`, `{"apiKey":"secret://a","sshPrivateKey":"secret://b"}`,
			`{"apiKey":"secret://a","sshPrivateKey":"secret://b","sshKeyName":"compute","hostFingerprints":{"a":"b"}}`,
		},
		Plain: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account { t.Helper(); return setup(t, 0, hosts[0], nil).Account }},

		ThreePages: none(onePage), EmptyLastPage: none(onePage), RepeatedPage: none(onePage),
		ExtraFields:  with(always(addedFields)),
		MissingPrice: changed(func(f *fake) { f.typeOf("gpu_8x_a100")["price_cents_per_hour"] = 0 }),
		UnknownGPU:   changed(func(f *fake) { f.typeOf("gpu_8x_a100")["gpu_description"] = "Frobnicator 9 (7 GB)" }),
		OddIDs: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, 0, hosts[2], func(f *fake) {
				f.add("gpu/9 (beta)", "L40S (48 GB)", 1, 9, "us-east-1")
				f.add("gpu:9", "L40S (48 GB)", 1, 9, "us-east-1")
			})
			b.OfferID, b.MachineID = provider.OfferID("gpu/9 (beta)", "us-east-1"), ""
			return b.Account
		}},

		AnswerLost:      with(onOrder(providertest.AnswerLost)),
		HalfAnswer:      with(onOrder(providertest.HalfAnswer)),
		OrderFails:      with(onOrder(providertest.Reply(500, refusal("global/internal-error", "An error occurred.")))),
		OutOfStock:      changed(func(f *fake) { f.soldOut = []string{"gpu_1x_h100_sxm5"} }),
		OutOfStockLater: none("Lambda finds a place for a machine before it answers."),
		OfferGone:       changed(func(f *fake) { delete(f.types, "gpu_1x_h100_sxm5") }),
		Quota:           changed(func(f *fake) { f.limit = 1 }),
		Payment:         with(onOrder(providertest.Reply(400, refusal("global/invalid-address", "Your billing address is invalid.")))),
		Locked:          none("An install goes over SSH, past Lambda, and waits there for another one."),

		Unauthorized:   with(always(providertest.Reply(401, refusal("global/invalid-api-key", "API key was invalid, expired, or deleted.")))),
		Forbidden:      with(onNext(providertest.Reply(403, refusal("global/account-inactive", "Your account is inactive.")))),
		RateLimited:    with(onNext(providertest.Reply(429, refusal("global/too-many-requests", "Slow down.")))),
		RateLimitedFor: with(onNext(providertest.Reply(429, refusal("global/too-many-requests", "Slow down."), "Retry-After", "7"))),
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
	providertest.Mutate(t, providertest.Mutants{Provider: "lambda", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.instances[0]["ip"] = "0.0.0.1" // where nobody is dialled
		return providertest.Mutant{
			Fake: f, OfferID: "gpu_1x_h100_sxm5:us-west-2", MachineID: id(1), InstallRef: "generation-1", Sold: f.sold,
			Open: func(url string) provider.Client { return open(url, 300*time.Millisecond, plainConfig, key) },
		}
	}})
}

func TestOffersOfAType(t *testing.T) {
	t.Parallel()
	b := setup(t, 0, nil, nil)
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{
		"gpu_1x_h100_sxm5:us-east-1": `{"id":"gpu_1x_h100_sxm5:us-east-1","kind":"vps","region":"us-east-1","providerRegion":"us-east-1","name":"1x H100 (80 GB SXM5)","arch":"amd64","vcpu":26,` +
			`"memoryGiB":225,"disks":[{"sizeGB":2816,"count":1,"media":"ssd"}],"gpu":{"model":"H100","vendor":"nvidia","count":1,"memoryGiB":80},` +
			`"price":{"hourly":"3.29","monthly":null,"setup":null,"currency":"USD","taxIncluded":false},"availability":"AVAILABLE",`,
		"gpu_8x_a100:us-west-1":    `"gpu":{"model":"A100-40GB","vendor":"nvidia","count":8,"memoryGiB":40},"price":{"hourly":"10.32",`,
		"gpu_1x_gh200:us-east-3":   `"arch":"arm64",`,
		"gpu_1x_rtx6000:us-east-1": `"gpu":{"model":"Quadro-RTX-6000","vendor":"nvidia","count":1,"memoryGiB":24}`,
		"cpu_4x_general:us-east-1": `"gpu":null`,
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
		b := setup(t, 0, nil, nil)
		b.faults.Add(onOrder(providertest.Reply(404, refusal("global/object-does-not-exist", message))))
		_, err := b.Client.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: operation, OfferID: b.OfferID})
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
	b := setup(t, 0, nil, func(f *fake) { f.address = host.Address.String() })
	c := b.Client.(interface {
		provider.Bootstrapper
		provider.Claimant
	})
	if _, err := c.Order(t.Context(), provider.Order{OperationID: operation, OfferID: b.OfferID}); err != nil {
		t.Fatal(err)
	}
	host.TakeUserData(b.fake.userData[id(2)])
	launched := id(2)
	claim, err := c.FindClaim(t.Context(), operation)
	for ; err == nil && claim != nil && claim.State == provider.ClaimPending; claim, err = c.FindClaim(t.Context(), operation) { // it is made after some looks
	}
	if err != nil || claim == nil || claim.MachineID != launched {
		t.Fatalf("claim %+v, %v", claim, err)
	}
	if identity, err := c.Identify(t.Context(), launched); err != nil || !strings.HasPrefix(identity.SSHHostKey, "SHA256:") {
		t.Fatalf("identity %+v, %v", identity, err)
	}
	if p, err := c.Prepare(t.Context(), launched); err != nil || !p.Ready {
		t.Fatalf("prepare: %+v, %v", p, err)
	}
	if _, err := c.Install(t.Context(), launched, payload(1)); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(host.Run("cat /etc/bcd/join-token")); got != "join-1" {
		t.Errorf("token %q", got)
	}
	if _, err := c.Prepare(t.Context(), id(1)); provider.ClassOf(err) != provider.InvalidConfig || !strings.Contains(err.Error(), "hostFingerprints") {
		t.Errorf("a machine that nobody ordered: %v", err)
	}
	if err := c.Release(t.Context(), operation, launched); err != nil || b.fake.sold(operation) != 0 {
		t.Errorf("release: %v", err)
	}
}
