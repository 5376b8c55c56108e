package libvirt_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	golibvirt "github.com/digitalocean/go-libvirt"

	"better/compute/apitest/site"
	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/libvirt"
	"better/compute/provider/providertest"
)

func TestMain(m *testing.M) { site.Main(m) }

func driver(timeout time.Duration) *libvirt.Driver {
	return libvirt.New(libvirt.Options{Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: timeout})
}

func (s *server) client(config, key string, timeout time.Duration) provider.Client {
	c, err := driver(timeout).Open(context.Background(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(config), Secret: func(context.Context, string) (string, error) { return key, nil },
	})
	if err != nil {
		panic(err)
	}
	return c
}

func payload(generation int) provider.Payload {
	return provider.Payload{
		Generation: generation, JoinURL: "https://192.0.2.1:8443", CAPin: "sha256:" + strings.Repeat("0", 64), Token: fmt.Sprintf("join-%d", generation),
		AgentBinary: func(arch string) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader("agent of " + arch)), nil
		},
	}
}

// existing orders the account's own machine, of a name that is no operation's.
func (s *server) existing(t *testing.T, hypervisor string) string {
	t.Helper()
	c := s.client(s.config(hypervisor, s.port), s.key, 0).(provider.Orderer)
	if _, err := c.Order(t.Context(), provider.Order{OperationID: "existing", OfferID: "small:default"}); err != nil {
		t.Fatal(err)
	}
	claim, err := c.FindClaim(t.Context(), "existing")
	if err != nil {
		t.Fatal(err)
	}
	return claim.MachineID
}

func none(reason string) providertest.Situation { return providertest.Situation{Reason: reason} }

// TestConformance runs against libvirtd's test driver, whose machines are as real to libvirtd as any, but run nowhere.
func TestConformance(t *testing.T) {
	t.Parallel()
	s := startServer(t, golibvirt.TestDefault)
	machine := s.existing(t, "test")
	account := func(port int, key string, timeout time.Duration) *providertest.Account {
		return &providertest.Account{
			Client: s.client(s.config("test", port), key, timeout), Secret: key, OfferID: "small:default", MachineID: machine, Sold: s.sold,
		}
	}
	offering := func(offerID string) providertest.Situation {
		return providertest.Situation{Arrange: func(*testing.T) *providertest.Account {
			a := account(s.port, s.key, 0)
			a.OfferID = offerID
			return a
		}}
	}
	with := func(f fault) providertest.Situation {
		return providertest.Situation{Arrange: func(t *testing.T) *providertest.Account { t.Helper(); return account(s.proxy(t, f).port(), s.key, 0) }}
	}
	plain := s.config("test", s.port)
	lists, limits := none("libvirt gives its lists whole."), none("libvirt sets no limits and knows no money.")
	t.Run("all", func(t *testing.T) {
		providertest.Run(t, providertest.Config{
			Driver: driver(0), Configs: []string{plain},
			BadConfigs: []string{
				`{}`, strings.Replace(plain, "secret://hypervisor", "plain", 1), strings.Replace(plain, `"test"`, `"xen"`, 1),
				strings.Replace(plain, "small one", "small", 1), strings.Replace(plain, "BEGIN CERTIFICATE", "BEGIN NOTHING", 1),
			},
			Plain:      offering("small:default"),
			ThreePages: lists, EmptyLastPage: lists, RepeatedPage: lists,
			ExtraFields:  none("libvirt's protocol has no room for fields that nobody knows."),
			MissingPrice: offering("small:default"), UnknownGPU: none("The driver gives machines no GPUs."),
			OddIDs:     offering(provider.OfferID("small one", "default")),
			AnswerLost: with(fault{procedure: domainDefineXML, verdict: answerLost, once: true}),
			HalfAnswer: with(fault{procedure: domainDefineXML, verdict: halfAnswered, once: true}),
			OrderFails: with(fault{procedure: domainDefineXML, verdict: dropped, once: true}),
			Spoilt: providertest.SpoiltOrder{Arrange: func(t *testing.T, spoil providertest.Spoil) *providertest.Account {
				t.Helper()
				return account(s.proxy(t, spoilt(spoil)).port(), s.key, 0)
			}},
			OutOfStock: offering("huge:default"), OutOfStockLater: none("The driver looks before it orders."), OfferGone: offering("gone:default"),
			Quota: limits, Payment: limits, RateLimited: limits, RateLimitedFor: limits,
			Locked: with(fault{procedure: domainDefineXML, verdict: refused, code: uint32(golibvirt.ErrResourceBusy), once: true}),
			Unauthorized: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
				t.Helper()
				cert, key := newAuthority(t).sign("client", false)
				a := account(s.port, key, 0)
				a.Client = s.client(strings.Replace(plain, strings.ReplaceAll(s.cert, "\n", `\n`), strings.ReplaceAll(cert, "\n", `\n`), 1), key, 0)
				return a
			}},
			Forbidden: with(fault{verdict: refused, procedure: connectOpen, code: uint32(golibvirt.ErrAccessDenied)}),
			Down:      with(fault{verdict: dropped}),
			Hangs: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
				t.Helper()
				return account(s.proxy(t, fault{verdict: hangs}).port(), s.key, 300*time.Millisecond)
			}},
			Garbage: with(fault{verdict: garbled}), InstallFails: none("The test driver runs nothing; TestInstall is with QEMU."),
		})
	})
	t.Run("nonsense", func(t *testing.T) { s.testNonsense(t) })
	t.Run("mutants", func(t *testing.T) { s.testMutants(t, machine) })
	t.Run("golden offer", func(t *testing.T) { testOffer(t, account(s.port, s.key, 0).Client) })
}

