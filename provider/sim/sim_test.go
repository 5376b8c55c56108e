package sim_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"better/compute/internal/leaktest"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/providertest"
	"better/compute/provider/sim"
	"better/compute/provider/sim/cloud"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const secret = "canary-2f6e0b"

// bundle is a cloud of a test's own, and an account on it.
type bundle struct {
	*providertest.Account
	t      *testing.T
	cloud  *cloud.Cloud
	faults *providertest.Faults // of the wire; those of the cloud are fault's
	dir    string
	url    string
}

// setup starts a cloud. The timeout is the driver's.
func setup(t *testing.T, timeout time.Duration, change func(*cloud.Options)) *bundle {
	t.Helper()
	return setupWay(t, model.ClaimToken, timeout, change)
}

func setupWay(t *testing.T, mode model.ClaimMode, timeout time.Duration, change func(*cloud.Options)) *bundle {
	t.Helper()
	options := cloud.Options{
		Dir: t.TempDir(), AgentBinary: "/bin/true", ReadyDelay: time.Millisecond, InstallDelay: time.Millisecond, ListLag: 20 * time.Millisecond,
		PageSize: 50,
	}
	if change != nil {
		change(&options)
	}
	c, err := cloud.Open(options)
	if err != nil {
		t.Fatal(err)
	}
	faults := providertest.NewFaults(c.Handler())
	server := httptest.NewServer(faults)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing the cloud: %v", err)
		}
		server.Close()
	})
	b := &bundle{t: t, cloud: c, faults: faults, dir: options.Dir, url: server.URL}
	b.Account = &providertest.Account{
		Client: openClient(t, sim.New(sim.Options{Endpoint: server.URL, Timeout: timeout, ClaimMode: mode}), `{"apiToken":"secret://sim"}`),
		Secret: secret, OfferID: "vps-small:fra1", Sold: b.sold, Payload: payload,
	}
	t.Cleanup(func() { _ = b.Client.Close() })
	b.MachineID = b.existing()
	return b
}

