package providertest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/netns"
	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
)

// Rig makes accounts at a vendor's fake, for the tests of one driver. F is the fake.
type Rig[F http.Handler] struct {
	// Driver makes a driver that speaks to a fake on the URL.
	Driver func(url string, timeout time.Duration) provider.Driver
	// Config is the usual account's. SSHKey is the reference in it that stands for a private key; every other stands for Secret. A driver
	// without one logs in nowhere.
	Config, SSHKey, Secret string
	// Fake makes a fake as it usually is.
	Fake func() F
	// Description and Prefix are what Contract takes; a vendor without a description has none.
	Description, Prefix string
	// OfferID can be ordered, and MachineID is there; see Account.
	OfferID, MachineID string
	Sold               func(f F, operationID string) int
	// Place gives the machine, and those that are ordered from then on, an address; for drivers that log in.
	Place func(f F, address string)
}

// Options are what is special about one account.
type Options[F http.Handler] struct {
	Timeout time.Duration
	// Change is done to the fake before anything is asked.
	Change func(F)
	// Config, Key and OfferID are in the place of the usual ones.
	Config, Key, OfferID string
	// Host is the machine that is there; without one nobody is, and a driver that logs in has no machine to do so on.
	Host *netns.Host
	// Payload is in the place of one whose install succeeds.
	Payload func(generation int) provider.Payload
}

// Whole is a client that can do everything.
type Whole interface {
	provider.Bootstrapper
	provider.Claimant
}

// Bench is an account of a test's own.
type Bench[F http.Handler] struct {
	*Account
	Fake   F
	Faults *Faults // between the client and the fake
	URL    string
}

// Whole is the client, of a driver that can do everything.
func (b *Bench[F]) Whole() Whole { return b.Client.(Whole) }

// Bench makes an account, for the time of the test.
func (r *Rig[F]) Bench(t *testing.T, o Options[F]) *Bench[F] {
	t.Helper()
	b := &Bench[F]{Fake: r.Fake()}
	if o.Host != nil {
		r.Place(b.Fake, o.Host.Address.String())
		o.Config = fmt.Sprintf(`%s,"hostFingerprints":{%q:%q}}`, strings.TrimSuffix(r.Config, "}"), r.MachineID, o.Host.Fingerprint)
		o.Key = o.Host.PrivateKey
	}
	if o.Change != nil {
		o.Change(b.Fake)
	}
	far := http.Handler(b.Fake)
	if r.Description != "" {
		far = Contract(t, r.Description, r.Prefix, b.Fake)
	}
	b.Faults = NewFaults(far)
	server := httptest.NewServer(b.Faults)
	b.URL = server.URL
	b.Account = r.account(b.Fake, r.Open(server.URL, o), o)
	t.Cleanup(func() { _ = b.Client.Close(); server.Close() })
	return b
}

func (r *Rig[F]) account(f F, client provider.Client, o Options[F]) *Account {
	a := &Account{Client: client, Secret: r.Secret, OfferID: r.OfferID, Sold: func(operationID string) int { return r.Sold(f, operationID) }}
	if o.OfferID != "" {
		a.OfferID = o.OfferID
	}
	switch {
	case r.SSHKey == "":
		a.MachineID, a.Payload = r.MachineID, Payload
	case o.Host != nil:
		a.MachineID, a.Payload = r.MachineID, RunningPayload
	}
	if o.Payload != nil {
		a.Payload = o.Payload
	}
	return a
}

// Open opens a client on a fake that the rig has not made.
func (r *Rig[F]) Open(url string, o Options[F]) provider.Client {
	if o.Config == "" {
		o.Config = r.Config
	}
	if o.Key == "" && r.SSHKey != "" {
		o.Key = netns.NewKey()
	}
	client, err := r.Driver(url, o.Timeout).Open(context.Background(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(o.Config),
		Secret: func(_ context.Context, reference string) (string, error) {
			if reference == r.SSHKey {
				return o.Key, nil
			}
			return r.Secret, nil
		},
	})
	if err != nil {
		panic(err) // the config is the test's
	}
	return client
}

// With is the usual account with faults before its fake.
func (r *Rig[F]) With(faults ...Fault) Situation { return r.Arranged(Options[F]{}, faults...) }

// Changed is the usual account at a fake that was changed.
func (r *Rig[F]) Changed(change func(F)) Situation { return r.Arranged(Options[F]{Change: change}) }

// Arranged is an account with options, and faults before its fake.
func (r *Rig[F]) Arranged(o Options[F], faults ...Fault) Situation {
	return Situation{Arrange: func(t *testing.T) *Account {
		t.Helper()
		b := r.Bench(t, o)
		b.Faults.Add(faults...)
		return b.Account
	}}
}

// Refused is what becomes of an order that meets the fault, at a usual account.
func (r *Rig[F]) Refused(t *testing.T, fault Fault) error {
	t.Helper()
	b := r.Bench(t, Options[F]{})
	b.Faults.Add(fault)
	_, err := orderer(t, b.Account).Order(limit(t), provider.Order{OperationID: mutantOperation, OfferID: b.OfferID})
	return err
}

