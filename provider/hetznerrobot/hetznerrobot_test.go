package hetznerrobot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	cryptossh "golang.org/x/crypto/ssh"

	"better/compute/apitest/netns"
	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/hetznerrobot"
	"better/compute/provider/providertest"
	"better/compute/provider/ssh"
)

// TestMain makes of the test's own program an agent that does nothing, for as long as it is let.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		time.Sleep(time.Hour)
		return
	}
	goleak.VerifyTestMain(m)
}

const (
	plainConfig = `{"user":"#ws+canary","password":"secret://robot","sshPrivateKey":"secret://robot-ssh"}`
	offerID     = "EX44:FSN1"
	marketOffer = "market-283693:FSN1"
	first       = "321" // the server that is there
)

// operation is one whose server is known as ours.
var operation = "bcd-" + strings.Repeat("0", 26)

// legacyOf is the fingerprint by which Robot knows a key.
func legacyOf(line string) (string, error) {
	key, _, _, _, err := cryptossh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		return "", err
	}
	return cryptossh.FingerprintLegacyMD5(key), nil
}

// clock is one that the test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// bundle is an account of a test's own.
type bundle struct {
	*providertest.Account
	fake   *fake
	faults *providertest.Faults
	client everything
	clock  *clock
}

type everything interface {
	provider.Bootstrapper
	provider.Claimant
}

type options struct {
	timeout time.Duration
	host    *netns.Host // that the first server is, with a system that was installed from here
	key     string
	change  func(*fake)
}

func setup(t *testing.T, o options) *bundle {
	t.Helper()
	b := &bundle{fake: newFake(), clock: &clock{at: time.Now()}}
	if o.host != nil {
		o.key = o.host.PrivateKey
		b.fake.servers[0]["server"].(object)["server_ip"] = o.host.Address.String()
	}
	if o.change != nil {
		o.change(b.fake)
	}
	b.faults = providertest.NewFaults(b.fake)
	server := httptest.NewServer(b.faults)
	b.client = open(driver(server.URL, o.timeout, b.clock.now), plainConfig, o.key, secret)
	b.Account = &providertest.Account{Client: b.client, Secret: secret, OfferID: offerID, Sold: b.fake.sold}
	if o.host != nil {
		b.MachineID, b.Payload = first, payload
	}
	t.Cleanup(func() { _ = b.client.Close(); server.Close() })
	return b
}

