package providertest

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/model"
	"better/compute/provider"
)

var (
	idPattern     = regexp.MustCompile(`\A[A-Za-z0-9._:-]{1,128}\z`)
	regionPattern = regexp.MustCompile(`\A[a-z0-9][a-z0-9._-]{0,62}\z`)
	gpuPattern    = regexp.MustCompile(`\A[A-Za-z0-9-]{1,32}\z`)
)

// offers lists them and checks each by itself.
func offers(t *testing.T, a *Account) map[string]*model.Offer {
	t.Helper()
	list, err := a.Client.Offers(limit(t))
	if err != nil {
		t.Fatalf("offers: %v", err)
	}
	if _, err := provider.CheckOffers(list); err != nil {
		t.Errorf("the offers are not fit to show: %v", err)
	}
	byID := map[string]*model.Offer{}
	for _, o := range list {
		byID[o.ID] = o
		checkOffer(t, o)
	}
	return byID
}

// checkOffer is stricter than what is done for callers: a driver does not leave to others what it can know.
func checkOffer(t *testing.T, o *model.Offer) {
	t.Helper()
	wrong := func(what string, value any) {
		t.Helper()
		t.Errorf("offer %q: %s %v", o.ID, what, value)
	}
	if !regionPattern.MatchString(o.Region) || o.ProviderRegion == "" {
		wrong("region", []string{o.Region, o.ProviderRegion})
	}
	if o.Name == "" || o.ObservedAt.IsZero() || o.Disks == nil {
		wrong("has no name, time or (empty) disks:", o)
	}
	if o.Arch != nil && *o.Arch != "amd64" && *o.Arch != "arm64" {
		wrong("arch", *o.Arch)
	}
	if o.VCPU != nil && *o.VCPU <= 0 || o.MemoryGiB != nil && *o.MemoryGiB <= 0 {
		wrong("size that means unknown and is not nil:", o)
	}
	for _, d := range o.Disks {
		if d.Media != "nvme" && d.Media != "ssd" && d.Media != "hdd" && d.Media != "unknown" {
			wrong("disk", *d)
		}
	}
	if o.GPU != nil && !gpuPattern.MatchString(o.GPU.Model) {
		wrong("GPU", *o.GPU)
	}
	if o.Price != nil && o.Price.Hourly == nil && o.Price.Monthly == nil {
		wrong("price", *o.Price)
	}
	switch o.Availability {
	case model.Available, model.Limited, model.OutOfStock, model.AvailabilityUnknown:
	default:
		wrong("availability", o.Availability)
	}
}

func machines(t *testing.T, a *Account) map[string]*model.Machine {
	t.Helper()
	list, err := a.Client.Machines(limit(t))
	if err != nil {
		t.Fatalf("machines: %v", err)
	}
	if _, err := provider.CheckMachines(list); err != nil {
		t.Errorf("the machines are not fit to show: %v", err)
	}
	byID := map[string]*model.Machine{}
	for _, m := range list {
		byID[m.ID] = m
		if m.Addresses == nil || m.Status == "" {
			t.Errorf("machine %+v", *m)
		}
		if m.OfferID != nil && !idPattern.MatchString(*m.OfferID) {
			t.Errorf("machine %s: offer id %q", m.ID, *m.OfferID)
		}
	}
	return byID
}

// lasting is what of an offer must be equal in two listings.
func lasting(offers map[string]*model.Offer) map[string]string {
	kept := map[string]string{}
	for id, o := range offers {
		c := *o
		c.ObservedAt, c.Availability = model.Time{}, ""
		text, _ := json.Marshal(c)
		kept[id] = string(text)
	}
	return kept
}

func testOffers(t *testing.T, a *Account) {
	if err := a.Client.Check(limit(t)); err != nil {
		t.Errorf("check: %v", err)
	}
	first := offers(t, a)
	if len(first) == 0 {
		t.Fatal("no offers")
	}
	if a.OfferID != "" && first[a.OfferID] == nil {
		t.Errorf("offer %s is not listed", a.OfferID)
	}
	if diff := cmp.Diff(lasting(first), lasting(offers(t, a))); diff != "" {
		t.Errorf("a second listing differs (-first +second):\n%s", diff)
	}
}

