package scaleway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/netns"
	"better/compute/apitest/site"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/providertest"
	"better/compute/provider/scaleway"
)

func TestMain(m *testing.M) { providertest.Main(m, site.Main) }

const (
	plainConfig = `{"secretKey":"secret://scw","projectId":"fa1e3217-dc80-42ac-85c3-3f034b78b552","zones":["fr-par-1","fr-par-2"],"sshPrivateKey":"secret://scw-ssh","sshKeyIds":["e115bb5d-59c8-45af-a596-71200e31c5f9"]}`
	offerID     = "EM-A210R-NVME:fr-par-1"
)

// first is the server that is there.
var first = "metal:fr-par-1:" + id(5_000_000)

type options = providertest.Options[*fake]

var rig = &providertest.Rig[*fake]{
	Driver: func(url string, timeout time.Duration) provider.Driver {
		return scaleway.New(scaleway.Options{Endpoint: url, Networks: providertest.Loopback(), Timeout: timeout})
	},
	Config: plainConfig, SSHKey: "secret://scw-ssh", Secret: secret,
	Fake:    newFake,
	OfferID: offerID, MachineID: first, Sold: (*fake).sold,
	Place: func(f *fake, address string) {
		f.address = address
		f.give(f.servers[0])
	},
}

func isOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/servers")
}

func onOrder(do providertest.Do) providertest.Fault { return providertest.On(isOrder, do) }

// oddOffer has a name that does not do for an id, so that it is looked for.
var oddOffer = options{OfferID: provider.OfferID("EM/9 (beta)", "fr-par-1"), Change: func(f *fake) {
	f.offers = append(f.offers, offer("EM/9 (beta)", 9, "fr-par-1"), offer("EM:9", 9, "fr-par-1"))
}}

func TestConformance(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	plain := rig.Arranged(options{Host: hosts[0]})
	providertest.Run(t, providertest.Config{
		Driver: rig.Driver("http://127.0.0.1:1", 0),
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

		ThreePages:    rig.Changed(func(f *fake) { f.perPage = 4 }),
		EmptyLastPage: rig.Changed(func(f *fake) { f.perPage, f.emptyLastPage = 3, true }),
		RepeatedPage:  rig.Changed(func(f *fake) { f.perPage, f.repeatedPage = 4, true }),
		ExtraFields:   rig.With(providertest.Always(providertest.ExtraFields)),
		MissingPrice:  rig.Changed(func(f *fake) { f.offers[0]["price_per_hour"] = nil }),
		UnknownGPU:    rig.Changed(func(f *fake) { f.offers[9]["gpus"] = []object{{"name": "Acme Frobnicator 9", "vram": 9000000000}} }),
		OddIDs:        rig.Arranged(oddOffer),

		AnswerLost:      rig.With(onOrder(providertest.AnswerLost)),
		HalfAnswer:      rig.With(onOrder(providertest.HalfAnswer)),
		OrderFails:      rig.With(onOrder(providertest.Reply(500, refusal("internal_error", "internal error")))),
		Spoilt:          rig.Spoilt(isOrder, oddOffer),
		OutOfStock:      rig.Changed(func(f *fake) { f.offers[1]["stock"] = "empty" }),
		OutOfStockLater: rig.Changed(func(f *fake) { f.late = true }),
		OfferGone:       rig.Changed(func(f *fake) { f.offers = f.offers[2:] }),
		Quota:           rig.Changed(func(f *fake) { f.limit = 2 }),
		Payment:         providertest.None("Scaleway has no refusal of an order for want of money; it locks the organization's keys."),
		Locked:          providertest.None("An install goes over SSH, past Scaleway, and waits there for another one."),

		Unauthorized:   rig.With(providertest.Always(providertest.Reply(401, refusal("denied_authentication", "authentication is denied")))),
		Forbidden:      rig.With(providertest.OnNext(providertest.Reply(403, refusal("permissions_denied", "insufficient permissions")))),
		RateLimited:    rig.With(providertest.OnNext(providertest.Reply(429, refusal("too_many_requests", "too many requests")))),
		RateLimitedFor: rig.With(providertest.OnNext(providertest.Reply(429, refusal("too_many_requests", "too many requests"), "Retry-After", "7"))),
		Down:           rig.With(providertest.Always(providertest.Reply(503, refusal("unavailable", "unavailable")))),
		Hangs:          rig.Arranged(options{Timeout: 300 * time.Millisecond}, providertest.OnNext(providertest.Hang)),
		Garbage:        rig.With(providertest.Always(providertest.HTML)),
		InstallFails:   rig.Arranged(options{Host: hosts[1], Payload: providertest.BrokenPayload}),
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "scaleway", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 4
		f.address = "0.0.0.1" // where nobody is dialled
		f.give(f.servers[0])
		return rig.Mutant(f, "generation-1")
	}})
}

