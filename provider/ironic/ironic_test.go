package ironic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/site"
	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ironic"
	"better/compute/provider/providertest"
)

func TestMain(m *testing.M) { site.Main(m) }

const (
	image = `"imageUrl":"http://images.test/debian.raw","imageSha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`
	// plain is an account with a password, and open one at an Ironic that asks for none.
	plain = `{"username":"compute","password":"secret://ironic",` + image +
		`,"prices":[{"resourceClass":"metal.h100x8","currency":"EUR","hourly":"22.40","monthly":"14000"}]}`
	open = `{` + image + `,"region":"rack-7"}`
)

// bundle is an Ironic of a test's own, and an account on it.
type bundle struct {
	*providertest.Account
	fake   *fake
	faults *providertest.Faults
}

func setup(t *testing.T, timeout time.Duration, change func(*fake)) *bundle {
	t.Helper()
	b := &bundle{fake: newFake()}
	if change != nil {
		change(b.fake)
	}
	b.faults = providertest.NewFaults(b.fake)
	server := httptest.NewServer(b.faults)
	client := client(server.URL, timeout, plain)
	b.Account = &providertest.Account{
		Client: client, Secret: secret, OfferID: class + ":default", MachineID: existing, Sold: b.fake.sold, Payload: payload,
	}
	t.Cleanup(func() { _ = client.Close(); server.Close() })
	return b
}

func client(url string, timeout time.Duration, config string) provider.Client {
	c, err := driver(url, timeout).Open(context.Background(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(config),
		Secret: func(context.Context, string) (string, error) { return secret, nil },
	})
	if err != nil {
		panic(err)
	}
	return c
}

func driver(url string, timeout time.Duration) *ironic.Driver {
	return ironic.New(ironic.Options{Endpoint: url + "/v1", Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: timeout})
}

func payload(generation int) provider.Payload {
	return provider.Payload{
		Generation: generation, JoinURL: "https://192.0.2.1:8443", CAPin: "sha256:" + strings.Repeat("0", 64), Token: fmt.Sprintf("join-%d", generation),
		AgentBinary: func(arch string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("agent of " + arch)), nil
		},
	}
}

func with(faults ...providertest.Fault) providertest.Situation { return changed(nil, faults...) }

func changed(change func(*fake), faults ...providertest.Fault) providertest.Situation {
	return providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
		t.Helper()
		b := setup(t, 0, change)
		b.faults.Add(faults...)
		return b.Account
	}}
}

func isOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == "/v1/allocations"
}
func isChange(r *http.Request) bool { return r.Method != http.MethodGet }

type do = func(http.ResponseWriter, *http.Request, http.Handler)

func onOrder(d do) providertest.Fault { return providertest.Fault{Match: isOrder, Do: d} }
func onNext(d do) providertest.Fault  { return providertest.Fault{Do: d} }
func always(d do) providertest.Fault  { return providertest.Fault{Always: true, Do: d} }

func none(reason string) providertest.Situation { return providertest.Situation{Reason: reason} }

