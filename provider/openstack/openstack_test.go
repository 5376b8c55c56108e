package openstack_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/site"
	"better/compute/provider"
	"better/compute/provider/openstack"
	"better/compute/provider/providertest"
)

func TestMain(m *testing.M) { site.Main(m) }

const (
	required = `"applicationCredentialId":"` + credential + `","applicationCredentialSecret":"secret://openstack","region":"RegionOne","imageId":"` + imageID + `"`
	plain    = `{` + required + `,"prices":[{"flavor":"vps.2","currency":"EUR","hourly":"0.050","monthly":"30"}]}`
	full     = `{` + required + `,"serial":"none","sshKeyName":"admins","networkIds":["` + networkID + `"]}`
)

type options = providertest.Options[*fake]

var rig = &providertest.Rig[*fake]{
	Driver: func(url string, timeout time.Duration) provider.Driver {
		return openstack.New(openstack.Options{Endpoint: url + "/v3", Networks: providertest.Loopback(), Timeout: timeout})
	},
	Config: plain, Secret: secret,
	Fake: func() *fake {
		f := newFake()
		f.building = 1
		return f
	},
	OfferID: "vps.2:RegionOne", MachineID: uuid(1), Sold: (*fake).sold,
}

func isOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && r.URL.Path == "/v2.1/servers"
}
func isAction(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/action") }
func isNova(r *http.Request) bool   { return strings.HasPrefix(r.URL.Path, "/v2.1/") }

func onOrder(do providertest.Do) providertest.Fault { return providertest.On(isOrder, do) }

func onNova(do providertest.Do) providertest.Fault { return providertest.On(isNova, do) }

// oddOffer has a name that does not do for an id, so that it is looked for.
var oddOffer = options{OfferID: provider.OfferID("8 cores/16 (new)", "RegionOne"), Change: func(f *fake) {
	f.flavors = append(f.flavors, flavor("8 cores/16 (new)", 8, nil), flavor("a:b", 1, nil))
}}

func TestConformance(t *testing.T) {
	t.Parallel()
	providertest.Run(t, providertest.Config{
		Driver:  rig.Driver("http://127.0.0.1:1", 0),
		Configs: []string{plain, full},
		BadConfigs: []string{
			`{}`, strings.Replace(plain, "secret://openstack", "plain", 1), strings.Replace(plain, "RegionOne", "../x", 1), strings.Replace(full, "none", "other", 1),
			strings.Replace(plain, imageID, "debian", 1), strings.Replace(full, networkID, "net", 1), strings.Replace(plain, "EUR", "euro", 1),
		},
		Plain: rig.With(),

		ThreePages:    rig.Changed(func(f *fake) { f.perPage = 5 }),
		EmptyLastPage: rig.Changed(func(f *fake) { f.perPage = 6 }), // of 12
		RepeatedPage:  rig.Changed(func(f *fake) { f.perPage, f.repeatedPage = 5, true }),
		ExtraFields:   rig.With(providertest.Always(providertest.ExtraFields)),
		MissingPrice:  rig.With(), // only one flavor has one
		UnknownGPU: rig.Changed(func(f *fake) {
			f.flavors = append(f.flavors, flavor("new", 4, object{"pci_passthrough:alias": "gpu-frobnicator9:2"}))
		}),
		OddIDs: rig.Arranged(oddOffer),

		AnswerLost:      rig.With(onOrder(providertest.AnswerLost)),
		HalfAnswer:      rig.With(onOrder(providertest.HalfAnswer)),
		OrderFails:      rig.With(onOrder(providertest.Reply(500, refusal(500, "Unexpected API Error.")))),
		Spoilt:          rig.Spoilt(isOrder, oddOffer),
		OutOfStock:      providertest.None("Nova looks for a host after it has answered."),
		OutOfStockLater: rig.Changed(func(f *fake) { f.lateStock = true }),
		OfferGone:       rig.Changed(func(f *fake) { f.flavors = f.flavors[2:] }),
		Quota:           rig.Changed(func(f *fake) { f.limit = 1 }),
		Payment:         providertest.None("OpenStack has no invoices."),
		Locked:          rig.With(providertest.On(isAction, providertest.Reply(409, refusal(409, "Cannot 'rebuild' instance while it is in task_state rebuilding")))),

		Unauthorized:   rig.With(providertest.Always(providertest.Reply(401, `{"error":{"code":401,"title":"Unauthorized","message":"The request you have made requires authentication."}}`))),
		Forbidden:      rig.With(onNova(providertest.Reply(403, refusal(403, "Policy doesn't allow os_compute_api:servers:index to be performed.")))),
		RateLimited:    rig.With(onNova(providertest.Reply(413, refusal(413, "This request was rate-limited.")))),
		RateLimitedFor: rig.With(onNova(providertest.Reply(429, refusal(429, "This request was rate-limited."), "Retry-After", "7"))),
		Down:           rig.With(providertest.Always(providertest.Reply(503, `{}`))),
		Hangs:          rig.Arranged(options{Timeout: 300 * time.Millisecond}, onNova(providertest.Hang)),
		Garbage:        rig.With(providertest.Fault{Match: isNova, Always: true, Do: providertest.HTML}),
		InstallFails:   rig.Changed(func(f *fake) { f.failRebuilds = true }),
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "openstack", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 5
		return rig.Mutant(f, "rebuild")
	}})
}