// userDataOf gives a machine what a system that was installed from here has.
func userDataOf(t *testing.T, key, machineID string) string {
	t.Helper()
	access, err := ssh.NewAccess(key, "hetzner-robot:"+machineID)
	if err != nil {
		t.Fatal(err)
	}
	text, err := access.UserData()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var anyKey = netns.NewKey()

func open(d *hetznerrobot.Driver, config, key, password string) everything {
	if key == "" {
		key = anyKey
	}
	client, err := d.Open(context.Background(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(config),
		Secret: func(_ context.Context, reference string) (string, error) {
			if reference == "secret://robot-ssh" {
				return key, nil
			}
			return password, nil
		},
	})
	if err != nil {
		panic(err)
	}
	return client.(everything)
}

func driver(url string, timeout time.Duration, now func() time.Time) *hetznerrobot.Driver {
	return hetznerrobot.New(hetznerrobot.Options{Endpoint: url, Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: timeout, Now: now})
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
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/transaction")
}

func onOrder(d do) providertest.Fault { return providertest.Fault{Match: isOrder, Do: d} }
func onNext(d do) providertest.Fault  { return providertest.Fault{Do: d} }
func always(d do) providertest.Fault  { return providertest.Fault{Always: true, Do: d} }

func none(reason string) providertest.Situation { return providertest.Situation{Reason: reason} }

const noPages = "Robot's lists have no pages."

func TestConformance(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	for _, h := range hosts {
		h.TakeUserData(userDataOf(t, h.PrivateKey, first))
	}
	providertest.Run(t, providertest.Config{
		Driver: driver("http://127.0.0.1:1", 0, nil),
		Configs: []string{
			plainConfig,
			`{"user":"K0123456789","password":"env://ROBOT_PASSWORD","sshPrivateKey":"vault://robot#ssh","image":"Ubuntu-2404"}`,
		},
		BadConfigs: []string{
			`{}`,
			strings.Replace(plainConfig, "secret://robot\"", "plain\"", 1),
			strings.Replace(plainConfig, "#ws+canary", "a:b", 1),
			strings.Replace(plainConfig, `"user"`, `"image":"../etc","user"`, 1),
			strings.Replace(plainConfig, `"user"`, `"image":"Debian*","user"`, 1),
		},
		Plain: arranged(options{host: hosts[0]}),

		ThreePages: none(noPages), EmptyLastPage: none(noPages), RepeatedPage: none(noPages),
		ExtraFields:  with(always(providertest.ExtraFields)),
		MissingPrice: changed(func(f *fake) { f.products[0]["product"].(object)["prices"] = []object{} }),
		UnknownGPU: changed(func(f *fake) {
			f.products[4]["product"].(object)["description"] = []string{"2x GPU - Frobnicator 9 (like GTX)"}
		}),
		OddIDs: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, options{change: func(f *fake) { f.products = append(f.products, product("EX/9 (beta)"), product("EX:9")) }})
			b.OfferID = provider.OfferID("EX/9 (beta)", "HEL1")
			return b.Account
		}},

		AnswerLost: with(onOrder(providertest.AnswerLost)),
		HalfAnswer: with(onOrder(providertest.HalfAnswer)),
		OrderFails: with(onOrder(providertest.Reply(500, refusal(500, "INTERNAL_ERROR")))),
		OutOfStock: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			b := setup(t, options{})
			b.OfferID = marketOffer // somebody else was faster
			b.faults.Add(onOrder(providertest.Reply(400, refusal(400, "INVALID_INPUT", "product_id"))))
			return b.Account
		}},
		OutOfStockLater: changed(func(f *fake) { f.cancelling = true }),
		OfferGone:       changed(func(f *fake) { f.products = f.products[1:] }),
		Quota:           none("Robot tells of no code for a limit of the account."),
		Payment:         with(onOrder(providertest.Reply(402, refusal(402, "PAYMENT_REQUIRED")))),
		Locked:          none("An install goes over SSH, past Robot, and waits there for another one."),

		Unauthorized:   with(always(providertest.Reply(401, refusal(401, "UNAUTHORIZED")))),
		Forbidden:      with(onNext(providertest.Reply(403, refusal(403, "FORBIDDEN")))),
		RateLimited:    with(onNext(providertest.Reply(403, refusal(403, "RATE_LIMIT_EXCEEDED")))),
		RateLimitedFor: with(onNext(providertest.Reply(403, `{"error":{"status":403,"code":"RATE_LIMIT_EXCEEDED","message":"rate limit exceeded","max_request":7,"interval":70}}`))),
		Down:           with(always(providertest.Reply(503, "maintenance"))),
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
	providertest.Mutate(t, providertest.Mutants{Provider: "hetzner-robot", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.servers[0]["server"].(object)["server_ip"] = "0.0.0.1" // where nobody is dialled
		return providertest.Mutant{
			Fake: f, OfferID: offerID, MachineID: first, InstallRef: "generation-1", Sold: f.sold,
			Open: func(url string) provider.Client {
				return open(driver(url, 300*time.Millisecond, nil), plainConfig, "", secret)
			},
		}
	}})
}

func TestOrdersGoOutOnce(t *testing.T) {
	t.Parallel()
	client := func(url string) provider.Client { // four calls go before the order, each of which has to be in time
		return open(driver(url, 2*time.Second, nil), plainConfig, "", secret)
	}
	providertest.SentOnce(t, isOrder, offerID, newFake(), client)
	f := newFake()
	f.market = slices.Repeat(f.market[:1], 20)
	providertest.SentOnce(t, isOrder, marketOffer, f, client)
}

// replay answers everything with a recorded answer.
func replay(t *testing.T, status int, file string) everything {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	client := open(driver(server.URL, 0, nil), plainConfig, "", secret)
	t.Cleanup(func() { _ = client.Close(); server.Close() })
	return client
}

