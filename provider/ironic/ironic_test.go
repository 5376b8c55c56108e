package ironic_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/site"
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

type options = providertest.Options[*fake]

var rig = &providertest.Rig[*fake]{
	Driver: func(url string, timeout time.Duration) provider.Driver {
		return ironic.New(ironic.Options{Endpoint: url + "/v1", Networks: providertest.Loopback(), Timeout: timeout})
	},
	Config: plain, Secret: secret,
	Fake:    newFake,
	OfferID: class + ":default", MachineID: existing, Sold: (*fake).sold,
}

func isOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == "/v1/allocations"
}
func isChange(r *http.Request) bool { return r.Method != http.MethodGet }

func onOrder(do providertest.Do) providertest.Fault { return providertest.On(isOrder, do) }

const locked = "Node is locked by host 127.0.0.1, please retry after the current operation is completed."

// oddOffer has a name that does not do for an id, so that it is looked for.
var oddOffer = options{OfferID: provider.OfferID("gpu nodes/8", "default"), Change: func(f *fake) {
	for range 3 {
		f.add("gpu nodes/8", "available")
	}
}}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Config{
		Driver:  rig.Driver("http://127.0.0.1:1", 0),
		Configs: []string{plain, open},
		BadConfigs: []string{
			`{}`, `{` + image + `,"username":"a"}`, `{` + image + `,"password":"secret://a"}`, `{` + image + `,"username":"a","password":"plain"}`,
			`{"imageUrl":"ftp://a","imageSha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`,
			`{` + image + `,"prices":[{"resourceClass":"a","currency":"EUR","hourly":"free"}]}`,
			`{` + image + `,"prices":[{"resourceClass":"a","currency":"EUR"},{"resourceClass":"a","currency":"EUR"}]}`,
		},
		Plain: rig.With(),

		ThreePages:    rig.Changed(func(f *fake) { f.perPage = 3 }),
		EmptyLastPage: rig.Changed(func(f *fake) { f.perPage, f.emptyLastPage = 5, true }),
		RepeatedPage:  rig.Changed(func(f *fake) { f.perPage, f.repeatedPage = 3, true }),
		ExtraFields:   rig.With(providertest.Always(providertest.ExtraFields)),
		MissingPrice:  rig.With(), // only one class has one
		UnknownGPU: rig.Changed(func(f *fake) {
			f.add("metal.new", "available")["properties"] = object{"capabilities": "boot_mode:uefi,gpu_model:Vega Nebula,gpu_count:2"}
		}),
		OddIDs: rig.Arranged(oddOffer),

		AnswerLost:      rig.With(onOrder(providertest.AnswerLost)),
		HalfAnswer:      rig.With(onOrder(providertest.HalfAnswer)),
		OrderFails:      rig.With(onOrder(providertest.Reply(500, refusal("database is locked")))),
		Spoilt:          rig.Spoilt(isOrder, oddOffer),
		OutOfStock:      providertest.None("Ironic looks for a node after it has answered."),
		OutOfStockLater: rig.Changed(func(f *fake) { f.lateStock = true }),
		OfferGone:       rig.Changed(func(f *fake) { f.nodes = f.nodes[len(f.nodes)-2:] }),
		Quota:           providertest.None("Ironic has no quotas."),
		Payment:         providertest.None("Ironic costs nothing."),
		Locked:          rig.With(providertest.On(isChange, providertest.Reply(409, refusal(locked)))),

		Unauthorized:   rig.With(providertest.Always(providertest.Reply(401, refusal("Incorrect username or password")))),
		Forbidden:      rig.With(providertest.OnNext(providertest.Reply(403, refusal("Access was denied")))),
		RateLimited:    rig.With(providertest.OnNext(providertest.Reply(429, "slow down"))),
		RateLimitedFor: rig.With(providertest.OnNext(providertest.Reply(429, "slow down", "Retry-After", "7"))),
		Down:           rig.With(providertest.Always(providertest.Reply(503, refusal("Service Unavailable")))),
		Hangs:          rig.Arranged(options{Timeout: 300 * time.Millisecond}, providertest.OnNext(providertest.Hang)),
		Garbage:        rig.With(providertest.Always(providertest.HTML)),
		InstallFails:   rig.Changed(func(f *fake) { f.failDeploys = true }),
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "ironic", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 3
		return rig.Mutant(f, "deployment")
	}})
}

func TestOfferOfAResourceClass(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
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
	b := rig.Bench(t, options{Change: func(f *fake) {
		f.add("metal.off", "available")["power_state"] = nil
		f.add("metal.broken", "available")["maintenance"] = true
		f.add("metal.mixed", "available")["properties"] = object{
			"cpus": "64", "memory_mb": 1024, "cpu_arch": "aarch64", "accelerators": []object{{"type": "GPU", "device_info": "NVIDIA Corporation Tesla V100 32GB"}},
		}
		f.add("metal.mixed", "available")["properties"] = object{"cpus": 64, "memory_mb": 2048, "cpu_arch": "riscv64", "accelerators": "none"}
	}})
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
	b := rig.Bench(t, options{})
	c := b.Client.(provider.Bootstrapper)
	for generation := range 2 {
		b.Fake.nodes[0]["provision_state"] = "active"
		if _, err := c.Install(t.Context(), b.MachineID, providertest.Payload(generation)); err != nil {
			t.Fatal(err)
		}
	}
	drive := b.Fake.drives[1]
	got, _ := drive["user_data"].(string)
	providertest.WantUserData(t, got, 1)
	if meta, _ := drive["meta_data"].(object); meta["uuid"] != existing || meta["name"] != "node-1" {
		t.Errorf("meta data %v", meta)
	}
	if f := b.Fake.patched; f["image_source"] != "http://images.test/debian.raw" || f["image_os_hash_algo"] != "sha256" || len(fmt.Sprint(f["image_os_hash_value"])) != 64 {
		t.Errorf("instance info %v", f)
	}
}

// TestNodesThatAreNotReady: what the driver waits for, what it does, and what people must do.
func TestNodesThatAreNotReady(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		"deploying": "waits", "clean wait": "waits", "rescue": "waits", "available": "fatal", "manageable": "fatal", "clean failed": "fatal", "deploy failed": "ready",
	} {
		b := rig.Bench(t, options{Change: func(f *fake) { f.nodes[0]["provision_state"] = state }})
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
		b := rig.Bench(t, options{})
		o := b.Client.(provider.Orderer)
		order := provider.Order{OperationID: "bcd-1", OfferID: b.OfferID}
		if _, err := o.Order(t.Context(), order); err != nil {
			t.Fatal(err)
		}
		b.Fake.look(b.Fake.allocations[0])
		n := b.Fake.nodes[1]
		n["provision_state"] = state
		faulty := providertest.Fault{Match: func(r *http.Request) bool {
			return strings.HasPrefix(r.URL.Path, "/v1/nodes/") && r.Method == http.MethodGet
		}, Do: asIs(n)}
		b.Faults.Add(faulty)
		err := o.Release(t.Context(), order.OperationID, fmt.Sprint(n["uuid"]))
		got := fmt.Sprint(n["provision_state"])
		if err != nil {
			got = string(provider.ClassOf(err))
		}
		if got != want || got == "available" && b.Fake.sold(order.OperationID) != 0 {
			t.Errorf("a node in %q: %s, want %s (%v)", state, got, want, err)
		}
	}
}

// asIs shows a thing without the fake's taking a look.
func asIs(item object) providertest.Do {
	text, _ := json.Marshal(item)
	return providertest.Reply(200, string(text))
}
