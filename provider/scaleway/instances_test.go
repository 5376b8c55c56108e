package scaleway_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"better/compute/apitest/netns"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/providertest"
)

// virtualConfig is of one zone, and has instances in it.
var virtualConfig = strings.Replace(strings.Replace(plainConfig, `,"fr-par-2"`, "", 1), `"projectId"`, `"instanceImage":"ubuntu_noble","projectId"`, 1)

const smallOffer = "DEV1-S:fr-par-1"

// firstInstance is the one that is there.
var firstInstance = "instance:fr-par-1:" + id(7_000_000)

type virtualOptions = providertest.Options[*cloud]

var virtualRig = &providertest.Rig[*cloud]{
	Driver: rig.Driver, Config: virtualConfig, SSHKey: rig.SSHKey, Secret: secret, Fake: newCloud, OfferID: smallOffer, MachineID: firstInstance, Sold: (*cloud).sold,
	Place: func(c *cloud, address string) {
		c.address = address
		c.give(c.servers[0])
	},
}

func isInstanceOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/instance/") && strings.HasSuffix(r.URL.Path, "/servers")
}

func onInstanceOrder(do providertest.Do) providertest.Fault {
	return providertest.On(isInstanceOrder, do)
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

// oddInstance has a name that does not do for an id, so that it is looked for.
var oddInstance = virtualOptions{OfferID: provider.OfferID("X/9 (beta)", "fr-par-1"), Change: func(c *cloud) {
	c.types[0]["arch"], c.types[0]["name"], c.stock["X/9 (beta)"] = "x86_64", "X/9 (beta)", "available"
}}

func TestConformanceOfInstances(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	const asMetal = "The conformance of Elastic Metal has it, and it is the same code."
	providertest.Run(t, providertest.Config{
		Driver:  rig.Driver("http://127.0.0.1:1", 0),
		Configs: []string{virtualConfig, strings.Replace(virtualConfig, `"projectId"`, `"instanceVolumeGB":100,"projectId"`, 1)},
		BadConfigs: []string{
			strings.Replace(virtualConfig, `"projectId"`, `"instanceVolumeGB":1,"projectId"`, 1),
			strings.Replace(virtualConfig, "ubuntu_noble", "../x", 1),
		},
		Plain: virtualRig.Arranged(virtualOptions{Host: host}),

		ThreePages:    virtualRig.Changed(func(c *cloud) { c.perPage = 30 }),
		EmptyLastPage: providertest.None(asMetal), RepeatedPage: providertest.None(asMetal),
		ExtraFields:  virtualRig.With(providertest.Always(providertest.Rewrite(extended))),
		MissingPrice: virtualRig.Changed(func(c *cloud) { c.types[0]["hourly_price"] = 0 }),
		UnknownGPU: virtualRig.Changed(func(c *cloud) {
			c.types[0]["gpu"], c.types[0]["gpu_info"] = 2, object{"gpu_manufacturer": "Acme", "gpu_name": "Frobnicator 9", "gpu_memory": 9_000_000_000}
		}),
		OddIDs: virtualRig.Arranged(oddInstance),

		AnswerLost:      virtualRig.With(onInstanceOrder(providertest.AnswerLost)),
		HalfAnswer:      virtualRig.With(onInstanceOrder(providertest.HalfAnswer)),
		OrderFails:      virtualRig.With(onInstanceOrder(providertest.Reply(500, refusal("internal_error", "internal error")))),
		Spoilt:          virtualRig.Spoilt(isInstanceOrder, oddInstance),
		OutOfStock:      virtualRig.Changed(func(c *cloud) { c.stock["DEV1-S"] = "shortage" }),
		OutOfStockLater: virtualRig.Changed(func(c *cloud) { c.soldOut = true }),
		OfferGone: virtualRig.Changed(func(c *cloud) {
			c.types = slices.DeleteFunc(c.types, func(t object) bool { return t["name"] == "DEV1-S" })
		}),
		Quota:   virtualRig.Changed(func(c *cloud) { c.limit = 1 }),
		Payment: providertest.None("Scaleway has no refusal of an order for want of money; it locks the organization's keys."),
		Locked:  providertest.None("An install goes over SSH, past Scaleway, and waits there for another one."),

		Unauthorized:   virtualRig.With(providertest.Always(providertest.Reply(401, refusal("denied_authentication", "authentication is denied")))),
		Forbidden:      providertest.None(asMetal),
		RateLimited:    providertest.None(asMetal),
		RateLimitedFor: providertest.None(asMetal),
		Down:           virtualRig.With(providertest.Always(providertest.Reply(503, refusal("unavailable", "unavailable")))),
		Hangs:          providertest.None(asMetal),
		Garbage:        virtualRig.With(providertest.Always(providertest.HTML)),
		InstallFails:   providertest.None(asMetal),
	})
}

func TestMutantsOfInstances(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "scaleway", New: func(*testing.T) providertest.Mutant {
		c := newCloud()
		c.address = "0.0.0.1" // where nobody is dialled
		c.give(c.servers[0])
		return virtualRig.Mutant(c, "generation-1")
	}})
}

