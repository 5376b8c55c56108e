package scaleway_test

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
	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/providertest"
	"better/compute/provider/scaleway"
)

// virtualConfig is of one zone, and has instances in it.
var virtualConfig = strings.Replace(strings.Replace(plainConfig, `,"fr-par-2"`, "", 1), `"projectId"`, `"instanceImage":"ubuntu_noble","projectId"`, 1)

const smallOffer = "DEV1-S:fr-par-1"

// firstInstance is the one that is there.
var firstInstance = "instance:fr-par-1:" + id(7_000_000)

type virtualClient interface {
	provider.Bootstrapper
	provider.Claimant
}

// virtualBundle is an account of a test's own.
type virtualBundle struct {
	*providertest.Account
	cloud  *cloud
	faults *providertest.Faults
	client virtualClient
}

type virtualOptions struct {
	timeout time.Duration
	host    *netns.Host // that the first instance is
	key     string
	change  func(*cloud)
}

func virtualSetup(t *testing.T, o virtualOptions) *virtualBundle {
	t.Helper()
	b := &virtualBundle{cloud: newCloud()}
	config := virtualConfig
	if o.host != nil {
		b.cloud.address = o.host.Address.String()
		b.cloud.give(b.cloud.servers[0])
		config = strings.TrimSuffix(config, "}") + fmt.Sprintf(`,"hostFingerprints":{%q:%q}}`, firstInstance, o.host.Fingerprint)
		o.key = o.host.PrivateKey
	}
	if o.change != nil {
		o.change(b.cloud)
	}
	b.faults = providertest.NewFaults(b.cloud)
	server := httptest.NewServer(b.faults)
	b.client = virtualOpen(server.URL, o.timeout, config, o.key)
	b.Account = &providertest.Account{Client: b.client, Secret: secret, OfferID: smallOffer, Sold: b.cloud.sold}
	if o.host != nil {
		b.MachineID = firstInstance
		b.Payload = func(generation int) provider.Payload {
			return provider.Payload{
				Generation: generation, JoinURL: "https://192.0.2.1:8443", CAPin: "sha256:" + strings.Repeat("0", 64), Token: fmt.Sprintf("join-%d", generation),
				AgentBinary: func(string) (io.ReadCloser, error) { return os.Open("/proc/self/exe") },
			}
		}
	}
	t.Cleanup(func() { _ = b.client.Close(); server.Close() })
	return b
}

func virtualOpen(url string, timeout time.Duration, config, key string) virtualClient {
	if key == "" {
		key = virtualKey
	}
	d := scaleway.New(scaleway.Options{Endpoint: url, Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: timeout})
	client, err := d.Open(context.Background(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(config),
		Secret: func(_ context.Context, reference string) (string, error) {
			if reference == "secret://scw-ssh" {
				return key, nil
			}
			return secret, nil
		},
	})
	if err != nil {
		panic(err)
	}
	return client.(virtualClient)
}

var virtualKey = netns.NewKey()

func virtually(o virtualOptions, faults ...providertest.Fault) providertest.Situation {
	return providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
		t.Helper()
		b := virtualSetup(t, o)
		b.faults.Add(faults...)
		return b.Account
	}}
}

func virtuallyWith(faults ...providertest.Fault) providertest.Situation {
	return virtually(virtualOptions{}, faults...)
}

func virtuallyChanged(change func(*cloud)) providertest.Situation {
	return virtually(virtualOptions{change: change})
}

type virtualDo = func(http.ResponseWriter, *http.Request, http.Handler)

func isInstanceOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/instance/") && strings.HasSuffix(r.URL.Path, "/servers")
}

func onInstanceOrder(do virtualDo) providertest.Fault {
	return providertest.Fault{Match: isInstanceOrder, Do: do}
}