func TestOrdersAreSentOnce(t *testing.T) {
	t.Parallel()
	rig.SentOnce(t, isOrder)
}

func TestOffersOfFlavors(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	providertest.WantOffers(t, offers, map[string]string{
		"vps.2:RegionOne": `{"id":"vps.2:RegionOne","kind":"vps","region":"regionone","providerRegion":"RegionOne","name":"vps.2","arch":null,"vcpu":2,"memoryGiB":4,` +
			`"disks":[{"sizeGB":40,"count":1,"media":"unknown"}],"gpu":null,"price":{"hourly":"0.05","monthly":"30","setup":null,"currency":"EUR","taxIncluded":false},"availability":"unknown",`,
		"metal.h100x8:RegionOne": `"gpu":{"model":"H100","vendor":"nvidia","count":8,"memoryGiB":null},"price":null,`,
		"gpu.l40s:RegionOne":     `"gpu":{"model":"L40S","vendor":"nvidia","count":1,"memoryGiB":null},`,
		"baremetal:RegionOne":    `"kind":"metal"`,
		"nvme:RegionOne":         `"gpu":null`,
	})
}

// recording is what Nova itself has answered.
func recording(t *testing.T, name string, change func(string) string) providertest.Do {
	t.Helper()
	text, err := os.ReadFile("testdata/recordings/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Response struct {
			Status int
			Body   json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	body := string(r.Response.Body)
	if change != nil {
		body = change(body)
	}
	return providertest.Reply(r.Response.Status, body)
}

const recorded = "68975e2b-80d7-4e46-8b0f-cf5fef85d5ca"

// TestRecordedLists reads what Nova itself has listed.
func TestRecordedLists(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
	b.Faults.Add(
		providertest.Fault{Match: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/flavors/detail") }, Do: recording(t, "flavors_detail", nil)},
		providertest.Fault{Match: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/servers/detail") }, Do: recording(t, "servers_by_tag", nil)},
		providertest.Fault{Match: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, recorded) }, Do: recording(t, "server_get", nil)},
		providertest.Fault{Match: func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, recorded) }, Do: recording(t, "server_gone_404", nil)},
	)
	offers, err := b.Client.Offers(t.Context())
	if err != nil || len(offers) != 3 {
		t.Fatalf("%d offers, %v", len(offers), err)
	}
	if g := offers[0].GPU; offers[0].Name != "gpu.l40s" || *offers[0].MemoryGiB != 64 || g == nil || g.Model != "VGPU" || g.Count != 1 {
		t.Errorf("offer %+v with %+v", offers[0], g)
	}
	if g := offers[2].GPU; g == nil || g.Model != "H100" || g.Count != 8 {
		t.Errorf("offer %+v with %+v", offers[2], g)
	}
	machines, err := b.Client.Machines(t.Context())
	if err != nil || len(machines) != 1 || machines[0].ID != recorded || machines[0].Status != "active" || *machines[0].OfferID != "vps.small:RegionOne" {
		t.Errorf("machines %+v, %v", machines, err)
	}
	c := b.Client.(provider.Bootstrapper)
	if i, err := c.Identify(t.Context(), recorded); err != nil || i.Serial != recorded || i.CPUs != 2 || i.MemoryMiB != 4096 {
		t.Errorf("identity %+v, %v", i, err)
	}
	if _, err := c.Identify(t.Context(), recorded); provider.ClassOf(err) != provider.NotFound {
		t.Errorf("gone: %v", err)
	}
}

