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
	"better/compute/apitest/site"
	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/providertest"
	"better/compute/provider/scaleway"
)

// TestMain makes of the test's own program an agent that does nothing, for as long as it is let.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		time.Sleep(time.Hour)
		return
	}
	site.Main(m)
}

const (
	plainConfig = `{"secretKey":"secret://scw","projectId":"fa1e3217-dc80-42ac-85c3-3f034b78b552","zones":["fr-par-1","fr-par-2"],"sshPrivateKey":"secret://scw-ssh","sshKeyIds":["e115bb5d-59c8-45af-a596-71200e31c5f9"]}`
	offerID     = "EM-A210R-NVME:fr-par-1"
)

// first is the server that is there.
var first = "metal:fr-par-1:" + id(5_000_000)

// bundle is an account of a test's own.
type bundle struct {
	*providertest.Account
	fake   *fake
	faults *providertest.Faults
	client everything
}

type everything interface {
	provider.Bootstrapper
	provider.Claimant
}

type options struct {
	timeout time.Duration
	host    *netns.Host // that the first server is
	key     string
	change  func(*fake)
}

func setup(t *testing.T, o options) *bundle {
	t.Helper()
	b := &bundle{fake: newFake()}
	config := plainConfig
	if o.host != nil {
		b.fake.address = o.host.Address.String()
		b.fake.give(b.fake.servers[0])
		config = fmt.Sprintf(`%s,"hostFingerprints":{%q:%q}}`, strings.TrimSuffix(plainConfig, "}"), first, o.host.Fingerprint)
		o.key = o.host.PrivateKey
	}
	if o.change != nil {
		o.change(b.fake)
	}
	b.faults = providertest.NewFaults(b.fake)
	server := httptest.NewServer(b.faults)
	b.client = open(server.URL, o.timeout, config, o.key)
	b.Account = &providertest.Account{Client: b.client, Secret: secret, OfferID: offerID, Sold: b.fake.sold}
	if o.host != nil {
		b.MachineID, b.Payload = first, payload
	}
	t.Cleanup(func() { _ = b.client.Close(); server.Close() })
	return b
}

func open(url string, timeout time.Duration, config, key string) everything {
	if key == "" {
		key = anyKey
	}
	client, err := driver(url, timeout).Open(context.Background(), provider.Account{
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
	return client.(everything)
}

var anyKey = netns.NewKey()

func driver(url string, timeout time.Duration) *scaleway.Driver {
	return scaleway.New(scaleway.Options{Endpoint: url, Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: timeout})
}

func payload(generation int) provider.Payload {
	return delivered(generation, func() (io.ReadCloser, error) { return os.Open("/proc/self/exe") })
}

func delivered(generation int, agent func() (io.ReadCloser, error)) provider.Payload {
	return provider.Payload{
		Generation: generation, JoinURL: "https://192.0.2.1:8443", CAPin: "sha256:" + strings.Repeat("0", 64), Token: fmt.Sprintf("join-%d", generation),
		AgentBinary: func(string) (io.ReadCloser, error) { return agent() },
	}
}

// broken has an agent that ends at once.
func broken(generation int) provider.Payload {
	return delivered(generation, func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("#!/bin/sh\necho no >&2\nexit 3\n")), nil
	})
}

func with(faults ...providertest.Fault) providertest.Situation { return arranged(options{}, faults...) }

func changed(change func(*fake)) providertest.Situation { return arranged(options{change: change}) }

func arranged(o options, faults ...providertest.Fault) providertest.Situation {
	return providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
		t.Helper()
		b := setup(t, o)
		b.faults.Add(faults...)
		return b.Account
	}}
}

type do = func(http.ResponseWriter, *http.Request, http.Handler)

func isOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/servers")
}

func onOrder(d do) providertest.Fault { return providertest.Fault{Match: isOrder, Do: d} }
func onNext(d do) providertest.Fault  { return providertest.Fault{Do: d} }
func always(d do) providertest.Fault  { return providertest.Fault{Always: true, Do: d} }

func none(reason string) providertest.Situation { return providertest.Situation{Reason: reason} }