func TestInstancesAreOrderedOnce(t *testing.T) {
	t.Parallel()
	providertest.SentOnce(t, isInstanceOrder, smallOffer, newCloud(), func(url string) provider.Client {
		return virtualRig.Open(url, virtualOptions{Timeout: providertest.SentOnceIn})
	})
}

// TestRecordedTypes: 75 were recorded, of which those that end and those with Windows are not offered.
func TestRecordedTypes(t *testing.T) {
	t.Parallel()
	offers, err := virtualRig.Bench(t, virtualOptions{}).Client.Offers(t.Context())
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
	providertest.WantOffers(t, virtual, map[string]string{
		"DEV1-M:fr-par-1": `{"id":"DEV1-M:fr-par-1","kind":"vps","region":"fr-par-1","providerRegion":"fr-par-1","name":"DEV1-M","arch":"amd64","vcpu":3,"memoryGiB":4,"disks":[],"gpu":null,` +
			`"price":{"hourly":"0.02556","monthly":null,"setup":null,"currency":"EUR","taxIncluded":false},"availability":"limited",`,
		"L4-2-24G:fr-par-1": `{"id":"L4-2-24G:fr-par-1","kind":"vps","region":"fr-par-1","providerRegion":"fr-par-1","name":"L4-2-24G","arch":"amd64","vcpu":16,"memoryGiB":96,"disks":[],` +
			`"gpu":{"model":"L4","vendor":"nvidia","count":2,"memoryGiB":24},"price":{"hourly":"1.5","monthly":null,"setup":null,"currency":"EUR","taxIncluded":false},"availability":"available",`,
		"COPARM1-2C-8G:fr-par-1": `{"id":"COPARM1-2C-8G:fr-par-1","kind":"vps","region":"fr-par-1","providerRegion":"fr-par-1","name":"COPARM1-2C-8G","arch":"arm64","vcpu":2,"memoryGiB":8,`,
	})
}

