package provider

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"better/compute/model"
)

func TestGPUQueries(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, query string
		want        bool
	}{
		{"A100-40GB", "A100", true},
		{"A100-80GB", "a100", true},
		{"A100-80GB", "A100-80GB", true},
		{"A100-80GB", "A10080GB", true},
		{"A100-80GB", "A100-80", false},
		{"A100-80GB", "A100-8", false},
		{"A100-80GB", "80GB", false},
		{"L40S", "L40", false},
		{"L40", "L40S", false},
		{"L40", "L40", true},
		{"A10", "A1", false},
		{"H100-NVL", "H100", true},
		{"RTX PRO 6000", "RTX-PRO-6000", true},
		{"RTX PRO 6000", "rtx", true},
		{"RTX_PRO.6000", "RTX-PRO", true},
		{"RTX-4090", "RTX4090", true},
		{"RTX4090", "RTX-4090", true},
		{"RTX4090", "RTX", false},
		{"H100", "-", false},
		{"", "H100", false},
	} {
		if got := matchesGPUModel(c.name, c.query); got != c.want {
			t.Errorf("%q finds %q: %v", c.query, c.name, got)
		}
	}
}

func TestFilterOffers(t *testing.T) {
	t.Parallel()
	offers := []*model.Offer{
		{ID: "bare", Kind: model.Metal, Region: "fsn1"},
		{ID: "small", Kind: model.VPS, Region: "us-east.1", VCPU: new(2), MemoryGiB: new(3.9)},
		{ID: "big", Kind: model.VPS, Region: "US East_1", VCPU: new(64), MemoryGiB: new(256.0)},
		{ID: "gpu", Kind: model.Metal, Region: "fsn1", VCPU: new(32), MemoryGiB: new(128.0), GPU: &model.GPU{Model: "A100-80GB", Count: 2}},
	}
	for name, c := range map[string]struct {
		query *model.OfferQuery
		want  []string
	}{
		"none":                        {nil, []string{"bare", "small", "big", "gpu"}},
		"empty":                       {&model.OfferQuery{}, []string{"bare", "small", "big", "gpu"}},
		"kind":                        {&model.OfferQuery{Kind: new(model.VPS)}, []string{"small", "big"}},
		"region, folded":              {&model.OfferQuery{Region: new("us_east-1")}, []string{"small", "big"}},
		"region is no prefix":         {&model.OfferQuery{Region: new("fsn")}, []string{}},
		"model alone is at least one": {&model.OfferQuery{GpuModel: new("A100")}, []string{"gpu"}},
		"model and number":            {&model.OfferQuery{GpuModel: new("A100"), MinGpus: new(3)}, []string{}},
		"number alone":                {&model.OfferQuery{MinGpus: new(2)}, []string{"gpu"}},
		"unknown meets 0":             {&model.OfferQuery{MinGpus: new(0), MinVcpu: new(0), MinMemoryGiB: new(0)}, []string{"bare", "small", "big", "gpu"}},
		"unknown meets no 1":          {&model.OfferQuery{MinVcpu: new(1)}, []string{"small", "big", "gpu"}},
		"memory is not rounded up":    {&model.OfferQuery{MinMemoryGiB: new(4)}, []string{"big", "gpu"}},
		"all hold":                    {&model.OfferQuery{Kind: new(model.Metal), MinVcpu: new(32), GpuModel: new("a100-80gb")}, []string{"gpu"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, ids(FilterOffers(offers, c.query))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func ids(offers []*model.Offer) []string {
	out := make([]string, len(offers))
	for i, o := range offers {
		out[i] = o.ID
	}
	return out
}

func TestSortOffers(t *testing.T) {
	t.Parallel()
	priced := func(id string, p *model.Price) *model.Offer { return &model.Offer{ID: id, Price: p} }
	offers := []*model.Offer{
		priced("z-none", nil),
		priced("a-setup", &model.Price{Setup: new("1"), Currency: "EUR"}),
		priced("monthly-5", &model.Price{Monthly: new("5"), Currency: "EUR"}),
		priced("monthly-49", &model.Price{Monthly: new("49.00"), Currency: "EUR"}),
		priced("hourly-9", &model.Price{Hourly: new("9"), Monthly: new("1"), Currency: "EUR"}),
		priced("hourly-10", &model.Price{Hourly: new("10.0"), Currency: "USD"}),
		priced("b-0.1", &model.Price{Hourly: new("0.1"), Currency: "EUR"}),
		priced("a-0.10", &model.Price{Hourly: new("0.10"), Currency: "EUR"}),
		priced("tiny", &model.Price{Hourly: new("0.099999999999999999"), Currency: "EUR"}),
		priced("not-a-figure", &model.Price{Hourly: new("1/2"), Currency: "EUR"}),
	}
	SortOffers(offers)
	want := []string{"tiny", "a-0.10", "b-0.1", "hourly-9", "hourly-10", "monthly-5", "monthly-49", "a-setup", "not-a-figure", "z-none"}
	if diff := cmp.Diff(want, ids(offers)); diff != "" {
		t.Error(diff)
	}
}

// TestOffersAgainstReference holds filter and order to another way of saying the same.
func TestOffersAgainstReference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		offers := rapid.SliceOfN(rapid.Custom(drawOffer), 0, 12).Draw(t, "offers")
		query := drawQuery(t)
		want := []*model.Offer{}
		for _, o := range offers {
			if naiveMatch(o, query) {
				want = append(want, o)
			}
		}
		for i := range want { // a selection sort
			for j := i + 1; j < len(want); j++ {
				if naiveLess(want[j], want[i]) {
					want[i], want[j] = want[j], want[i]
				}
			}
		}
		got := FilterOffers(offers, query)
		SortOffers(got)
		if !slices.EqualFunc(got, want, func(a, b *model.Offer) bool { return !naiveLess(a, b) && !naiveLess(b, a) }) {
			t.Fatalf("got %v, want %v", ids(got), ids(want))
		}
	})
}

func drawOffer(t *rapid.T) *model.Offer {
	o := &model.Offer{
		ID:        rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "id"),
		Kind:      rapid.SampledFrom([]model.MachineKind{model.Metal, model.VPS}).Draw(t, "kind"),
		Region:    rapid.SampledFrom([]string{"fsn1", "FSN-1", "us east", "us_east"}).Draw(t, "region"),
		VCPU:      rapid.SampledFrom([]*int{nil, new(1), new(4)}).Draw(t, "vcpu"),
		MemoryGiB: rapid.SampledFrom([]*float64{nil, new(math.NaN()), new(1.0), new(7.5), new(8.0)}).Draw(t, "memory"),
	}
	if rapid.Bool().Draw(t, "gpu") {
		o.GPU = &model.GPU{
			Model: rapid.SampledFrom([]string{"A100-40GB", "A100-80GB", "L40", "L40S", "RTX PRO 6000"}).Draw(t, "model"),
			Count: rapid.IntRange(1, 3).Draw(t, "count"),
		}
	}
	if rapid.Bool().Draw(t, "priced") {
		figures := []*string{nil, new("1"), new("1.0"), new("0.50"), new("10")}
		o.Price = &model.Price{
			Hourly:  rapid.SampledFrom(figures).Draw(t, "hourly"),
			Monthly: rapid.SampledFrom(figures).Draw(t, "monthly"), Currency: "EUR",
		}
	}
	return o
}