func openClient(t *testing.T, driver *sim.Driver, config string) provider.Client {
	t.Helper()
	client, err := driver.Open(t.Context(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(config),
		Secret: func(_ context.Context, reference string) (string, error) {
			if reference != "secret://sim" {
				return "", provider.Errorf(provider.SecretUnresolved, "There is no such secret.")
			}
			return secret, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func payload(generation int) provider.Payload {
	return provider.Payload{
		Generation: generation, JoinURL: "https://127.0.0.1:1", CAPin: "sha256:" + strings.Repeat("0", 64),
		Token: fmt.Sprintf("join-%d", generation),
	}
}

// sold asks the cloud's ledger.
func (b *bundle) sold(operationID string) int {
	b.t.Helper()
	entries, err := cloud.ReadLedger(b.dir)
	if err != nil {
		b.t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		switch {
		case e.Name != operationID:
		case e.Kind == cloud.EntryOrder:
			n++
		case e.Kind == cloud.EntryRelease:
			n--
		}
	}
	return n
}

// existing is the id of the machine that every project has from the start.
func (b *bundle) existing() string {
	b.t.Helper()
	list, err := b.Client.Machines(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	i := slices.IndexFunc(list, func(m *model.Machine) bool { return m.Name == "existing-vps" })
	if i < 0 {
		b.t.Fatalf("no existing machine in %v", list)
	}
	return list[i].ID
}

func (b *bundle) fault(rules ...cloud.Fault) {
	b.t.Helper()
	body, err := json.Marshal(rules)
	if err != nil {
		b.t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(b.t.Context(), "POST", b.url+"/v1/_faults", bytes.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	request.Header.Set(cloud.AdminHeader, "test")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		b.t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		b.t.Fatalf("setting the faults: status %d", response.StatusCode)
	}
}

// onOrder spoils the next order, onNext the next call, always every call.
func onOrder(kind string) cloud.Fault {
	return cloud.Fault{Kind: kind, Match: cloud.Match{Method: "POST", Path: "/v1/machines"}}
}
func onNext(kind string) cloud.Fault { return cloud.Fault{Kind: kind} }
func always(kind string) cloud.Fault { return cloud.Fault{Kind: kind, Count: -1} }

// arranged is how situations come about with one way of ordering.
type arranged model.ClaimMode

func (m arranged) with(faults ...cloud.Fault) providertest.Situation {
	return m.changed(nil, faults...)
}

func (m arranged) changed(change func(*cloud.Options), faults ...cloud.Fault) providertest.Situation {
	return providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
		t.Helper()
		b := setupWay(t, model.ClaimMode(m), 0, change)
		b.fault(faults...)
		return b.Account
	}}
}

func fivePerPage(o *cloud.Options) { o.PageSize = 5 }

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, mode := range []model.ClaimMode{model.ClaimToken, model.ClaimUniqueName, model.ClaimLabel, model.ClaimNone} {
		t.Run(string(mode), func(t *testing.T) { t.Parallel(); testConformance(t, mode) })
	}
}

func testConformance(t *testing.T, mode model.ClaimMode) {
	t.Helper()
	in := arranged(mode)
	providertest.Run(t, providertest.Config{
		Driver:     sim.New(sim.Options{Endpoint: "http://127.0.0.1:1", ClaimMode: mode}),
		Configs:    []string{`{"apiToken":"secret://sim"}`, `{"apiToken":"env://SIM","region":"us-east-1"}`},
		BadConfigs: []string{`{}`, `{"apiToken":""}`, `{"apiToken":7}`, `{"apiToken":"a://b","region":"US East"}`, `{"apiToken":"a://b","endpoint":"http://evil"}`},
		Plain:      in.with(),

		ThreePages:    in.changed(fivePerPage),
		EmptyLastPage: in.changed(fivePerPage, always(cloud.FaultEmptyLastPage)),
		RepeatedPage:  in.changed(fivePerPage, always(cloud.FaultRepeatedPage)),
		ExtraFields:   in.with(always(cloud.FaultExtraFields)),
		MissingPrice:  in.with(),
		UnknownGPU: in.changed(func(o *cloud.Options) {
			o.Catalogue = cloud.Catalogue()
			o.Catalogue[0].GPU = &cloud.GPU{Name: "Wafer™ (scale) engine/9 of a very long name indeed", Count: 1}
		}),
		OddIDs: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setupWay(t, mode, 0, nil)
			b.OfferID = "metal-rtx_2F6000_40hel1"
			return b.Account
		}},

		AnswerLost: in.with(onOrder(cloud.FaultResetAfter)),
		HalfAnswer: in.with(onOrder(cloud.FaultHalfJSON)),
		OrderFails: in.with(onOrder(cloud.Fault500Before)),
		Spoilt: providertest.SpoiltOrder{Arrange: func(t *testing.T, s providertest.Spoil) *providertest.Account {
			t.Helper()
			b := setupWay(t, mode, 0, nil)
			b.faults.SpoiltBy(s, func(r *http.Request) bool { return r.Method == http.MethodPost })
			return b.Account
		}},
		OutOfStock: in.with(onOrder(cloud.FaultOutOfStock)),
		OfferGone:  in.with(onOrder(cloud.FaultOfferGone)),

		OutOfStockLater: providertest.Situation{Reason: "the cloud takes no order that it cannot fill"},
		Locked:          providertest.Situation{Reason: "the cloud does one thing after the other, and has whoever asks wait"},

		Quota:   in.changed(func(o *cloud.Options) { o.Quota = 2 }),
		Payment: in.with(onOrder(cloud.FaultPayment)),

		Unauthorized:   in.with(always(cloud.FaultUnauthorized)),
		Forbidden:      in.with(onNext(cloud.FaultForbidden)),
		RateLimited:    in.with(onNext(cloud.Fault429)),
		RateLimitedFor: in.with(cloud.Fault{Kind: cloud.Fault429RetryAfter, Delay: "7s"}),
		Down:           in.with(always(cloud.Fault503)),
		Hangs: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setupWay(t, mode, 300*time.Millisecond, nil)
			b.fault(onNext(cloud.FaultHang))
			return b.Account
		}},
		Garbage:      in.with(always(cloud.FaultHTML)),
		InstallFails: in.with(onOrder(cloud.FaultInstallFails)),
	})
}