func TestConformance(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	plain := arranged(options{host: hosts[0]})
	providertest.Run(t, providertest.Config{
		Driver: driver("http://127.0.0.1:1", 0),
		Configs: []string{
			plainConfig,
			`{"secretKey":"env://SCW_SECRET_KEY","projectId":"fa1e3217-dc80-42ac-85c3-3f034b78b552","sshPrivateKey":"vault://scw#ssh","sshKeyIds":["e115bb5d-59c8-45af-a596-71200e31c5f9"],"os":"Debian 12",` +
				`"hostFingerprints":{"metal:fr-par-2:cfaaaa69-7d5b-4c30-a569-b3b6fb3b29dc":"SHA256:uNiVztksCsDhcc0u9e8BrkpJcqtoUZRiiYKqKpwRbZA"}}`,
		},
		BadConfigs: []string{
			`{}`,
			strings.Replace(plainConfig, `secret://scw"`, `plain"`, 1),
			strings.Replace(plainConfig, "fr-par-2", "../../x", 1),
			strings.Replace(plainConfig, "fa1e3217-", "", 1),
			strings.Replace(plainConfig, `["e115bb5d-59c8-45af-a596-71200e31c5f9"]`, "[]", 1),
		},
		Plain: plain,

		ThreePages:    changed(func(f *fake) { f.perPage = 4 }),
		EmptyLastPage: changed(func(f *fake) { f.perPage, f.emptyLastPage = 3, true }),
		RepeatedPage:  changed(func(f *fake) { f.perPage, f.repeatedPage = 4, true }),
		ExtraFields:   with(always(providertest.ExtraFields)),
		MissingPrice:  changed(func(f *fake) { f.offers[0]["price_per_hour"] = nil }),
		UnknownGPU:    changed(func(f *fake) { f.offers[9]["gpus"] = []object{{"name": "Acme Frobnicator 9", "vram": 9000000000}} }),
		OddIDs: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, options{change: func(f *fake) {
				f.offers = append(f.offers, offer("EM/9 (beta)", 9, "fr-par-1"), offer("EM:9", 9, "fr-par-1"))
			}})
			b.OfferID = provider.OfferID("EM/9 (beta)", "fr-par-1")
			return b.Account
		}},

		AnswerLost:      with(onOrder(providertest.AnswerLost)),
		HalfAnswer:      with(onOrder(providertest.HalfAnswer)),
		OrderFails:      with(onOrder(providertest.Reply(500, refusal("internal_error", "internal error")))),
		OutOfStock:      changed(func(f *fake) { f.offers[1]["stock"] = "empty" }),
		OutOfStockLater: changed(func(f *fake) { f.late = true }),
		OfferGone:       changed(func(f *fake) { f.offers = f.offers[2:] }),
		Quota:           changed(func(f *fake) { f.limit = 2 }),
		Payment:         none("Scaleway has no refusal of an order for want of money; it locks the organization's keys."),
		Locked:          none("An install goes over SSH, past Scaleway, and waits there for another one."),

		Unauthorized:   with(always(providertest.Reply(401, refusal("denied_authentication", "authentication is denied")))),
		Forbidden:      with(onNext(providertest.Reply(403, refusal("permissions_denied", "insufficient permissions")))),
		RateLimited:    with(onNext(providertest.Reply(429, refusal("too_many_requests", "too many requests")))),
		RateLimitedFor: with(onNext(providertest.Reply(429, refusal("too_many_requests", "too many requests"), "Retry-After", "7"))),
		Down:           with(always(providertest.Reply(503, refusal("unavailable", "unavailable")))),
		Hangs:          arranged(options{timeout: 300 * time.Millisecond}, onNext(providertest.Hang)),
		Garbage:        with(always(providertest.HTML)),
		InstallFails: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, options{host: hosts[1]})
			b.Payload = broken
			return b.Account
		}},
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "scaleway", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 4
		f.address = "0.0.0.1" // where nobody is dialled
		f.give(f.servers[0])
		return providertest.Mutant{
			Fake: f, OfferID: offerID, MachineID: first, InstallRef: "generation-1", Sold: f.sold,
			Open: func(url string) provider.Client { return open(url, 300*time.Millisecond, plainConfig, "") },
		}
	}})
}

func TestOrdersGoOutOnce(t *testing.T) {
	t.Parallel()
	providertest.SentOnce(t, isOrder, offerID, newFake(), func(url string) provider.Client { return open(url, 300*time.Millisecond, plainConfig, "") })
}

// recorded is an exchange that somebody had with Scaleway.
type recorded struct {
	Method, URL string
	Status      int
	Body        json.RawMessage
}

func recording(t *testing.T, file string) (exchanges []recorded) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &exchanges); err != nil {
		t.Fatal(err)
	}
	return exchanges
}

// replay answers every request with what stands there when it comes.
func replay(t *testing.T, zone string, body *json.RawMessage) everything {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, body) }))
	client := open(server.URL, 0, strings.Replace(plainConfig, `"fr-par-1","fr-par-2"`, `"`+zone+`"`, 1), "")
	t.Cleanup(func() { _ = client.Close(); server.Close() })
	return client
}