func TestOrdersGoOutOnce(t *testing.T) {
	t.Parallel()
	rig.SentOnce(t, isOrder)
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
func replay(t *testing.T, zone string, body *json.RawMessage) providertest.Whole {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, body) }))
	client := rig.Open(server.URL, options{Config: strings.Replace(plainConfig, `"fr-par-1","fr-par-2"`, `"`+zone+`"`, 1)}).(providertest.Whole)
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
		err := rig.Refused(t, onOrder(providertest.Reply(c.status, c.body)))
		if provider.ClassOf(err) != c.want {
			t.Errorf("%s: class %s, want %s", name, provider.ClassOf(err), c.want)
		}
		_ = err.Error() // which is for logs
	}
}

// TestAServerOnItsWayIsReleasedLater: Scaleway takes nothing back that it has not delivered.
func TestAServerOnItsWayIsReleasedLater(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{Change: func(f *fake) { f.making = 1 }})
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: offerID}); err != nil {
		t.Fatal(err)
	}
	machine := "metal:fr-par-1:" + id(5_000_002)
	if err := b.Whole().Release(t.Context(), "bcd-1", machine); provider.ClassOf(err) != provider.Conflict {
		t.Errorf("while it comes: %v", err)
	}
	for range 20 {
		if b.Whole().Release(t.Context(), "bcd-1", machine) == nil {
			break
		}
	}
	if b.Fake.sold("bcd-1") != 0 {
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
		b := rig.Bench(t, options{Change: func(f *fake) { f.systems = systems }})
		if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: offerID}); provider.ClassOf(err) != provider.InvalidConfig || b.Fake.sold("bcd-1") != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAFailedInstallIsTold: Scaleway has the server ready and its system not.
func TestAFailedInstallIsTold(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{Change: func(f *fake) {
		f.create("bcd-1", f.offers[0], []string{"bcd-operation:bcd-1"})["install"].(object)["status"] = "error"
	}})
	claim, err := b.Whole().FindClaim(t.Context(), "bcd-1")
	if err != nil || claim == nil || claim.State != provider.ClaimReady {
		t.Fatalf("claim %+v, %v", claim, err)
	}
	if _, err := b.Whole().Prepare(t.Context(), claim.MachineID); provider.ClassOf(err) != provider.InstallError {
		t.Errorf("prepare: %v", err)
	}
	if err := b.Whole().Release(t.Context(), "bcd-1", claim.MachineID); err != nil || b.Fake.sold("bcd-1") != 0 {
		t.Errorf("release: %v", err)
	}
}

// TestAProtectedServerIsKept: somebody wanted that.
func TestAProtectedServerIsKept(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{Change: func(f *fake) { f.create("bcd-1", f.offers[0], []string{"bcd-operation:bcd-1"})["protected"] = true }})
	if err := b.Whole().Release(t.Context(), "bcd-1", "metal:fr-par-1:"+id(5_000_002)); provider.ClassOf(err) != provider.Conflict || b.Fake.sold("bcd-1") != 1 {
		t.Errorf("%v", err)
	}
}

// TestOtherProjectsAreNotTouched: a key may reach several, and an id tells nothing of whose it is.
func TestOtherProjectsAreNotTouched(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{Change: func(f *fake) { f.servers[0]["project_id"] = id(1) }})
	if _, err := b.Whole().Identify(t.Context(), first); provider.ClassOf(err) != provider.NotFound {
		t.Errorf("identify: %v", err)
	}
	if machines, err := b.Whole().Machines(t.Context()); err != nil || len(machines) != 1 {
		t.Errorf("%d machines, %v", len(machines), err)
	}
}

// TestInstallsOnWhatItOrdered has a machine take its order's user data as cloud-init does, and installs on it. A server that was not
// ordered is not spoken to.
func TestInstallsOnWhatItOrdered(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := rig.Bench(t, options{Change: func(f *fake) { f.address = host.Address.String() }})
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: offerID}); err != nil {
		t.Fatal(err)
	}
	host.TakeUserData(string(b.Fake.userData[id(5_000_002)]))
	machine := "metal:fr-par-1:" + id(5_000_002)
	identity := providertest.InstallsOnOrdered(t, b.Whole(), host, machine, first)
	if identity.CPUs != 4 || identity.MemoryMiB != 32<<10 || identity.Arch != "amd64" {
		t.Errorf("identity %+v", identity)
	}
}