// TestVolumesAreNotLeft: they outlive the instance, and cost money. Scaleway takes its time to delete an instance.
func TestVolumesAreNotLeft(t *testing.T) {
	t.Parallel()
	b := virtualRig.Bench(t, virtualOptions{Change: func(c *cloud) { c.ending, c.making = 2, 1 }})
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: smallOffer}); err != nil {
		t.Fatal(err)
	}
	var claim *provider.Claim
	for range 9 {
		var err error
		if claim, err = b.Whole().FindClaim(t.Context(), "bcd-1"); err != nil || claim == nil {
			t.Fatalf("claim %+v, %v", claim, err)
		}
	}
	if claim.State != provider.ClaimReady || !strings.Contains(b.Fake.userData[id(7_000_001)], "ssh_authorized_keys") {
		t.Fatalf("claim %+v", claim)
	}
	b.Fake.servers[1]["volumes"].(object)["1"] = object{"id": id(8_000_000), "volume_type": "sbs_volume", "zone": "fr-par-1"} // of somebody
	if err := b.Whole().Release(t.Context(), "bcd-2", claim.MachineID); provider.ClassOf(err) != provider.IdentityChanged {
		t.Errorf("of another: %v", err)
	}
	if err := b.Whole().Release(t.Context(), "bcd-1", claim.MachineID); provider.ClassOf(err) != provider.Conflict {
		t.Errorf("while it ends: %v", err)
	}
	for range 9 {
		if b.Whole().Release(t.Context(), "bcd-1", claim.MachineID) == nil {
			break
		}
	}
	if b.Fake.sold("bcd-1") != 0 || len(b.Fake.volumes) != 1 || b.Fake.left() != 0 {
		t.Errorf("%d volumes are there", len(b.Fake.volumes))
	}
}

// TestNoPlaceLeavesNothing: an instance that cannot start is deleted, with its volume.
func TestNoPlaceLeavesNothing(t *testing.T) {
	t.Parallel()
	b := virtualRig.Bench(t, virtualOptions{Change: func(c *cloud) { c.soldOut = true }})
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: smallOffer}); err != nil {
		t.Fatal(err)
	}
	claim, err := b.Whole().FindClaim(t.Context(), "bcd-1")
	if err != nil || claim == nil || claim.State != provider.ClaimFailed || claim.Err.Class != provider.OutOfStock {
		t.Fatalf("claim %+v, %v", claim, err)
	}
	if b.Fake.sold("bcd-1") != 0 || len(b.Fake.volumes) != 1 {
		t.Errorf("%d volumes are there", len(b.Fake.volumes))
	}
}

// TestMetalBesideInstances: an order for metal is one, and an image that is none costs nothing.
func TestMetalBesideInstances(t *testing.T) {
	t.Parallel()
	b := virtualRig.Bench(t, virtualOptions{Change: func(c *cloud) { c.images = c.images[1:] }})
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: offerID}); err != nil || b.Fake.metal.sold("bcd-1") != 1 || b.Fake.sold("bcd-1") != 0 {
		t.Errorf("metal: %v", err)
	}
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: "bcd-2", OfferID: smallOffer}); provider.ClassOf(err) != provider.InvalidConfig || b.Fake.sold("bcd-2") != 0 {
		t.Errorf("no image: %v", err)
	}
	machines, err := b.Whole().Machines(t.Context())
	kinds := map[model.MachineKind]int{}
	for _, m := range machines {
		kinds[m.Kind]++
	}
	if err != nil || kinds[model.VPS] != 1 || kinds[model.Metal] != 2 {
		t.Errorf("%v, %v", kinds, err)
	}
	plain := rig.Bench(t, options{}).Whole()
	if _, err := plain.MachineKey(firstInstance); provider.ClassOf(err) != provider.NotFound {
		t.Errorf("an account without instances: %v", err)
	}
}

// TestInstallsOnAnInstance has a machine take its order's user data as cloud-init does, and installs on it.
func TestInstallsOnAnInstance(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := virtualRig.Bench(t, virtualOptions{Change: func(c *cloud) { c.address = host.Address.String() }})
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: smallOffer}); err != nil {
		t.Fatal(err)
	}
	var claim *provider.Claim
	for range 3 {
		claim, _ = b.Whole().FindClaim(t.Context(), "bcd-1")
	}
	if claim == nil || claim.State != provider.ClaimReady {
		t.Fatalf("claim %+v", claim)
	}
	host.TakeUserData(b.Fake.userData[id(7_000_001)])
	if identity := providertest.InstallsOnOrdered(t, b.Whole(), host, claim.MachineID, firstInstance); identity.Arch != "amd64" {
		t.Errorf("identity %+v", identity)
	}
}