const locked = "Node is locked by host 127.0.0.1, please retry after the current operation is completed."

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Config{
		Driver:  driver("http://127.0.0.1:1", 0),
		Configs: []string{plain, open},
		BadConfigs: []string{
			`{}`, `{` + image + `,"username":"a"}`, `{` + image + `,"password":"secret://a"}`, `{` + image + `,"username":"a","password":"plain"}`,
			`{"imageUrl":"ftp://a","imageSha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`,
			`{` + image + `,"prices":[{"resourceClass":"a","currency":"EUR","hourly":"free"}]}`,
			`{` + image + `,"prices":[{"resourceClass":"a","currency":"EUR"},{"resourceClass":"a","currency":"EUR"}]}`,
		},
		Plain: with(),

		ThreePages:    changed(func(f *fake) { f.perPage = 3 }),
		EmptyLastPage: changed(func(f *fake) { f.perPage, f.emptyLastPage = 5, true }),
		RepeatedPage:  changed(func(f *fake) { f.perPage, f.repeatedPage = 3, true }),
		ExtraFields:   with(always(providertest.ExtraFields)),
		MissingPrice:  with(), // only one class has one
		UnknownGPU: changed(func(f *fake) {
			f.add("metal.new", "available")["properties"] = object{"capabilities": "boot_mode:uefi,gpu_model:Vega Nebula,gpu_count:2"}
		}),
		OddIDs: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, 0, func(f *fake) {
				for range 3 {
					f.add("gpu nodes/8", "available")
				}
			})
			b.OfferID = provider.OfferID("gpu nodes/8", "default")
			return b.Account
		}},

		AnswerLost:      with(onOrder(providertest.AnswerLost)),
		HalfAnswer:      with(onOrder(providertest.HalfAnswer)),
		OrderFails:      with(onOrder(providertest.Reply(500, refusal("database is locked")))),
		OutOfStock:      none("Ironic looks for a node after it has answered."),
		OutOfStockLater: changed(func(f *fake) { f.lateStock = true }),
		OfferGone:       changed(func(f *fake) { f.nodes = f.nodes[len(f.nodes)-2:] }),
		Quota:           none("Ironic has no quotas."),
		Payment:         none("Ironic costs nothing."),
		Locked:          with(providertest.Fault{Match: isChange, Do: providertest.Reply(409, refusal(locked))}),

		Unauthorized:   with(always(providertest.Reply(401, refusal("Incorrect username or password")))),
		Forbidden:      with(onNext(providertest.Reply(403, refusal("Access was denied")))),
		RateLimited:    with(onNext(providertest.Reply(429, "slow down"))),
		RateLimitedFor: with(onNext(providertest.Reply(429, "slow down", "Retry-After", "7"))),
		Down:           with(always(providertest.Reply(503, refusal("Service Unavailable")))),
		Hangs: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, 300*time.Millisecond, nil)
			b.faults.Add(onNext(providertest.Hang))
			return b.Account
		}},
		Garbage:      with(always(providertest.HTML)),
		InstallFails: changed(func(f *fake) { f.failDeploys = true }),
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "ironic", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 3
		return providertest.Mutant{
			Fake: f, OfferID: class + ":default", MachineID: existing, InstallRef: "deployment", Sold: f.sold,
			Open: func(url string) provider.Client { return client(url, 300*time.Millisecond, plain) },
		}
	}})
}