var mishaps = map[providertest.Mishap]verdict{
	providertest.NoAnswer: hangs, providertest.LostAnswer: answerLost, providertest.HalfOfIt: halfAnswered, providertest.Garbage: garbled,
}

func spoilt(s providertest.Spoil) fault {
	return fault{verdict: mishaps[s.By], after: s.Nth, once: true, met: func(procedure uint32) { s.Met(procedure == domainDefineXML) }}
}

// testNonsense: an answer of no length, or one too many, ends the call and nothing else.
func (s *server) testNonsense(t *testing.T) {
	t.Helper()
	for _, v := range []verdict{negative, answeredTwice, garbled} {
		c := s.client(s.config("test", s.proxy(t, fault{verdict: v}).port()), s.key, 0)
		if _, err := c.Offers(t.Context()); provider.ClassOf(err) != provider.InvalidResponse {
			t.Errorf("verdict %d: %v", v, err)
		}
	}
}

// testMutants changes bytes of answers. Whatever comes of it: no panic, no call without an end, and an error that is classed.
func (s *server) testMutants(t *testing.T, machine string) {
	t.Helper()
	count := 300
	if given, err := strconv.Atoi(os.Getenv("MUTATIONS")); err == nil {
		count = given
	}
	seed := uint64(time.Now().UnixNano())
	if given, err := strconv.ParseUint(os.Getenv("SEED"), 10, 64); err == nil && given != 0 {
		seed = given
	}
	p := s.proxy(t, fault{verdict: mutated})
	p.rand = rand.New(rand.NewPCG(seed, 0))
	c := s.client(s.config("test", p.port()), s.key, time.Second).(provider.Claimant)
	b := c.(provider.Bootstrapper)
	calls := []func() error{
		func() error { return c.Check(t.Context()) },
		func() error { _, err := c.Offers(t.Context()); return err },
		func() error { _, err := c.Machines(t.Context()); return err },
		func() error { _, err := c.Claims(t.Context()); return err },
		func() error { _, err := c.FindClaim(t.Context(), "existing"); return err },
		func() error { _, err := b.Identify(t.Context(), machine); return err },
		func() error { _, err := b.Prepare(t.Context(), machine); return err },
	}
	taken, refusals := 0, map[provider.Class]int{}
	for i := range count {
		// Some calls meet no other answer than the one to the login before.
		p.mu.Lock()
		p.fault.procedure = []uint32{0, 4, 6, 14, 23, 24, 102, 212, 273}[p.rand.IntN(9)]
		p.mu.Unlock()
		err := calls[i%len(calls)]()
		if _, classed := err.(*provider.Error); err != nil && !classed {
			t.Errorf("call %d: %v is not classed", i, err)
		}
		if err == nil {
			taken++
			continue
		}
		refusals[provider.ClassOf(err)]++
	}
	verdict := map[bool]string{true: "FAIL", false: "PASS"}[t.Failed()]
	t.Logf("provider-mutants provider=libvirt answers=%d taken=%d refused=%v %s seed=%d", count, taken, refusals, verdict, seed)
}