// SentOnce is SentOnce for the usual account.
func (r *Rig[F]) SentOnce(t *testing.T, isOrder func(*http.Request) bool) {
	t.Helper()
	SentOnce(t, isOrder, r.OfferID, r.Fake(), func(url string) provider.Client { return r.Open(url, Options[F]{Timeout: SentOnceIn}) })
}

// Mutant is the usual account at the fake, for Mutate.
func (r *Rig[F]) Mutant(f F, installRef string) Mutant {
	return Mutant{
		Fake: f, OfferID: r.OfferID, MachineID: r.MachineID, InstallRef: installRef, Open: r.openBriefly,
		Sold: func(operationID string) int { return r.Sold(f, operationID) },
	}
}

func (r *Rig[F]) openBriefly(url string) provider.Client {
	return r.Open(url, Options[F]{Timeout: 300 * time.Millisecond})
}

// None is a situation in which the driver cannot be.
func None(reason string) Situation { return Situation{Reason: reason} }

// On spoils the next answer to what matches.
func On(match func(*http.Request) bool, do Do) Fault { return Fault{Match: match, Do: do} }

// OnNext spoils the next answer.
func OnNext(do Do) Fault { return Fault{Do: do} }

// Always spoils every answer.
func Always(do Do) Fault { return Fault{Always: true, Do: do} }

// Loopback is where fakes are.
func Loopback() guard.Networks { return guard.Networks{netip.MustParsePrefix("127.0.0.0/8")} }

// Main runs the tests, except where the test's own program was installed as an agent: then it does nothing, for as long as it is let.
func Main(m *testing.M, tests func(*testing.M)) {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		time.Sleep(time.Hour)
		return
	}
	tests(m)
}

// Payload has an agent that nobody will run.
func Payload(generation int) provider.Payload {
	return payload(generation, func(arch string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("agent of " + arch)), nil
	})
}

// RunningPayload has an agent that keeps running, in a package that has Main.
func RunningPayload(generation int) provider.Payload {
	return payload(generation, func(string) (io.ReadCloser, error) { return os.Open("/proc/self/exe") })
}

// BrokenPayload has an agent that ends at once.
func BrokenPayload(generation int) provider.Payload {
	return payload(generation, func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("#!/bin/sh\necho no >&2\nexit 3\n")), nil
	})
}

func payload(generation int, agent func(arch string) (io.ReadCloser, error)) provider.Payload {
	return provider.Payload{
		Generation: generation, JoinURL: "https://192.0.2.1:8443", CAPin: "sha256:" + strings.Repeat("0", 64), Token: fmt.Sprintf("join-%d", generation),
		AgentBinary: agent,
	}
}

// WantOffers looks for a part of each of some offers, as JSON and whatever its case. One of which nothing is wanted must not be there.
func WantOffers(t *testing.T, offers []*model.Offer, want map[string]string) {
	t.Helper()
	found := map[string]string{}
	for _, o := range offers {
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		found[o.ID] = string(text)
	}
	for id, part := range want {
		text, offered := found[id]
		switch {
		case part == "" && offered:
			t.Errorf("%s is offered", id)
		case part != "" && !offered:
			t.Errorf("%s is not among %d offers", id, len(offers))
		case !strings.Contains(strings.ToLower(text), strings.ToLower(part)):
			t.Errorf("got  %s\nwant %s", text, part)
		}
	}
}

// InstallsOnOrdered takes a machine that was ordered, and that the host has become by its user data, through its install, and gives what it was
// identified as. The account pins no host key of the other machine, so that is not spoken to.
func InstallsOnOrdered(t *testing.T, b provider.Bootstrapper, host *netns.Host, machineID, other string) *provider.Identity {
	t.Helper()
	var identity *provider.Identity
	await(t, "a machine that is delivered", func() (delivered bool) {
		var err error
		identity, err = b.Identify(limit(t), machineID)
		if err != nil && provider.ClassOf(err) != provider.Unavailable {
			t.Fatalf("identify: %v", err)
		}
		return err == nil
	})
	if !strings.HasPrefix(identity.SSHHostKey, "SHA256:") {
		t.Errorf("identity %+v", identity)
	}
	if p, err := b.Prepare(limit(t), machineID); err != nil || !p.Ready {
		t.Fatalf("prepare: %+v, %v", p, err)
	}
	ref, err := b.Install(limit(t), machineID, RunningPayload(1))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(host.Run("cat /etc/bcd/join-token")); got != "join-1" {
		t.Errorf("token %q", got)
	}
	if _, err := b.InstallStatus(limit(t), machineID, ref); err != nil {
		t.Error(err)
	}
	if _, err := b.Prepare(limit(t), other); provider.ClassOf(err) != provider.InvalidConfig || !strings.Contains(err.Error(), "hostFingerprints") {
		t.Errorf("a machine that nobody ordered: %v", err)
	}
	return identity
}

// WantUserData looks at user data that installs by the payload of a generation, and not by the one before.
func WantUserData(t *testing.T, text string, generation int) {
	t.Helper()
	token := func(generation int) bool { return strings.Contains(text, Payload(generation).Token) }
	if !strings.HasPrefix(text, "#!/bin/sh\n") || !token(generation) || token(generation-1) || !strings.Contains(text, "https://192.0.2.1:8443/v1/agent") {
		t.Errorf("user data %s", text)
	}
}