// testFilters looks for each offer by what it says of itself: a driver whose words are not those that callers ask in has offers that
// nobody finds.
func testFilters(t *testing.T, a *Account) {
	list, err := a.Client.Offers(limit(t))
	if err != nil {
		t.Fatalf("offers: %v", err)
	}
	for _, o := range list {
		q := &model.OfferQuery{Kind: &o.Kind, Region: new(strings.ToUpper(o.Region)), MinVcpu: o.VCPU}
		if o.MemoryGiB != nil {
			q.MinMemoryGiB = new(int(*o.MemoryGiB))
		}
		if o.GPU != nil {
			q.GpuModel, q.MinGpus = &o.GPU.Model, &o.GPU.Count
		}
		found := provider.FilterOffers(list, q)
		if !slices.Contains(found, o) {
			t.Errorf("offer %s is not found by its own facts", o.ID)
		}
		for _, other := range found {
			if other.Kind != o.Kind || other.Region != o.Region || o.VCPU != nil && *other.VCPU < *o.VCPU {
				t.Errorf("offer %s is found by the facts of %s", other.ID, o.ID)
			}
		}
	}
}

func testMachines(t *testing.T, a *Account) {
	if got := machines(t, a); a.MachineID != "" && got[a.MachineID] == nil {
		t.Errorf("machine %s is not listed", a.MachineID)
	}
}

// testSameLists compares with a provider in good health.
func testSameLists(t *testing.T, c Config, a *Account) {
	plain := c.Plain.Arrange(t)
	defer func() { _ = plain.Client.Close() }()
	if diff := cmp.Diff(lasting(offers(t, plain)), lasting(offers(t, a))); diff != "" {
		t.Errorf("offers (-plain +here):\n%s", diff)
	}
	if want, got := len(machines(t, plain)), len(machines(t, a)); want != got {
		t.Errorf("%d machines, want %d", got, want)
	}
}

// testRepeatedPage is about an end: with the items that came, or with an error, but not never.
func testRepeatedPage(t *testing.T, a *Account) {
	list, err := a.Client.Offers(limit(t))
	if err != nil {
		failed(t, a, "offers", err, provider.InvalidResponse)
		return
	}
	seen := map[string]bool{}
	for _, o := range list {
		if seen[o.ID] {
			t.Errorf("offer %s comes twice", o.ID)
		}
		seen[o.ID] = true
	}
}

func testMissingPrice(t *testing.T, a *Account) {
	for _, o := range offers(t, a) {
		if o.Price == nil {
			return
		}
	}
	t.Error("every offer has a price")
}

func testUnknownGPU(t *testing.T, a *Account) {
	for _, o := range offers(t, a) {
		if o.GPU != nil && o.GPU.Vendor == "" {
			return
		}
	}
	t.Error("no offer has a GPU whose vendor is not known")
}

// testEndedContext makes every call with a context that has ended: none may do anything, or wait.
func testEndedContext(t *testing.T, a *Account) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	classes := []provider.Class{provider.Timeout, provider.Unavailable, provider.UnknownOutcome}
	failed(t, a, "check", a.Client.Check(ctx), classes...)
	_, err := a.Client.Offers(ctx)
	failed(t, a, "offers", err, classes...)
	_, err = a.Client.Machines(ctx)
	failed(t, a, "machines", err, classes...)
	if o, ok := a.Client.(provider.Orderer); ok {
		id := operation(t, "a")
		_, err = o.Order(ctx, provider.Order{OperationID: id, OfferID: a.OfferID})
		failed(t, a, "order", err, classes...)
		if n := a.Sold(id); n != 0 {
			t.Errorf("%d machines were sold", n)
		}
		_, err = o.FindClaim(ctx, id)
		failed(t, a, "find claim", err, provider.Timeout, provider.Unavailable)
	}
}

// testSecretUnresolved opens an account whose secret cannot be had. Opening may not ask for it.
func testSecretUnresolved(t *testing.T, c Config) {
	client, err := c.Driver.Open(t.Context(), provider.Account{
		ID: "pacct_test", Config: []byte(c.Configs[0]),
		Secret: func(context.Context, string) (string, error) {
			return "", provider.Errorf(provider.SecretUnresolved, "There is no such secret.")
		},
	})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	defer func() { _ = client.Close() }()
	failed(t, &Account{}, "check", client.Check(limit(t)), provider.SecretUnresolved)
	_, err = client.Offers(limit(t))
	failed(t, &Account{}, "offers", err, provider.SecretUnresolved)
}