// TestEveryFaultOfAnOrder checks for each fault what the driver says, and that what it says about money is true.
func TestEveryFaultOfAnOrder(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]struct {
		class provider.Class // empty: no error
		sold  int
	}{
		cloud.FaultHang:          {provider.UnknownOutcome, 0},
		cloud.FaultHangAfter:     {provider.UnknownOutcome, 1},
		cloud.FaultReset:         {provider.UnknownOutcome, 0},
		cloud.FaultResetAfter:    {provider.UnknownOutcome, 1},
		cloud.Fault500Before:     {provider.UnknownOutcome, 0},
		cloud.Fault500After:      {provider.UnknownOutcome, 1},
		cloud.Fault503:           {provider.UnknownOutcome, 0},
		cloud.FaultSlowBody:      {provider.UnknownOutcome, 1},
		cloud.FaultDuplicate:     {"", 1},
		cloud.FaultHalfJSON:      {provider.UnknownOutcome, 1},
		cloud.FaultHTML:          {provider.UnknownOutcome, 1},
		cloud.FaultWrongID:       {"", 1},
		cloud.FaultExtraFields:   {"", 1},
		cloud.FaultClockOff:      {"", 1},
		cloud.FaultUnauthorized:  {provider.Auth, 0},
		cloud.FaultForbidden:     {provider.Forbidden, 0},
		cloud.Fault429:           {provider.RateLimited, 0},
		cloud.Fault429RetryAfter: {provider.RateLimited, 0},
		cloud.FaultQuota:         {provider.Quota, 0},
		cloud.FaultPayment:       {provider.Payment, 0},
		cloud.FaultOutOfStock:    {provider.OutOfStock, 0},
		cloud.FaultOfferGone:     {provider.OfferGone, 0},
		cloud.FaultLateListing:   {"", 1},
		cloud.FaultLostLabel:     {"", 1},
		cloud.FaultLostOrder:     {provider.UnknownOutcome, 1},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			timeout := patience
			switch kind {
			case cloud.FaultHang, cloud.FaultHangAfter, cloud.FaultSlowBody:
				timeout = 5 * time.Second
			}
			b := setup(t, timeout, nil)
			fault := onOrder(kind)
			switch kind {
			case cloud.FaultSlowBody:
				fault.Delay = "1h"
			case cloud.FaultLateListing:
				fault.Delay = "20ms"
			}
			b.fault(fault)
			client := b.Client.(provider.Orderer)
			_, err := client.Order(t.Context(), provider.Order{OperationID: "op", OfferID: b.OfferID})
			if err == nil && want.class != "" || err != nil && provider.ClassOf(err) != want.class {
				t.Errorf("order: %v, want class %q", err, want.class)
			}
			if n := b.sold("op"); n != want.sold {
				t.Fatalf("%d sold, want %d", n, want.sold)
			}
			claim := b.awaitClaim(client, want.sold == 1)
			if claim == nil {
				return
			}
			if _, err := b.Client.(provider.Bootstrapper).Identify(t.Context(), claim.MachineID); err != nil && provider.ClassOf(err) != provider.Unavailable {
				t.Errorf("the claim's machine is not there: %v", err)
			}
			if err := client.Release(t.Context(), "op", claim.MachineID); err != nil || b.sold("op") != 0 {
				t.Errorf("release: %v, %d sold", err, b.sold("op"))
			}
		})
	}
}

// patience bounds every wait for what happens by itself, on a machine that is busy. Success waits for nothing.
const patience = 3 * time.Minute

func (b *bundle) awaitClaim(client provider.Orderer, there bool) *provider.Claim {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		claim, err := client.FindClaim(b.t.Context(), "op")
		if err != nil {
			b.t.Fatalf("find claim: %v", err)
		}
		if (claim != nil) == there || time.Now().After(deadline) {
			if (claim != nil) != there {
				b.t.Errorf("claim %+v", claim)
			}
			return claim
		}
	}
}

func TestPendingMachine(t *testing.T) {
	t.Parallel()
	b := setup(t, 0, nil)
	b.fault(onOrder(cloud.FaultNeverReady))
	client := b.Client.(interface {
		provider.Orderer
		provider.Bootstrapper
	})
	if _, err := client.Order(t.Context(), provider.Order{OperationID: "op", OfferID: b.OfferID}); err != nil {
		t.Fatal(err)
	}
	claim := b.awaitClaim(client, true)
	if claim.State != provider.ClaimPending || claim.MachineID == "" {
		t.Errorf("claim %+v", claim)
	}
	if _, err := client.Identify(t.Context(), claim.MachineID); provider.ClassOf(err) != provider.Unavailable {
		t.Errorf("identify: %v", err)
	}
	if p, err := client.Prepare(t.Context(), claim.MachineID); err != nil || p.Ready || p.Wait <= 0 {
		t.Errorf("prepare: %+v, %v", p, err)
	}
	if _, err := client.Install(t.Context(), claim.MachineID, payload(1)); provider.ClassOf(err) != provider.Conflict {
		t.Errorf("install: %v", err)
	}
	if err := client.Release(t.Context(), "op", claim.MachineID); err != nil || b.sold("op") != 0 {
		t.Errorf("release: %v", err)
	}
	if _, err := client.Order(t.Context(), provider.Order{OperationID: "op", OfferID: b.OfferID}); provider.ClassOf(err) != provider.Fatal {
		t.Errorf("order after the release: %v", err)
	}
}

func TestRepeatedInstall(t *testing.T) {
	t.Parallel()
	b := setup(t, 0, nil)
	client := b.Client.(provider.Bootstrapper)
	b.fault(onOrder(cloud.FaultInstallHangs))
	refs := map[string]bool{}
	for _, generation := range []int{1, 1, 2, 2} {
		ref, err := client.Install(t.Context(), b.MachineID, payload(generation))
		if err != nil {
			t.Fatal(err)
		}
		refs[ref] = true
	}
	if len(refs) != 2 {
		t.Errorf("two generations, delivered twice each, are installs %v", refs)
	}
	if _, err := client.InstallStatus(t.Context(), b.MachineID, "i-none"); provider.ClassOf(err) != provider.NotFound {
		t.Errorf("unknown install: %v", err)
	}
}