func testOffer(t *testing.T, c provider.Client) {
	t.Helper()
	offers, err := c.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(offers, func(o *model.Offer) bool { return o.ID == "small:default" })
	got, err := json.Marshal(offers[i])
	if err != nil {
		t.Fatal(err)
	}
	want := `"vcpu":1,"memoryGiB":0.001953125,"disks":[{"sizeGB":2,"count":1,"media":"unknown"}],"gpu":null,` +
		`"price":{"hourly":"0.02","monthly":"9.5","setup":null,"currency":"EUR","taxIncluded":false},"availability":"available",`
	if !strings.Contains(string(got), want) || !strings.HasPrefix(string(got), `{"id":"small:default","kind":"vps","region":"default",`) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestInstall has QEMU run a machine, whose disk nothing boots from: that it got its disk and its seed is what the driver owes.
func TestInstall(t *testing.T) {
	t.Parallel()
	s := startServer(t, golibvirt.QEMUSystem, "qemu-system-x86_64", "qemu-img", "isoinfo")
	s.pool(t)
	a := &providertest.Account{Client: s.client(s.config("qemu", s.port), s.key, 0), MachineID: s.existing(t, "qemu")}
	b := a.Client.(interface {
		provider.Bootstrapper
		provider.Orderer
	})
	if status, err := b.InstallStatus(t.Context(), a.MachineID, "boot"); err != nil || status.State != provider.InstallFailed {
		t.Errorf("a machine that is off: %+v, %v", status, err)
	}
	for generation := range 2 {
		if p, err := b.Prepare(t.Context(), a.MachineID); err != nil || !p.Ready {
			t.Fatalf("prepare: %+v, %v", p, err)
		}
		ref, err := b.Install(t.Context(), a.MachineID, payload(generation))
		if err != nil {
			t.Fatal(err)
		}
		if status, err := b.InstallStatus(t.Context(), a.MachineID, ref); err != nil || status.State != provider.InstallSucceeded {
			t.Errorf("install: %+v, %v", status, err)
		}
	}
	s.testDisks(t)
	for range 2 {
		if err := b.Release(t.Context(), "existing", a.MachineID); err != nil {
			t.Errorf("release: %v", err)
		}
	}
	if left, _ := os.ReadDir(s.dir + "/pool"); len(left) != 1 || s.sold("existing") != 0 {
		t.Errorf("%d volumes are left, and %d machines", len(left), s.sold("existing"))
	}
}

// pool makes a storage pool with an image in it.
func (s *server) pool(t *testing.T) {
	t.Helper()
	if err := os.Mkdir(s.dir+"/pool", 0o700); err != nil {
		t.Fatal(err)
	}
	output(t, "qemu-img", "create", "-f", "qcow2", s.dir+"/pool/debian.qcow2", "1G")
	_, err := s.operator.StoragePoolCreateXML("<pool type='dir'><name>machines</name><target><path>"+s.dir+"/pool</path></target></pool>", 0)
	if err != nil {
		t.Fatal(err)
	}
}

func output(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}

// testDisks looks at what the machine was given with other people's programs.
func (s *server) testDisks(t *testing.T) {
	t.Helper()
	disk := output(t, "qemu-img", "info", "--force-share", "--output=json", s.dir+"/pool/existing.qcow2")
	if !strings.Contains(disk, `"virtual-size": 2000000000`) || !strings.Contains(disk, `pool/debian.qcow2"`) {
		t.Errorf("the disk: %s", disk)
	}
	seed := s.dir + "/pool/existing-seed.iso"
	if label := output(t, "isoinfo", "-d", "-i", seed); !strings.Contains(label, "Volume id: cidata") {
		t.Errorf("the seed: %s", label)
	}
	got := output(t, "isoinfo", "-x", "/USER-DATA.;1", "-i", seed)
	if !strings.HasPrefix(got, "#!/bin/sh\n") || !strings.Contains(got, "join-1") || strings.Contains(got, "join-0") || !strings.Contains(got, "https://192.0.2.1:8443/v1/agent") {
		t.Errorf("user data %.300s", got)
	}
	if meta := output(t, "isoinfo", "-x", "/META-DATA.;1", "-i", seed); !strings.Contains(meta, `-1"}`) {
		t.Errorf("meta data %s", meta)
	}
}