func TestRecordedAnswers(t *testing.T) {
	t.Parallel()
	machines, err := replay(t, 200, "server_list.json").Machines(t.Context())
	got, _ := json.Marshal(machines)
	want := `[{"id":"321","name":"server1","kind":"metal","region":"nbg1","status":"ready","addresses":["123.123.123.123","2a01:4f8:111:4221::2"],"offerId":null},` +
		`{"id":"421","name":"server2","kind":"metal","region":"fsn1","status":"ready","addresses":["123.123.123.124","2a01:4f8:111:4221::2"],"offerId":"X5:FSN1"}]`
	if err != nil || string(got) != want {
		t.Errorf("got  %s, %v\nwant %s", got, err, want)
	}
	identity, err := replay(t, 200, "server_get.json").Identify(t.Context(), first)
	if err != nil || !slices.Equal(identity.Addresses, []string{"123.123.123.123", "2a01:4f8:111:4221::2"}) || identity.Serial != "" || !strings.HasPrefix(identity.SSHHostKey, "SHA256:") {
		t.Errorf("identity %+v, %v", identity, err)
	}
	if _, err := replay(t, 404, "server_get_404.json").Identify(t.Context(), first); provider.ClassOf(err) != provider.NotFound {
		t.Errorf("a server that is gone: %v", err)
	}
	if err := replay(t, 200, "key_list.json").Check(t.Context()); err != nil {
		t.Errorf("check: %v", err)
	}
}

func TestOffers(t *testing.T) {
	t.Parallel()
	offers, err := setup(t, options{}).client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The prices have the IPv4 address in them, which an order asks for.
	for id, want := range map[string]string{
		"GEX44:HEL1": `{"id":"GEX44:HEL1","kind":"metal","region":"hel1","providerRegion":"HEL1","name":"Dedicated Server GEX44","arch":"amd64","vcpu":14,"memoryGiB":64,` +
			`"disks":[{"sizeGB":1920,"count":2,"media":"nvme"}],"gpu":{"model":"RTX-4000-SFF-Ada","vendor":"nvidia","count":1,"memoryGiB":null},` +
			`"price":{"hourly":"0.0652","monthly":"40.7","setup":"39","currency":"EUR","taxIncluded":false},"availability":"unknown",`,
		"RX170:FSN1": `{"id":"RX170:FSN1","kind":"metal","region":"fsn1","providerRegion":"FSN1","name":"Dedicated Server RX170","arch":"arm64","vcpu":80,"memoryGiB":128,` +
			`"disks":[{"sizeGB":960,"count":2,"media":"nvme"}],"gpu":null,`,
		marketOffer: `{"id":"market-283693:FSN1","kind":"metal","region":"fsn1","providerRegion":"FSN1-DC5","name":"SB110","arch":"amd64","vcpu":null,"memoryGiB":24,` +
			`"disks":[{"sizeGB":1500,"count":2,"media":"hdd"},{"sizeGB":120,"count":2,"media":"ssd"}],"gpu":null,` +
			`"price":{"hourly":"0.1495","monthly":"93.3","setup":"0","currency":"EUR","taxIncluded":false},"availability":"available",`,
		"market-283694:FSN1": `{"id":"market-283694:FSN1","kind":"metal","region":"fsn1","providerRegion":"FSN1-DC5","name":"SB38","arch":"amd64","vcpu":null,"memoryGiB":24,` +
			`"disks":[{"sizeGB":1000,"count":2,"media":"nvme"}],"gpu":{"model":"GTX-1080","vendor":"nvidia","count":1,"memoryGiB":null},`,
	} {
		i := slices.IndexFunc(offers, func(o *model.Offer) bool { return o.ID == id })
		if i < 0 {
			t.Fatalf("%s is not among %d offers", id, len(offers))
		}
		got, err := json.Marshal(offers[i])
		if err != nil || !strings.HasPrefix(string(got), want) {
			t.Errorf("got  %s, %v\nwant %s", got, err, want)
		}
	}
}