// extended adds fields that nobody knows to an answer and to what it lists. An instance's own maps are keyed by type and by number, and have none.
func extended(document any) any {
	answer, ok := document.(object)
	if !ok {
		return document
	}
	for _, listed := range answer {
		items, _ := listed.([]any)
		if one, ok := listed.(object); ok {
			items = []any{one}
			for _, item := range one {
				items = append(items, item)
			}
		}
		for _, item := range items {
			if o, ok := item.(object); ok && o["id"] != nil || ok && o["arch"] != nil {
				o["x_new_field"] = object{"a": 1}
			}
		}
	}
	answer["x_new_field"] = "text"
	return answer
}

func TestConformanceOfInstances(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	always := func(do virtualDo) providertest.Fault { return providertest.Fault{Always: true, Do: do} }
	none := func(reason string) providertest.Situation { return providertest.Situation{Reason: reason} }
	const asMetal = "The conformance of Elastic Metal has it, and it is the same code."
	providertest.Run(t, providertest.Config{
		Driver:  scaleway.New(scaleway.Options{Endpoint: "http://127.0.0.1:1"}),
		Configs: []string{virtualConfig, strings.Replace(virtualConfig, `"projectId"`, `"instanceVolumeGB":100,"projectId"`, 1)},
		BadConfigs: []string{
			strings.Replace(virtualConfig, `"projectId"`, `"instanceVolumeGB":1,"projectId"`, 1),
			strings.Replace(virtualConfig, "ubuntu_noble", "../x", 1),
		},
		Plain: virtually(virtualOptions{host: host}),

		ThreePages:    virtuallyChanged(func(c *cloud) { c.perPage = 30 }),
		EmptyLastPage: none(asMetal), RepeatedPage: none(asMetal),
		ExtraFields:  virtuallyWith(always(providertest.Rewrite(extended))),
		MissingPrice: virtuallyChanged(func(c *cloud) { c.types[0]["hourly_price"] = 0 }),
		UnknownGPU: virtuallyChanged(func(c *cloud) {
			c.types[0]["gpu"], c.types[0]["gpu_info"] = 2, object{"gpu_manufacturer": "Acme", "gpu_name": "Frobnicator 9", "gpu_memory": 9_000_000_000}
		}),
		OddIDs: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := virtualSetup(t, virtualOptions{change: func(c *cloud) {
				c.types[0]["arch"], c.types[0]["name"], c.stock["X/9 (beta)"] = "x86_64", "X/9 (beta)", "available"
			}})
			b.OfferID = provider.OfferID("X/9 (beta)", "fr-par-1")
			return b.Account
		}},

		AnswerLost:      virtuallyWith(onInstanceOrder(providertest.AnswerLost)),
		HalfAnswer:      virtuallyWith(onInstanceOrder(providertest.HalfAnswer)),
		OrderFails:      virtuallyWith(onInstanceOrder(providertest.Reply(500, refusal("internal_error", "internal error")))),
		OutOfStock:      virtuallyChanged(func(c *cloud) { c.stock["DEV1-S"] = "shortage" }),
		OutOfStockLater: virtuallyChanged(func(c *cloud) { c.soldOut = true }),
		OfferGone: virtuallyChanged(func(c *cloud) {
			c.types = slices.DeleteFunc(c.types, func(t object) bool { return t["name"] == "DEV1-S" })
		}),
		Quota:   virtuallyChanged(func(c *cloud) { c.limit = 1 }),
		Payment: none("Scaleway has no refusal of an order for want of money; it locks the organization's keys."),
		Locked:  none("An install goes over SSH, past Scaleway, and waits there for another one."),

		Unauthorized:   virtuallyWith(always(providertest.Reply(401, refusal("denied_authentication", "authentication is denied")))),
		Forbidden:      none(asMetal),
		RateLimited:    none(asMetal),
		RateLimitedFor: none(asMetal),
		Down:           virtuallyWith(always(providertest.Reply(503, refusal("unavailable", "unavailable")))),
		Hangs:          none(asMetal),
		Garbage:        virtuallyWith(always(providertest.HTML)),
		InstallFails:   none(asMetal),
	})
}

