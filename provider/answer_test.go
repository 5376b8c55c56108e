package provider

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"better/compute/model"
)

func TestCheckOffersRepairs(t *testing.T) {
	t.Parallel()
	given := &model.Offer{
		ID: "a:b", Kind: model.VPS, Region: "FSN1\x1b[1m", ProviderRegion: "FSN1", Name: "x\ny\u202e", Arch: new("sparc"), VCPU: new(0),
		MemoryGiB: new(math.NaN()), Availability: "maybe",
		Disks: []*model.Disk{{SizeGB: 1, Count: 1, Media: "tape"}, {SizeGB: 2, Count: 1, Media: "nvme"}},
		GPU:   &model.GPU{Model: "nvidia_a100 80GB", Vendor: "NVIDIA", Count: 1, MemoryGiB: new(math.Inf(1))},
		Price: &model.Price{Currency: "EUR"},
	}
	want := &model.Offer{
		ID: "a:b", Kind: model.VPS, Region: "fsn1[1m", ProviderRegion: "FSN1", Name: "x y", Availability: model.AvailabilityUnknown,
		Disks: []*model.Disk{{SizeGB: 2, Count: 1, Media: "nvme"}, {SizeGB: 1, Count: 1, Media: "unknown"}},
		GPU:   &model.GPU{Model: "A100-80GB", Vendor: "nvidia", Count: 1},
	}
	got, err := CheckOffers([]*model.Offer{given})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]*model.Offer{want}, got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if got[0].Disks == nil || given.GPU.Vendor != "NVIDIA" || given.Disks[0].Media != "tape" {
		t.Error("the driver's own values were changed")
	}
}

func TestCheckOffersRefuses(t *testing.T) {
	t.Parallel()
	good := func() *model.Offer { return &model.Offer{ID: "a", Kind: model.VPS} }
	for name, change := range map[string]func(o *model.Offer){
		"no id":                func(o *model.Offer) { o.ID = "" },
		"a bad id":             func(o *model.Offer) { o.ID = "a/b" },
		"a kind":               func(o *model.Offer) { o.Kind = "toaster" },
		"a billion CPUs":       func(o *model.Offer) { o.VCPU = new(1_000_000_000) },
		"an exbibyte":          func(o *model.Offer) { o.MemoryGiB = new(float64(1 << 30)) },
		"a disk of nothing":    func(o *model.Offer) { o.Disks = []*model.Disk{{SizeGB: 0, Count: 1}} },
		"a null disk":          func(o *model.Offer) { o.Disks = []*model.Disk{nil} },
		"minus one GPU":        func(o *model.Offer) { o.GPU = &model.GPU{Model: "L4", Count: -1} },
		"a price that is none": func(o *model.Offer) { o.Price = &model.Price{Hourly: new("NaN"), Currency: "EUR"} },
		"a negative price":     func(o *model.Offer) { o.Price = &model.Price{Hourly: new("-1"), Currency: "EUR"} },
		"a price in exponents": func(o *model.Offer) { o.Price = &model.Price{Setup: new("1e9"), Currency: "EUR"} },
		"a currency":           func(o *model.Offer) { o.Price = &model.Price{Hourly: new("1"), Currency: "beads"} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := good()
			change(o)
			_, err := CheckOffers([]*model.Offer{o})
			if e, ok := errors.AsType[*Error](err); !ok || e.Class != InvalidResponse {
				t.Errorf("got %v", err)
			}
		})
	}
	for name, offers := range map[string][]*model.Offer{"null": {nil}, "the same id twice": {good(), good()}} {
		if _, err := CheckOffers(offers); ClassOf(err) != InvalidResponse {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckOffersAgainstAnything draws answers as a broken provider would give them: each is refused, or comes out fit to show.
func TestCheckOffersAgainstAnything(t *testing.T) {
	t.Parallel()
	texts := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"fsn1", "EUR", "nvme", "1.5", "-1", "NaN", "1e400", "<b>", "\x1b[1m", "\xff"}))
	rapid.Check(t, func(t *rapid.T) {
		text := func(name string) *string { return rapid.Ptr(texts, true).Draw(t, name) }
		o := &model.Offer{
			ID:             rapid.OneOf(rapid.Just("a:b"), texts).Draw(t, "id"),
			Kind:           model.MachineKind(rapid.OneOf(rapid.Just("vps"), texts).Draw(t, "kind")),
			Region:         texts.Draw(t, "region"),
			ProviderRegion: texts.Draw(t, "providerRegion"),
			Name:           texts.Draw(t, "name"),
			Arch:           text("arch"),
			VCPU:           rapid.Ptr(rapid.Int(), true).Draw(t, "vcpu"),
			MemoryGiB:      rapid.Ptr(rapid.Float64(), true).Draw(t, "memory"),
			Availability:   model.Availability(texts.Draw(t, "availability")),
			GPU:            &model.GPU{Model: texts.Draw(t, "gpu"), Count: rapid.IntRange(-1, 3000).Draw(t, "gpus")},
			Price:          &model.Price{Hourly: text("hourly"), Monthly: text("monthly"), Currency: rapid.OneOf(rapid.Just("EUR"), texts).Draw(t, "currency")},
		}
		got, err := CheckOffers([]*model.Offer{o})
		if err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || e.Class != InvalidResponse {
				t.Fatalf("got %v", err)
			}
			return
		}
		if _, err := json.Marshal(got); err != nil {
			t.Fatal(err)
		}
		g := got[0]
		for _, s := range []string{g.Name, g.Region, g.ProviderRegion, g.GPU.Model, g.GPU.Vendor} {
			if clean(s, maxName) != s {
				t.Fatalf("%q is shown", s)
			}
		}
		if g.Price != nil && rankedAs(g.Price) == 2 {
			t.Fatalf("price %+v", g.Price)
		}
		SortOffers(got)
	})
}

func rankedAs(p *model.Price) int {
	group, _ := rank(p)
	return group
}

func TestCheckMachines(t *testing.T) {
	t.Parallel()
	got, err := CheckMachines([]*model.Machine{
		{ID: "b", Kind: model.VPS, Region: "FSN1", Status: "on\x00", Addresses: []string{"10.0.0.1", "<script>", "::1"}, OfferID: new("a b")},
		{ID: "a", Kind: model.Metal},
	})
	want := []*model.Machine{
		{ID: "a", Kind: model.Metal, Addresses: []string{}},
		{ID: "b", Kind: model.VPS, Region: "fsn1", Status: "on", Addresses: []string{"10.0.0.1", "::1"}},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	for name, machines := range map[string][]*model.Machine{
		"null": {nil}, "twice": {{ID: "a", Kind: model.VPS}, {ID: "a", Kind: model.VPS}}, "id": {{ID: "a b", Kind: model.VPS}}, "kind": {{ID: "a"}},
	} {
		if _, err := CheckMachines(machines); ClassOf(err) != InvalidResponse {
			t.Errorf("%s: %v", name, err)
		}
	}
}