// TestOrdersAreFoundAgain after Robot has forgotten the order, and after somebody has given the server another name.
func TestOrdersAreFoundAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, options{change: func(f *fake) { f.making = 1 }})
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: operation, OfferID: marketOffer}); err != nil {
		t.Fatal(err)
	}
	if claim, err := b.client.FindClaim(t.Context(), operation); err != nil || claim == nil || claim.State != provider.ClaimPending {
		t.Fatalf("just ordered: %+v, %v", claim, err)
	}
	claim, err := b.client.FindClaim(t.Context(), operation)
	if err != nil || claim == nil || claim.State != provider.ClaimReady {
		t.Fatalf("delivered: %+v, %v", claim, err)
	}
	server := b.fake.server(claim.MachineID)
	if server["server_name"] != operation {
		t.Errorf("the server's name is %v", server["server_name"])
	}
	orders := b.fake.orders
	b.fake.orders = map[string][]object{}
	if again, err := b.client.FindClaim(t.Context(), operation); err != nil || again == nil || again.MachineID != claim.MachineID {
		t.Errorf("by its name: %+v, %v", again, err)
	}
	b.fake.orders = orders
	server["server_name"] = "web"
	owned, err := b.client.Claims(t.Context())
	if err != nil || !slices.Equal(owned, []provider.OwnedMachine{{OperationID: operation, MachineID: claim.MachineID}}) {
		t.Errorf("by its order: %v, %v", owned, err)
	}
	if err := b.client.Release(t.Context(), operation, claim.MachineID); err != nil || b.fake.sold(operation) != 0 {
		t.Errorf("release: %v", err)
	}
	if again, err := b.client.FindClaim(t.Context(), operation); err != nil || again == nil || again.State != provider.ClaimFailed || again.Err == nil {
		t.Errorf("after the release: %+v, %v", again, err)
	}
}

// TestOrdersAskForWhatIsNeeded: an IPv4 address, and no comment, which has people look at the order.
func TestOrdersAskForWhatIsNeeded(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID}); err != nil {
		t.Fatal(err)
	}
	made := b.fake.orders["server"][0]["transaction"].(object)
	if got := made["addons"]; !slices.Equal(got.([]string), []string{"primary_ipv4"}) || made["product"].(object)["location"] != "FSN1" || len(made["authorized_key"].([]object)) != 2 {
		t.Errorf("ordered %v", made)
	}
}

// TestKeysAreNotLeft: each operation has one of its own, and Robot shows them all in one list.
func TestKeysAreNotLeft(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	b.faults.Add(onOrder(providertest.Reply(400, refusal(400, "INVALID_INPUT", "location"))))
	_, err := b.client.Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID})
	if provider.ClassOf(err) != provider.OutOfStock || len(b.fake.keys) != 1 {
		t.Errorf("after a refusal: %v, %d keys", err, len(b.fake.keys))
	}
	if _, err := b.client.Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID}); err != nil || len(b.fake.keys) != 2 {
		t.Fatalf("after an order: %v, %d keys", err, len(b.fake.keys))
	}
	claim, err := b.client.FindClaim(t.Context(), operation)
	if err != nil || claim.State != provider.ClaimReady {
		t.Fatalf("claim %+v, %v", claim, err)
	}
	if err := b.client.Release(t.Context(), operation, claim.MachineID); err != nil || len(b.fake.keys) != 1 {
		t.Errorf("after the release: %v, %d keys", err, len(b.fake.keys))
	}
}

func TestCancelsAtTheEarliestDate(t *testing.T) {
	t.Parallel()
	for earliest, want := range map[string]string{"2020-01-01": "now", "2999-12-31": "2999-12-31", "": "now"} {
		b := setup(t, options{change: func(f *fake) { f.earliest = earliest }})
		if _, err := b.client.Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID}); err != nil {
			t.Fatal(err)
		}
		claim, err := b.client.FindClaim(t.Context(), operation)
		if err != nil || claim.State != provider.ClaimReady {
			t.Fatalf("claim %+v, %v", claim, err)
		}
		if err := b.client.Release(t.Context(), operation, claim.MachineID); err != nil {
			t.Fatal(err)
		}
		for n, form := range b.fake.cancelledFor {
			if form.Get("cancellation_date") != want || form.Get("reserve_location") != "false" || number(n) != claim.MachineID {
				t.Errorf("earliest %q: cancelled %d with %v", earliest, n, form)
			}
		}
		machines, err := b.client.Machines(t.Context())
		if err != nil || len(machines) != 3 || machines[2].Status != "cancelled" {
			t.Errorf("after the release: %v, %v", machines, err)
		}
		if _, err := b.client.Prepare(t.Context(), claim.MachineID); provider.ClassOf(err) != provider.Fatal {
			t.Errorf("prepare of a cancelled server: %v", err)
		}
	}
}