func TestMutantsOfInstances(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "scaleway", New: func(*testing.T) providertest.Mutant {
		c := newCloud()
		c.address = "0.0.0.1" // where nobody is dialled
		c.give(c.servers[0])
		return providertest.Mutant{
			Fake: c, OfferID: smallOffer, MachineID: firstInstance, InstallRef: "generation-1", Sold: c.sold,
			Open: func(url string) provider.Client { return virtualOpen(url, 300*time.Millisecond, virtualConfig, "") },
		}
	}})
}

func TestInstancesAreOrderedOnce(t *testing.T) {
	t.Parallel()
	providertest.SentOnce(t, isInstanceOrder, smallOffer, newCloud(), func(url string) provider.Client { return virtualOpen(url, 2*time.Second, virtualConfig, "") })
}

// TestRecordedTypes: 75 were recorded, of which those that end and those with Windows are not offered.
func TestRecordedTypes(t *testing.T) {
	t.Parallel()
	offers, err := virtualSetup(t, virtualOptions{}).client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	virtual := slices.DeleteFunc(offers, func(o *model.Offer) bool { return o.Kind != model.VPS })
	for _, o := range virtual {
		if o.Price == nil || o.VCPU == nil || o.MemoryGiB == nil || strings.Contains(o.Name, "WIN") {
			t.Errorf("%s is not understood", o.ID)
		}
	}
	if len(virtual) != 52 {
		t.Errorf("%d types", len(virtual))
	}
	for id, want := range map[string]string{
		"DEV1-M:fr-par-1": `{"id":"DEV1-M:fr-par-1","kind":"vps","region":"fr-par-1","providerRegion":"fr-par-1","name":"DEV1-M","arch":"amd64","vcpu":3,"memoryGiB":4,"disks":[],"gpu":null,` +
			`"price":{"hourly":"0.02556","monthly":null,"setup":null,"currency":"EUR","taxIncluded":false},"availability":"limited",`,
		"L4-2-24G:fr-par-1": `{"id":"L4-2-24G:fr-par-1","kind":"vps","region":"fr-par-1","providerRegion":"fr-par-1","name":"L4-2-24G","arch":"amd64","vcpu":16,"memoryGiB":96,"disks":[],` +
			`"gpu":{"model":"L4","vendor":"nvidia","count":2,"memoryGiB":24},"price":{"hourly":"1.5","monthly":null,"setup":null,"currency":"EUR","taxIncluded":false},"availability":"available",`,
		"COPARM1-2C-8G:fr-par-1": `{"id":"COPARM1-2C-8G:fr-par-1","kind":"vps","region":"fr-par-1","providerRegion":"fr-par-1","name":"COPARM1-2C-8G","arch":"arm64","vcpu":2,"memoryGiB":8,`,
	} {
		i := slices.IndexFunc(virtual, func(o *model.Offer) bool { return o.ID == id })
		if i < 0 {
			t.Fatalf("%s is not offered", id)
		}
		if got, err := json.Marshal(virtual[i]); err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
}

// TestVolumesAreNotLeft: they outlive the instance, and cost money. Scaleway takes its time to delete an instance.
func TestVolumesAreNotLeft(t *testing.T) {
	t.Parallel()
	b := virtualSetup(t, virtualOptions{change: func(c *cloud) { c.ending, c.making = 2, 1 }})
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: smallOffer}); err != nil {
		t.Fatal(err)
	}
	var claim *provider.Claim
	for range 9 {
		var err error
		if claim, err = b.client.FindClaim(t.Context(), "bcd-1"); err != nil || claim == nil {
			t.Fatalf("claim %+v, %v", claim, err)
		}
	}
	if claim.State != provider.ClaimReady || !strings.Contains(b.cloud.userData[id(7_000_001)], "ssh_authorized_keys") {
		t.Fatalf("claim %+v", claim)
	}
	b.cloud.servers[1]["volumes"].(object)["1"] = object{"id": id(8_000_000), "volume_type": "sbs_volume", "zone": "fr-par-1"} // of somebody
	if err := b.client.Release(t.Context(), "bcd-2", claim.MachineID); provider.ClassOf(err) != provider.IdentityChanged {
		t.Errorf("of another: %v", err)
	}
	if err := b.client.Release(t.Context(), "bcd-1", claim.MachineID); provider.ClassOf(err) != provider.Conflict {
		t.Errorf("while it ends: %v", err)
	}
	for range 9 {
		if b.client.Release(t.Context(), "bcd-1", claim.MachineID) == nil {
			break
		}
	}
	if b.cloud.sold("bcd-1") != 0 || len(b.cloud.volumes) != 1 || b.cloud.left() != 0 {
		t.Errorf("%d volumes are there", len(b.cloud.volumes))
	}
}