func drawQuery(t *rapid.T) *model.OfferQuery {
	return &model.OfferQuery{
		Kind:         rapid.SampledFrom([]*model.MachineKind{nil, new(model.Metal)}).Draw(t, "qkind"),
		Region:       rapid.SampledFrom([]*string{nil, nil, new("f.s.n-1"), new("us-east")}).Draw(t, "qregion"),
		GpuModel:     rapid.SampledFrom([]*string{nil, nil, new("a100"), new("L40"), new("RTX-PRO-6000"), new("A100-80")}).Draw(t, "qmodel"),
		MinGpus:      rapid.SampledFrom([]*int{nil, nil, new(0), new(2)}).Draw(t, "qgpus"),
		MinVcpu:      rapid.SampledFrom([]*int{nil, nil, new(0), new(4)}).Draw(t, "qvcpu"),
		MinMemoryGiB: rapid.SampledFrom([]*int{nil, nil, new(0), new(8)}).Draw(t, "qmemory"),
	}
}

var bare = strings.NewReplacer(" ", "", "_", "", ".", "", "-", "")

func naiveMatch(o *model.Offer, q *model.OfferQuery) bool {
	fold := func(s string) string { return bare.Replace(strings.ToUpper(s)) }
	vcpu, memory, gpus, ok := 0, 0.0, 0, true
	if o.VCPU != nil {
		vcpu = *o.VCPU
	}
	if o.MemoryGiB != nil && !math.IsNaN(*o.MemoryGiB) {
		memory = *o.MemoryGiB
	}
	if o.GPU != nil {
		gpus = o.GPU.Count
	}
	ok = ok && (q.Kind == nil || *q.Kind == o.Kind)
	ok = ok && (q.Region == nil || fold(*q.Region) == fold(o.Region))
	ok = ok && (q.MinVcpu == nil || vcpu >= *q.MinVcpu)
	ok = ok && (q.MinMemoryGiB == nil || memory >= float64(*q.MinMemoryGiB))
	ok = ok && (q.MinGpus == nil || gpus >= *q.MinGpus)
	if q.GpuModel != nil {
		found := false
		for i := range len(orEmpty(o.GPU)) + 1 {
			name := orEmpty(o.GPU)
			atWordEnd := i == len(name) || strings.ContainsRune(" _.-", rune(name[i]))
			found = found || atWordEnd && i > 0 && fold(name[:i]) == fold(*q.GpuModel)
		}
		ok = ok && found
	}
	return ok
}