// TestWrongCredentialsDoNotBlockOthers: the address that Robot would block is that of all accounts.
func TestWrongCredentialsDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	f := newFake()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	clock := &clock{at: time.Now()}
	d := driver(server.URL, 0, clock.now)
	check := func(password string) error {
		c := open(d, plainConfig, "", password)
		defer func() { _ = c.Close() }()
		return c.Check(t.Context())
	}
	if err := check(secret); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		var group sync.WaitGroup
		for i := range 9 {
			group.Go(func() {
				err := check(fmt.Sprintf("wrong-%d", i%3))
				if class := provider.ClassOf(err); class != provider.Auth && class != provider.RateLimited {
					t.Errorf("wrong: %v", err)
				}
			})
		}
		group.Wait()
	}
	if f.wrong != 2 {
		t.Errorf("%d logins failed at Robot; it blocks at the third", f.wrong)
	}
	if err := check(secret); err != nil {
		t.Errorf("an account in order: %v", err)
	}
	clock.advance(10*time.Minute + time.Second)
	if err := check("wrong-0"); provider.ClassOf(err) != provider.Auth || f.wrong != 3 {
		t.Errorf("ten minutes later: %v after %d", err, f.wrong)
	}
}

// installer is installimage, so far as a machine without disks of its own can be installed.
const installer = `#!/bin/sh
set -e
[ "$1 $2" = "-a -c" ]
cp "$3" /root/config-seen
exec /root/post-install
`

// TestInstallsASystem meets a server with a system that nobody here knows. It boots the rescue system, has that put a system onto the disk whose
// host key follows from the account, and installs the agent there.
func TestInstallsASystem(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := setup(t, options{key: host.PrivateKey, change: func(f *fake) {
		f.servers[0]["server"].(object)["server_ip"] = host.Address.String()
	}})
	host.Run("mkdir -p /root/.oldroot/nfs/install /root/.oldroot/nfs/images /sys/block/nvme0n1 /sys/block/nvme1n1 /sys/block/sda")
	host.Run("for d in nvme0n1 nvme1n1; do echo 1000215216 >/sys/block/$d/size; done; echo 7814037168 >/sys/block/sda/size")
	host.Run("cd /root/.oldroot/nfs/images && touch Debian-1300-trixie-amd64-base.tar.gz Debian-1303-trixie-amd64-base.tar.zst Debian-1303-trixie-amd64-base.tar.zst.sig Debian-1400-x-arm64-base.tar.gz")
	host.Write("/root/.oldroot/nfs/install/installimage", installer)
	host.Run("chmod +x /root/.oldroot/nfs/install/installimage")

	steps := []string{}
	for deadline := time.Now().Add(time.Minute); ; {
		p, err := b.client.Prepare(t.Context(), first)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("after %q: %v", steps, err)
		}
		if p.Ready {
			break
		}
		if p.Wait <= 0 || len(p.Step) == 0 {
			t.Errorf("preparation %+v", p)
		}
		if len(steps) == 0 || steps[len(steps)-1] != p.Step {
			steps = append(steps, p.Step)
		}
		b.clock.advance(2 * time.Minute)
		switch b.fake.booted(321) {
		case "rescue":
			host.ReplaceHostKey()
			signer, err := cryptossh.ParsePrivateKey([]byte(host.Run("cat /etc/ssh/netns_host_key")))
			if err != nil {
				t.Fatal(err)
			}
			b.fake.tell(321, cryptossh.FingerprintLegacyMD5(signer.PublicKey()))
		case "disk":
			host.StopSSHD()
			host.Run("cp /etc/ssh/ssh_host_ed25519_key /etc/ssh/netns_host_key; cp /root/.ssh/authorized_keys /etc/ssh/netns_authorized_keys; rm -rf /root/.bcd-image")
			host.StartSSHD()
		}
	}
	want := []string{"setting the rescue system up", "booting the rescue system", "putting a system onto the disk", "booting the installed system"}
	if !slices.Equal(steps, want) {
		t.Errorf("steps %q", steps)
	}
	config := "DRIVE1 /dev/nvme0n1\nDRIVE2 /dev/nvme1n1\nSWRAID 1\nSWRAIDLEVEL 1\nHOSTNAME server-321\nBOOTLOADER grub\nPART /boot ext3 1024M\nPART / ext4 all\n" +
		"IMAGE /root/.oldroot/nfs/images/Debian-1303-trixie-amd64-base.tar.zst\n"
	if got := host.Run("cat /root/config-seen"); got != config {
		t.Errorf("installed with\n%s", got)
	}
	ref, err := b.client.Install(t.Context(), first, payload(1))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(host.Run("cat /etc/bcd/join-token")); got != "join-1" {
		t.Errorf("token %q", got)
	}
	if _, err := b.client.InstallStatus(t.Context(), first, ref); err != nil {
		t.Error(err)
	}
	if p, err := b.client.Prepare(t.Context(), first); err != nil || !p.Ready || b.fake.booted(321) != "" {
		t.Errorf("a server with our system is not reset: %+v, %v", p, err)
	}
}