// TestNoPlaceLeavesNothing: an instance that cannot start is deleted, with its volume.
func TestNoPlaceLeavesNothing(t *testing.T) {
	t.Parallel()
	b := virtualSetup(t, virtualOptions{change: func(c *cloud) { c.soldOut = true }})
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: smallOffer}); err != nil {
		t.Fatal(err)
	}
	claim, err := b.client.FindClaim(t.Context(), "bcd-1")
	if err != nil || claim == nil || claim.State != provider.ClaimFailed || claim.Err.Class != provider.OutOfStock {
		t.Fatalf("claim %+v, %v", claim, err)
	}
	if b.cloud.sold("bcd-1") != 0 || len(b.cloud.volumes) != 1 {
		t.Errorf("%d volumes are there", len(b.cloud.volumes))
	}
}

// TestMetalBesideInstances: an order for metal is one, and an image that is none costs nothing.
func TestMetalBesideInstances(t *testing.T) {
	t.Parallel()
	b := virtualSetup(t, virtualOptions{change: func(c *cloud) { c.images = c.images[1:] }})
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: offerID}); err != nil || b.cloud.metal.sold("bcd-1") != 1 || b.cloud.sold("bcd-1") != 0 {
		t.Errorf("metal: %v", err)
	}
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: "bcd-2", OfferID: smallOffer}); provider.ClassOf(err) != provider.InvalidConfig || b.cloud.sold("bcd-2") != 0 {
		t.Errorf("no image: %v", err)
	}
	machines, err := b.client.Machines(t.Context())
	kinds := map[model.MachineKind]int{}
	for _, m := range machines {
		kinds[m.Kind]++
	}
	if err != nil || kinds[model.VPS] != 1 || kinds[model.Metal] != 2 {
		t.Errorf("%v, %v", kinds, err)
	}
	plain := virtualOpen("http://127.0.0.1:1", 0, plainConfig, "")
	t.Cleanup(func() { _ = plain.Close() })
	if _, err := plain.MachineKey(firstInstance); provider.ClassOf(err) != provider.NotFound {
		t.Errorf("an account without instances: %v", err)
	}
}

// TestInstallsOnAnInstance has a machine take its order's user data as cloud-init does, and installs on it.
func TestInstallsOnAnInstance(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := virtualSetup(t, virtualOptions{key: netns.NewKey(), change: func(c *cloud) { c.address = host.Address.String() }})
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: smallOffer}); err != nil {
		t.Fatal(err)
	}
	var claim *provider.Claim
	for range 3 {
		claim, _ = b.client.FindClaim(t.Context(), "bcd-1")
	}
	if claim == nil || claim.State != provider.ClaimReady {
		t.Fatalf("claim %+v", claim)
	}
	host.TakeUserData(b.cloud.userData[id(7_000_001)])
	identity, err := b.client.Identify(t.Context(), claim.MachineID)
	if err != nil || !strings.HasPrefix(identity.SSHHostKey, "SHA256:") || identity.Arch != "amd64" {
		t.Errorf("identity %+v, %v", identity, err)
	}
	if p, err := b.client.Prepare(t.Context(), claim.MachineID); err != nil || !p.Ready {
		t.Errorf("prepare: %+v, %v", p, err)
	}
}