func TestOfferOfAResourceClass(t *testing.T) {
	t.Parallel()
	b := setup(t, 0, nil)
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(offers, func(o *model.Offer) bool { return o.ID == b.OfferID })
	if i < 0 {
		t.Fatalf("%s is not among %d offers", b.OfferID, len(offers))
	}
	got, err := json.Marshal(offers[i])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"metal.h100x8:default","kind":"metal","region":"default","providerRegion":"default","name":"metal.h100x8","arch":"amd64","vcpu":96,` +
		`"memoryGiB":2048,"disks":[{"sizeGB":7680,"count":1,"media":"unknown"}],"gpu":{"model":"H100","vendor":"nvidia","count":8,"memoryGiB":null},` +
		`"price":{"hourly":"22.4","monthly":"14000","setup":null,"currency":"EUR","taxIncluded":false},"availability":"available",`
	if !strings.HasPrefix(string(got), want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestClassesThatCannotBeHad: a node is offered as Ironic gives it out, and a class whose nodes differ promises nothing of what they differ in.
func TestClassesThatCannotBeHad(t *testing.T) {
	t.Parallel()
	b := setup(t, 0, func(f *fake) {
		f.add("metal.off", "available")["power_state"] = nil
		f.add("metal.broken", "available")["maintenance"] = true
		f.add("metal.mixed", "available")["properties"] = object{
			"cpus": "64", "memory_mb": 1024, "cpu_arch": "aarch64", "accelerators": []object{{"type": "GPU", "device_info": "NVIDIA Corporation Tesla V100 32GB"}},
		}
		f.add("metal.mixed", "available")["properties"] = object{"cpus": 64, "memory_mb": 2048, "cpu_arch": "riscv64", "accelerators": "none"}
	})
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range offers {
		switch o.Name {
		case "metal.off", "metal.broken":
			if o.Availability != model.OutOfStock {
				t.Errorf("%s is %s", o.Name, o.Availability)
			}
		case "metal.mixed":
			if o.Availability != model.Available || *o.VCPU != 64 || o.MemoryGiB != nil || o.Arch != nil || o.GPU != nil {
				t.Errorf("offer %+v", o)
			}
		}
	}
}

// TestConfigDriveIsDelivered looks at what a deployment carries: the image with its checksum, and user data with the token of the last delivery.
func TestConfigDriveIsDelivered(t *testing.T) {
	t.Parallel()
	b := setup(t, 0, nil)
	c := b.Client.(provider.Bootstrapper)
	for generation := range 2 {
		b.fake.nodes[0]["provision_state"] = "active"
		if _, err := c.Install(t.Context(), b.MachineID, payload(generation)); err != nil {
			t.Fatal(err)
		}
	}
	drive := b.fake.drives[1]
	got, _ := drive["user_data"].(string)
	if !strings.HasPrefix(got, "#!/bin/sh\n") || !strings.Contains(got, "join-1") || strings.Contains(got, "join-0") || !strings.Contains(got, "https://192.0.2.1:8443/v1/agent") {
		t.Errorf("user data %s", got)
	}
	if meta, _ := drive["meta_data"].(object); meta["uuid"] != existing || meta["name"] != "node-1" {
		t.Errorf("meta data %v", meta)
	}
	if f := b.fake.patched; f["image_source"] != "http://images.test/debian.raw" || f["image_os_hash_algo"] != "sha256" || len(fmt.Sprint(f["image_os_hash_value"])) != 64 {
		t.Errorf("instance info %v", f)
	}
}

// TestNodesThatAreNotReady: what the driver waits for, what it does, and what people must do.
func TestNodesThatAreNotReady(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		"deploying": "waits", "clean wait": "waits", "rescue": "waits", "available": "fatal", "manageable": "fatal", "clean failed": "fatal", "deploy failed": "ready",
	} {
		b := setup(t, 0, func(f *fake) { f.nodes[0]["provision_state"] = state })
		p, err := b.Client.(provider.Bootstrapper).Prepare(t.Context(), b.MachineID)
		got := "waits"
		switch {
		case err != nil:
			got = string(provider.ClassOf(err))
		case p.Ready:
			got = "ready"
		}
		if got != want {
			t.Errorf("a node in %q: %s, want %s (%v)", state, got, want, err)
		}
	}
}

// TestRelease gives back in every state that a node can be in when it is time to.
func TestRelease(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		"active": "deleting", "deploy failed": "deleting", "wait call-back": "deleting", "rescue": "deleting", "available": "available", "deploying": "conflict",
		"cleaning": "cleaning",
	} {
		b := setup(t, 0, nil)
		o := b.Client.(provider.Orderer)
		order := provider.Order{OperationID: "bcd-1", OfferID: b.OfferID}
		if _, err := o.Order(t.Context(), order); err != nil {
			t.Fatal(err)
		}
		b.fake.look(b.fake.allocations[0])
		n := b.fake.nodes[1]
		n["provision_state"] = state
		faulty := providertest.Fault{Match: func(r *http.Request) bool {
			return strings.HasPrefix(r.URL.Path, "/v1/nodes/") && r.Method == http.MethodGet
		}, Do: asIs(n)}
		b.faults.Add(faulty)
		err := o.Release(t.Context(), order.OperationID, fmt.Sprint(n["uuid"]))
		got := fmt.Sprint(n["provision_state"])
		if err != nil {
			got = string(provider.ClassOf(err))
		}
		if got != want || got == "available" && b.fake.sold(order.OperationID) != 0 {
			t.Errorf("a node in %q: %s, want %s (%v)", state, got, want, err)
		}
	}
}

// asIs shows a thing without the fake's taking a look.
func asIs(item object) do {
	text, _ := json.Marshal(item)
	return providertest.Reply(200, string(text))
}