// TestAFailedInstallIsTold, and the next attempt begins anew.
func TestAFailedInstallIsTold(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := setup(t, options{key: host.PrivateKey, change: func(f *fake) {
		f.servers[0]["server"].(object)["server_ip"] = host.Address.String()
	}})
	signer, err := cryptossh.ParsePrivateKey([]byte(host.Run("cat /etc/ssh/netns_host_key")))
	if err != nil {
		t.Fatal(err)
	}
	login, err := cryptossh.ParsePrivateKey([]byte(host.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	b.fake.rescues[321].last = []string{cryptossh.FingerprintLegacyMD5(login.PublicKey())}
	b.fake.tell(321, cryptossh.FingerprintLegacyMD5(signer.PublicKey()))
	prepare := func() error {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			if _, err := b.client.Prepare(t.Context(), first); err != nil {
				return err
			}
		}
		return nil
	}
	if err := prepare(); provider.ClassOf(err) != provider.InstallError || !strings.Contains(err.Error(), "installimage") {
		t.Errorf("no rescue system of Hetzner's: %v", err)
	}
	host.Run("mkdir -p /root/.oldroot/nfs/install /root/.oldroot/nfs/images /sys/block/sda; echo 1000215216 >/sys/block/sda/size")
	host.Write("/root/.oldroot/nfs/install/installimage", "#!/bin/sh\necho the disk is broken\nexit 7\n")
	host.Run("chmod +x /root/.oldroot/nfs/install/installimage")
	if err := prepare(); provider.ClassOf(err) != provider.InvalidConfig || !strings.Contains(err.Error(), "Debian-13") {
		t.Errorf("no image: %v", err)
	}
	host.Run("touch /root/.oldroot/nfs/images/Debian-1300-trixie-amd64-base.tar.gz")
	for range 2 {
		err := prepare()
		e, ok := err.(*provider.Error)
		if !ok || e.Class != provider.InstallError || !slices.Contains(e.Log, "the disk is broken") || !strings.Contains(e.Message, "exit code 7") {
			t.Errorf("installimage fails: %v", err)
		}
	}
	if b.fake.booted(321) != "" {
		t.Error("the server was reset")
	}
}

// TestASilentServerIsWaitedFor before it is reset, since it may be booting; and its rescue system is not spoken to while nobody says its host key.
func TestASilentServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := setup(t, options{key: host.PrivateKey, change: func(f *fake) {
		f.servers[0]["server"].(object)["server_ip"] = host.Address.String()
	}})
	host.StopSSHD()
	prepare := func() *provider.Preparation {
		t.Helper()
		p, err := b.client.Prepare(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := prepare(); !strings.Contains(p.Step, "to boot") || b.fake.rescues[321].active {
		t.Fatalf("at first: %+v", p)
	}
	b.clock.advance(7 * time.Minute)
	prepare()
	prepare()
	if b.fake.booted(321) != "rescue" {
		t.Fatal("it was not reset into the rescue system")
	}
	host.StartSSHD()
	if p := prepare(); !strings.Contains(p.Step, "to boot") {
		t.Errorf("no host key yet: %+v", p)
	}
	b.clock.advance(7 * time.Minute)
	if _, err := b.client.Prepare(t.Context(), first); provider.ClassOf(err) != provider.InstallError || !strings.Contains(err.Error(), "host key") {
		t.Errorf("no host key at all: %v", err)
	}
}