func TestRecordedOffers(t *testing.T) {
	t.Parallel()
	body := recording(t, "baremetal_list_offers.json")[0].Body
	offers, err := replay(t, "fr-par-1", &body).Offers(t.Context())
	if err != nil || len(offers) != 27 {
		t.Fatalf("%d offers, %v", len(offers), err)
	}
	counts := map[model.Availability]int{}
	for _, o := range offers {
		counts[o.Availability]++
		if o.Price == nil || o.VCPU == nil || o.MemoryGiB == nil || o.Arch == nil || len(o.Disks) == 0 {
			t.Errorf("%s is not understood", o.ID)
		}
	}
	if counts[model.Available] != 19 || counts[model.Limited] != 4 || counts[model.OutOfStock] != 4 {
		t.Errorf("availability %v", counts)
	}
	got, err := json.Marshal(offers[6])
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"EM-B111X-SATA:fr-par-1","kind":"metal","region":"fr-par-1","providerRegion":"fr-par-1","name":"EM-B111X-SATA","arch":"amd64","vcpu":24,"memoryGiB":192,` +
		`"disks":[{"sizeGB":8000,"count":2,"media":"hdd"}],"gpu":null,"price":{"hourly":"0.263","monthly":null,"setup":null,"currency":"EUR","taxIncluded":false},"availability":"available",`
	if !strings.HasPrefix(string(got), want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestRecordedOrder goes through what Scaleway said of a server from its order to its end.
func TestRecordedOrder(t *testing.T) {
	t.Parallel()
	body := json.RawMessage(`{}`)
	c := replay(t, "fr-par-2", &body)
	states := []string{}
	for _, e := range recording(t, "baremetal_create_install_delete.json") {
		if !strings.Contains(e.URL, "/servers") {
			continue
		}
		body = json.RawMessage(fmt.Sprintf(`{"servers":[%s],"total_count":1}`, e.Body))
		claim, err := c.FindClaim(t.Context(), "cli-bm-inspiring-jennings")
		if err != nil {
			t.Fatal(err)
		}
		state := "none"
		if claim != nil {
			state = string(claim.State)
		}
		if machines, err := c.Machines(t.Context()); err != nil || len(machines) != 1 {
			t.Errorf("machines %v, %v", machines, err)
		} else {
			state += " " + machines[0].Status
		}
		if len(states) == 0 || states[len(states)-1] != state {
			states = append(states, state)
		}
	}
	want := []string{"pending ordered", "ready ready", "pending install: to_install", "pending install: installing", "ready ready", "none deleting"}
	if !slices.Equal(states, want) {
		t.Errorf("states %q, want %q", states, want)
	}
}

// TestRefusals: the type counts before the status.
func TestRefusals(t *testing.T) {
	t.Parallel()
	notDelivered := recording(t, "baremetal_reboot_not_delivered.json")[1]
	for name, c := range map[string]struct {
		status int
		body   string
		want   provider.Class
	}{
		"recorded":     {notDelivered.Status, string(notDelivered.Body), provider.Conflict},
		"out of stock": {412, refusal("out_of_stock", "resource out of stock"), provider.OutOfStock},
		"transient":    {409, refusal("transient_state", "in a transient state"), provider.Conflict},
		"locked":       {423, refusal("locked", "locked"), provider.Conflict},
		"precondition": {412, refusal("precondition_failed", "resource is still in use"), provider.Conflict},
		"denied":       {403, refusal("denied_authentication", "authentication is denied"), provider.Auth},
		"expired":      {400, refusal("resource_expired", "resource is expired"), provider.NotFound},
		"quota":        {403, refusal("quotas_exceeded", "quota"), provider.Quota},
		"arguments":    {400, refusal("invalid_arguments", "no"), provider.Fatal},
		"a nameless":   {400, `{}`, provider.Fatal},
		"an odd one":   {404, refusal("unknown_resource", "no"), provider.NotFound},
	} {
		b := setup(t, options{})
		b.faults.Add(onOrder(providertest.Reply(c.status, c.body)))
		_, err := b.client.Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: offerID})
		if provider.ClassOf(err) != c.want {
			t.Errorf("%s: class %s, want %s", name, provider.ClassOf(err), c.want)
		}
		_ = err.Error() // which is for logs
	}
}

// TestAServerOnItsWayIsReleasedLater: Scaleway takes nothing back that it has not delivered.
func TestAServerOnItsWayIsReleasedLater(t *testing.T) {
	t.Parallel()
	b := setup(t, options{change: func(f *fake) { f.making = 1 }})
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: offerID}); err != nil {
		t.Fatal(err)
	}
	machine := "metal:fr-par-1:" + id(5_000_002)
	if err := b.client.Release(t.Context(), "bcd-1", machine); provider.ClassOf(err) != provider.Conflict {
		t.Errorf("while it comes: %v", err)
	}
	for range 20 {
		if b.client.Release(t.Context(), "bcd-1", machine) == nil {
			break
		}
	}
	if b.fake.sold("bcd-1") != 0 {
		t.Error("it was not released")
	}
}

// TestSystems: an order wants a system that takes user data, and costs nothing while there is none.
func TestSystems(t *testing.T) {
	t.Parallel()
	for name, systems := range map[string][]object{
		"another":           {system(3, "Debian", "12", true)},
		"without user data": {system(2, "Ubuntu", "24.04", false)},
	} {
		b := setup(t, options{change: func(f *fake) { f.systems = systems }})
		if _, err := b.client.Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: offerID}); provider.ClassOf(err) != provider.InvalidConfig || b.fake.sold("bcd-1") != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAFailedInstallIsTold: Scaleway has the server ready and its system not.
func TestAFailedInstallIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t, options{change: func(f *fake) {
		f.create("bcd-1", f.offers[0], []string{"bcd-operation:bcd-1"})["install"].(object)["status"] = "error"
	}})
	claim, err := b.client.FindClaim(t.Context(), "bcd-1")
	if err != nil || claim == nil || claim.State != provider.ClaimReady {
		t.Fatalf("claim %+v, %v", claim, err)
	}
	if _, err := b.client.Prepare(t.Context(), claim.MachineID); provider.ClassOf(err) != provider.InstallError {
		t.Errorf("prepare: %v", err)
	}
	if err := b.client.Release(t.Context(), "bcd-1", claim.MachineID); err != nil || b.fake.sold("bcd-1") != 0 {
		t.Errorf("release: %v", err)
	}
}

// TestAProtectedServerIsKept: somebody wanted that.
func TestAProtectedServerIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, options{change: func(f *fake) { f.create("bcd-1", f.offers[0], []string{"bcd-operation:bcd-1"})["protected"] = true }})
	if err := b.client.Release(t.Context(), "bcd-1", "metal:fr-par-1:"+id(5_000_002)); provider.ClassOf(err) != provider.Conflict || b.fake.sold("bcd-1") != 1 {
		t.Errorf("%v", err)
	}
}

// TestOtherProjectsAreNotTouched: a key may reach several, and an id tells nothing of whose it is.
func TestOtherProjectsAreNotTouched(t *testing.T) {
	t.Parallel()
	b := setup(t, options{change: func(f *fake) { f.servers[0]["project_id"] = id(1) }})
	if _, err := b.client.Identify(t.Context(), first); provider.ClassOf(err) != provider.NotFound {
		t.Errorf("identify: %v", err)
	}
	if machines, err := b.client.Machines(t.Context()); err != nil || len(machines) != 1 {
		t.Errorf("%d machines, %v", len(machines), err)
	}
}

// TestInstallsOnWhatItOrdered has a machine take its order's user data as cloud-init does, and installs on it. A server that was not
// ordered is not spoken to.
func TestInstallsOnWhatItOrdered(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := setup(t, options{key: netns.NewKey(), change: func(f *fake) { f.address = host.Address.String() }})
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: offerID}); err != nil {
		t.Fatal(err)
	}
	host.TakeUserData(string(b.fake.userData[id(5_000_002)]))
	machine := "metal:fr-par-1:" + id(5_000_002)
	identity, err := b.client.Identify(t.Context(), machine)
	for ; provider.ClassOf(err) == provider.Unavailable && err != nil; identity, err = b.client.Identify(t.Context(), machine) { // it is made after some looks
	}
	if err != nil || identity.CPUs != 4 || identity.MemoryMiB != 32<<10 || identity.Arch != "amd64" || !strings.HasPrefix(identity.SSHHostKey, "SHA256:") {
		t.Fatalf("identity %+v, %v", identity, err)
	}
	if p, err := b.client.Prepare(t.Context(), machine); err != nil || !p.Ready {
		t.Fatalf("prepare: %+v, %v", p, err)
	}
	ref, err := b.client.Install(t.Context(), machine, payload(1))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(host.Run("cat /etc/bcd/join-token")); got != "join-1" {
		t.Errorf("token %q", got)
	}
	if _, err := b.client.InstallStatus(t.Context(), machine, ref); err != nil {
		t.Error(err)
	}
	if _, err := b.client.Prepare(t.Context(), first); provider.ClassOf(err) != provider.InvalidConfig || !strings.Contains(err.Error(), "hostFingerprints") {
		t.Errorf("a server that nobody ordered: %v", err)
	}
}