func TestOffersInOurWords(t *testing.T) {
	t.Parallel()
	b := setup(t, 0, nil)
	list, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range list {
		text := fmt.Sprintf("%s %s %s", o.Kind, o.Region, o.Availability)
		if o.GPU != nil {
			text += fmt.Sprintf(" %dx%s %s", o.GPU.Count, o.GPU.Model, o.GPU.Vendor)
			if o.GPU.MemoryGiB != nil {
				text += fmt.Sprintf(" %gGiB", *o.GPU.MemoryGiB)
			}
		}
		if o.Price == nil {
			text += " unpriced"
		}
		got[o.ID] = text
	}
	for id, want := range map[string]string{
		"vps-small:fra1":            "vps fra1 available",
		"vps-large:nyc-2":           "vps nyc-2 out_of_stock",
		"gpu-l40s-1:us-east-1":      "vps us-east-1 limited 1xL40S nvidia 48GiB",
		"gpu-a100-40-1:us-east-1":   "vps us-east-1 available 1xA100-40GB nvidia 40GiB",
		"metal-a100-80x4:us-east-1": "metal us-east-1 available 4xA100-80GB nvidia 80GiB",
		"metal-h100x8:us-east-1":    "metal us-east-1 available 8xH100 nvidia 80GiB",
		"metal-rtx_2F6000_40hel1":   "metal hel1 available 2xRTX-PRO-6000 nvidia 96GiB",
		"metal-gh200:nyc-2":         "metal nyc-2 unknown 1xGH200 nvidia 96GiB unpriced",
	} {
		if got[id] != want {
			t.Errorf("%s is %q, want %q", id, got[id], want)
		}
	}
	if len(list) != len(cloud.Catalogue()) {
		t.Errorf("%d offers", len(list))
	}
}

func TestRegionAndEndpoint(t *testing.T) {
	t.Parallel()
	b := setup(t, 0, nil)
	driver := sim.New(sim.Options{Endpoint: "http://127.0.0.1:1", Endpoints: []string{b.url}})
	client := openClient(t, driver, `{"apiToken":"secret://sim","region":"hel1","endpoint":"`+b.url+`"}`)
	defer client.Close()
	list, err := client.Offers(t.Context())
	if err != nil || len(list) == 0 {
		t.Fatalf("%d offers, %v", len(list), err)
	}
	for _, o := range list {
		if o.Region != "hel1" {
			t.Errorf("offer of region %s", o.Region)
		}
	}
	if origins := driver.Manifest().Endpoints; len(origins) != 1 || origins[0] != b.url {
		t.Errorf("endpoints %v", origins)
	}
	for _, config := range []string{`{"apiToken":"a://b","endpoint":"http://evil.example"}`, `{"apiToken":7}`, `nonsense`} {
		_, err := driver.Open(t.Context(), provider.Account{Config: json.RawMessage(config)})
		if provider.ClassOf(err) != provider.InvalidConfig {
			t.Errorf("config %s: %v", config, err)
		}
	}
}

// TestRealAgent installs the real bcd and waits until it has read what was delivered, made its key and tried to join.
func TestRealAgent(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "bcd")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "better/compute/cmd/bcd").CombinedOutput(); err != nil {
		t.Fatalf("building bcd: %v: %s", err, out)
	}
	joined := make(chan struct{}, 1)
	listener := httptest.NewUnstartedServer(http.NotFoundHandler())
	listener.TLS = &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			select {
			case joined <- struct{}{}:
			default:
			}
			return nil, errors.New("later")
		},
	}
	listener.Config.ErrorLog = log.New(io.Discard, "", 0)
	listener.StartTLS()
	t.Cleanup(listener.Close)

	b := setup(t, 0, func(o *cloud.Options) { o.AgentBinary = binary })
	client := b.Client.(provider.Bootstrapper)
	delivery := payload(1)
	delivery.JoinURL = listener.URL
	ref, err := client.Install(t.Context(), b.MachineID, delivery)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-joined:
	case <-time.After(patience):
		status, err := client.InstallStatus(t.Context(), b.MachineID, ref)
		t.Fatalf("the agent did not try to join; install %+v, %v", status, err)
	}
	root := filepath.Join(b.dir, "machines", b.MachineID, "root")
	for path, mode := range map[string]os.FileMode{"etc/bcd/token": 0o600, "etc/bcd/config.json": 0o600, "var/lib/bcd": 0o700 | os.ModeDir} {
		if info, err := os.Stat(filepath.Join(root, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if err := client.Uninstall(t.Context(), b.MachineID); err != nil {
		t.Errorf("uninstall: %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, "etc/bcd")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the token is still there: %v", err)
	}
}