func orEmpty(g *model.GPU) string {
	if g == nil {
		return ""
	}
	return g.Model
}

func naiveLess(a, b *model.Offer) bool {
	key := func(o *model.Offer) (int, *big.Float) {
		if o.Price != nil && o.Price.Hourly != nil {
			f, _ := strconv.ParseFloat(*o.Price.Hourly, 64)
			return 0, big.NewFloat(f)
		}
		if o.Price != nil && o.Price.Monthly != nil {
			f, _ := strconv.ParseFloat(*o.Price.Monthly, 64)
			return 1, big.NewFloat(f)
		}
		return 2, new(big.Float)
	}
	ga, pa := key(a)
	gb, pb := key(b)
	if ga != gb {
		return ga < gb
	}
	if c := pa.Cmp(pb); c != 0 {
		return c < 0
	}
	return a.ID < b.ID
}

func TestOfferID(t *testing.T) {
	t.Parallel()
	for _, c := range [][3]string{
		{"cpx22", "fsn1", "cpx22:fsn1"},
		{"cpx22", "", "cpx22"},
		{"RTX_4090.x1", "US-East", "RTX_4090.x1:US-East"},
	} {
		if got := OfferID(c[0], c[1]); got != c[2] {
			t.Errorf("%q in %q is %q", c[0], c[1], got)
		}
	}
	part := rapid.OneOf(rapid.StringMatching(`[A-Za-z0-9._:-]{0,90}`), rapid.StringMatching(`[a:/ \x00]{0,3}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		a, b := [2]string{part.Draw(t, "t1"), part.Draw(t, "r1")}, [2]string{part.Draw(t, "t2"), part.Draw(t, "r2")}
		ida, idb := OfferID(a[0], a[1]), OfferID(b[0], b[1])
		if !itemID.MatchString(ida) {
			t.Fatalf("%q: %q", a, ida)
		}
		if (a == b) != (ida == idb) {
			t.Fatalf("%q and %q: %q and %q", a, b, ida, idb)
		}
	})
}