// TestRecordedRefusals classes what Nova itself has refused, at once and later.
func TestRecordedRefusals(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
	o := b.Client.(provider.Orderer)
	operation := "bcd-" + strings.Repeat("0", 26)
	for name, want := range map[string]provider.Class{
		"create_over_quota_403": provider.Quota, "create_bad_flavor_400": provider.InvalidConfig, "unauthorized_401": provider.Auth,
	} {
		b.Faults.Add(onOrder(recording(t, name, nil)))
		_, err := o.Order(t.Context(), provider.Order{OperationID: operation, OfferID: b.OfferID})
		if provider.ClassOf(err) != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	b.Faults.Add(onOrder(recording(t, "create", nil)))
	if claim, err := o.Order(t.Context(), provider.Order{OperationID: operation, OfferID: b.OfferID}); err != nil || claim.OrderRef != recorded {
		t.Errorf("order %+v, %v", claim, err)
	}
	for name, want := range map[string]provider.Class{"rebuild_conflict_409": provider.Conflict, "rebuild_202": ""} {
		b.Faults.Add(providertest.On(isAction, recording(t, name, nil)))
		_, err := b.Client.(provider.Bootstrapper).Install(t.Context(), recorded, providertest.Payload(1))
		if want == "" && err != nil || want != "" && provider.ClassOf(err) != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	b.Faults.Add(onNova(recording(t, "server_error_no_valid_host", func(body string) string {
		var one struct{ Server map[string]any }
		if err := json.Unmarshal([]byte(body), &one); err != nil {
			t.Fatal(err)
		}
		one.Server["metadata"] = map[string]string{"bcd-operation": operation}
		text, err := json.Marshal(map[string]any{"servers": []any{one.Server}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	})))
	claim, err := o.FindClaim(t.Context(), operation)
	if err != nil || claim == nil || claim.State != provider.ClaimFailed || claim.Err.Class != provider.OutOfStock {
		t.Errorf("claim %+v, %v", claim, err)
	}
}

// TestRefusedOrders classes what Nova says in words alone.
func TestRefusedOrders(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
	for message, want := range map[string]struct {
		status int
		class  provider.Class
	}{
		"Invalid flavorRef provided.":                                        {400, provider.OfferGone},
		"Flavor f-vps.2 could not be found.":                                 {400, provider.OfferGone},
		"Flavor's disk is too small for requested image.":                    {400, provider.InvalidConfig},
		"Invalid imageRef provided.":                                         {400, provider.InvalidConfig},
		"Multiple possible networks found, use a Network ID to be more spe":  {409, provider.InvalidConfig},
		"Only volume-backed servers are allowed for flavors with zero disk.": {403, provider.Unsupported},
		"Maximum number of ports exceeded":                                   {403, provider.Quota},
		"Policy doesn't allow os_compute_api:servers:create":                 {403, provider.Forbidden},
	} {
		b.Faults.Add(onOrder(providertest.Reply(want.status, refusal(want.status, message))))
		_, err := b.Client.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: b.OfferID})
		if provider.ClassOf(err) != want.class {
			t.Errorf("%s: %v, want %s", message, err, want.class)
		}
	}
}

// TestTheCatalogIsFollowedNowhereElse: the token goes to public addresses and to the operator's networks.
func TestTheCatalogIsFollowedNowhereElse(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"http://169.254.169.254/v2.1", "http://10.0.0.1:8774", "file:///etc/passwd", "", "http://user:pass@127.0.0.1/", "::"} {
		b := rig.Bench(t, options{Change: func(f *fake) { f.novaURL = url }})
		if url == "" {
			b.Fake.novaURL = " "
		}
		if err := b.Client.Check(t.Context()); provider.ClassOf(err) != provider.InvalidResponse && provider.ClassOf(err) != provider.InvalidConfig {
			t.Errorf("%q: %v", url, err)
		}
	}
	client := rig.Open(setupURL(t), options{Config: strings.Replace(plain, "RegionOne", "RegionNine", 1)})
	defer func() { _ = client.Close() }()
	if err := client.Check(t.Context()); provider.ClassOf(err) != provider.InvalidConfig || !strings.Contains(err.Error(), "RegionNine") {
		t.Errorf("a region that is none: %v", err)
	}
}

func setupURL(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(newFake())
	t.Cleanup(server.Close)
	return server.URL
}

// TestServersThatAreNotReady: what the driver waits for, what it does, and what people must do.
func TestServersThatAreNotReady(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]string{
		"ACTIVE": "ready", "ACTIVE/rebuilding": "waits", "ACTIVE/rescuing": "waits", "ERROR": "ready", "SHUTOFF": "waits, ready", "REBOOT": "waits", "RESCUE": "fatal",
		"PAUSED": "fatal", "SHELVED_OFFLOADED": "fatal", "LOCKED": "fatal", "DELETED": "not_found", "ACTIVE/deleting": "not_found", "NEVER MADE": "fatal",
	} {
		b := rig.Bench(t, options{Change: func(f *fake) {
			f.building = 100
			s := f.servers[0]
			status, task, busy := strings.Cut(state, "/")
			s["status"] = status
			if busy {
				s["OS-EXT-STS:task_state"] = task
			}
			switch state {
			case "LOCKED":
				s["status"], s["locked"] = "ACTIVE", true
			case "NEVER MADE":
				s["status"], s["OS-SRV-USG:launched_at"] = "ERROR", nil
			}
		}})
		prepare := func() string {
			p, err := b.Client.(provider.Bootstrapper).Prepare(t.Context(), b.MachineID)
			switch {
			case err != nil:
				return string(provider.ClassOf(err))
			case p.Ready:
				return "ready"
			}
			return "waits"
		}
		got := prepare()
		if strings.Contains(want, ",") {
			got += ", " + prepare()
		}
		if got != want {
			t.Errorf("a server in %q: %s, want %s", state, got, want)
		}
	}
}

// TestARebuildAfterAFailedOne: while it runs Nova shows the status, and the fault, of the one before.
func TestARebuildAfterAFailedOne(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{Change: func(f *fake) {
		f.building = 1
		f.servers[0]["status"], f.servers[0]["fault"] = "ERROR", object{"code": 400, "message": "Image could not be downloaded."}
	}})
	c := b.Client.(provider.Bootstrapper)
	ref, err := c.Install(t.Context(), b.MachineID, providertest.Payload(1))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []provider.InstallState{provider.InstallRunning, provider.InstallSucceeded} {
		if s, err := c.InstallStatus(t.Context(), b.MachineID, ref); err != nil || s.State != want {
			t.Errorf("got %+v, %v, want %s", s, err, want)
		}
	}
}

// TestGPUsOfFlavors reads what operators write into extra specs, and guesses nothing.
func TestGPUsOfFlavors(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		specs object
		want  string
	}{
		{object{"pci_passthrough:alias": "a100-80gb:4"}, `{"model":"A100-80GB","vendor":"nvidia","count":4,"memoryGiB":null}`},
		{object{"pci_passthrough:alias": "mi300x:8,sriov:1"}, `{"model":"MI300X","vendor":"amd","count":8,"memoryGiB":null}`},
		{object{"pci_passthrough:alias": "sriov:1"}, `null`},
		{object{"pci_passthrough:alias": "h100"}, `null`},
		{object{"pci_passthrough:alias": "h100:-1"}, `null`},
		{object{"pci_passthrough:alias": "gpu:2"}, `{"model":"unknown","vendor":"","count":2,"memoryGiB":null}`},
		{object{"resources1:VGPU": "1", "resources2:VGPU": "1"}, `{"model":"VGPU","vendor":"","count":2,"memoryGiB":null}`},
		{object{"resources:VGPU": "1", "trait:CUSTOM_NVIDIA_A40": "forbidden"}, `{"model":"VGPU","vendor":"","count":1,"memoryGiB":null}`},
		{object{"resources:VGPU": 1}, `null`},
		{object{"quota:cpu_shares": "2048"}, `null`},
	} {
		b := rig.Bench(t, options{Change: func(f *fake) { f.flavors = []object{flavor("one", 1, c.specs)} }})
		offers, err := b.Client.Offers(t.Context())
		if err != nil || len(offers) != 1 {
			t.Fatalf("%d offers, %v", len(offers), err)
		}
		if got, err := json.Marshal(offers[0].GPU); err != nil || string(got) != c.want {
			t.Errorf("%d: %s, want %s", i, got, c.want)
		}
	}
}

// TestWhatIsOrderedAndDelivered looks at what an order and a rebuild carry.
func TestWhatIsOrderedAndDelivered(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{Change: func(f *fake) { f.building = 0 }})
	c := b.Client.(provider.Bootstrapper)
	for generation := range 2 {
		if _, err := c.Install(t.Context(), b.MachineID, providertest.Payload(generation)); err != nil {
			t.Fatal(err)
		}
	}
	got := b.Fake.userData[b.MachineID]
	providertest.WantUserData(t, got, 1)
	server := httptest.NewServer(b.Fake)
	defer server.Close()
	another := rig.Open(server.URL, options{Config: full})
	defer func() { _ = another.Close() }()
	for _, client := range []provider.Client{b.Client, another} {
		if _, err := client.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: "bcd-1", OfferID: b.OfferID}); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(b.Fake.ordered)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"flavorRef":"f-vps.2","imageRef":"` + imageID + `","metadata":{"bcd-operation":"bcd-1"},"name":"bcd-1","networks":"auto"},` +
		`{"flavorRef":"f-vps.2","imageRef":"` + imageID + `","key_name":"admins","metadata":{"bcd-operation":"bcd-1"},"name":"bcd-1","networks":[{"uuid":"` + networkID + `"}]}]`
	if string(text) != want {
		t.Errorf("ordered %s\nwant    %s", text, want)
	}
	if i, err := another.(provider.Bootstrapper).Identify(t.Context(), b.MachineID); err != nil || i.Serial != "" {
		t.Errorf("with no serial numbers: %+v, %v", i, err)
	}
}
