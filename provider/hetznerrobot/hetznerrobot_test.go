package hetznerrobot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	cryptossh "golang.org/x/crypto/ssh"

	"better/compute/apitest/netns"
	"better/compute/internal/leaktest"
	"better/compute/provider"
	"better/compute/provider/hetznerrobot"
	"better/compute/provider/providertest"
	"better/compute/provider/ssh"
)

func TestMain(m *testing.M) { providertest.Main(m, func(m *testing.M) { leaktest.Main(m) }) }

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

type options = providertest.Options[*fake]

var rig = rigAt(nil)

// rigAt makes accounts whose driver has the clock.
func rigAt(now func() time.Time) *providertest.Rig[*fake] {
	return &providertest.Rig[*fake]{
		Driver: func(url string, timeout time.Duration) provider.Driver {
			return hetznerrobot.New(hetznerrobot.Options{Endpoint: url, Networks: providertest.Loopback(), Timeout: timeout, Now: now})
		},
		Config: plainConfig, SSHKey: "secret://robot-ssh", Secret: secret, Fake: newFake, OfferID: offerID, MachineID: first, Sold: (*fake).sold, Place: (*fake).place,
	}
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

func isOrder(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/transaction")
}

func onOrder(do providertest.Do) providertest.Fault { return providertest.On(isOrder, do) }

const noPages = "Robot's lists have no pages."

// oddOffer has a name that does not do for an id, so that it is looked for.
var oddOffer = options{OfferID: provider.OfferID("EX/9 (beta)", "HEL1"), Change: func(f *fake) {
	f.products = append(f.products, product("EX/9 (beta)"), product("EX:9"))
}}

func TestConformance(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	for _, h := range hosts {
		h.TakeUserData(userDataOf(t, h.PrivateKey, first))
	}
	providertest.Run(t, providertest.Config{
		Driver: rig.Driver("http://127.0.0.1:1", 0),
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
		Plain: rig.Arranged(options{Host: hosts[0]}),

		ThreePages: providertest.None(noPages), EmptyLastPage: providertest.None(noPages), RepeatedPage: providertest.None(noPages),
		ExtraFields:  rig.With(providertest.Always(providertest.ExtraFields)),
		MissingPrice: rig.Changed(func(f *fake) { f.products[0]["product"].(object)["prices"] = []object{} }),
		UnknownGPU: rig.Changed(func(f *fake) {
			f.products[4]["product"].(object)["description"] = []string{"2x GPU - Frobnicator 9 (like GTX)"}
		}),
		OddIDs: rig.Arranged(oddOffer),

		AnswerLost:      rig.With(onOrder(providertest.AnswerLost)),
		HalfAnswer:      rig.With(onOrder(providertest.HalfAnswer)),
		OrderFails:      rig.With(onOrder(providertest.Reply(500, refusal(500, "INTERNAL_ERROR")))),
		Spoilt:          rig.Spoilt(isOrder, oddOffer),
		OutOfStock:      rig.Arranged(options{OfferID: marketOffer}, onOrder(providertest.Reply(400, refusal(400, "INVALID_INPUT", "product_id")))), // somebody was faster
		OutOfStockLater: rig.Changed(func(f *fake) { f.cancelling = true }),
		OfferGone:       rig.Changed(func(f *fake) { f.products = f.products[1:] }),
		Quota:           providertest.None("Robot tells of no code for a limit of the account."),
		Payment:         rig.With(onOrder(providertest.Reply(402, refusal(402, "PAYMENT_REQUIRED")))),
		Locked:          providertest.None("An install goes over SSH, past Robot, and waits there for another one."),

		Unauthorized:   rig.With(providertest.Always(providertest.Reply(401, refusal(401, "UNAUTHORIZED")))),
		Forbidden:      rig.With(providertest.OnNext(providertest.Reply(403, refusal(403, "FORBIDDEN")))),
		RateLimited:    rig.With(providertest.OnNext(providertest.Reply(403, refusal(403, "RATE_LIMIT_EXCEEDED")))),
		RateLimitedFor: rig.With(providertest.OnNext(providertest.Reply(403, `{"error":{"status":403,"code":"RATE_LIMIT_EXCEEDED","message":"rate limit exceeded","max_request":7,"interval":70}}`))),
		Down:           rig.With(providertest.Always(providertest.Reply(503, "maintenance"))),
		Hangs:          rig.Arranged(options{Timeout: 300 * time.Millisecond}, providertest.OnNext(providertest.Hang)),
		Garbage:        rig.With(providertest.Always(providertest.HTML)),
		InstallFails:   rig.Arranged(options{Host: hosts[1], Payload: providertest.BrokenPayload}),
	})
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "hetzner-robot", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.place("0.0.0.1") // where nobody is dialled
		return rig.Mutant(f, "generation-1")
	}})
}

func TestOrdersGoOutOnce(t *testing.T) {
	t.Parallel()
	client := func(url string) provider.Client {
		return rig.Open(url, options{Timeout: providertest.SentOnceIn})
	}
	providertest.SentOnce(t, isOrder, offerID, newFake(), client)
	f := newFake()
	f.market = slices.Repeat(f.market[:1], 20)
	providertest.SentOnce(t, isOrder, marketOffer, f, client)
}

// replay answers everything with a recorded answer.
func replay(t *testing.T, status int, file string) providertest.Whole {
	t.Helper()
	body, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write(body)
	}))
	client := rig.Open(server.URL, options{}).(providertest.Whole)
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
	offers, err := rig.Bench(t, options{}).Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// The prices have the IPv4 address in them, which an order asks for.
	providertest.WantOffers(t, offers, map[string]string{
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
	})
}

// TestOrdersAreFoundAgain after Robot has forgotten the order, and after somebody has given the server another name.
func TestOrdersAreFoundAgain(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{Change: func(f *fake) { f.making = 1 }})
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: operation, OfferID: marketOffer}); err != nil {
		t.Fatal(err)
	}
	if claim, err := b.Whole().FindClaim(t.Context(), operation); err != nil || claim == nil || claim.State != provider.ClaimPending {
		t.Fatalf("just ordered: %+v, %v", claim, err)
	}
	claim, err := b.Whole().FindClaim(t.Context(), operation)
	if err != nil || claim == nil || claim.State != provider.ClaimReady {
		t.Fatalf("delivered: %+v, %v", claim, err)
	}
	server := b.Fake.server(claim.MachineID)
	if server["server_name"] != operation {
		t.Errorf("the server's name is %v", server["server_name"])
	}
	orders := b.Fake.orders
	b.Fake.orders = map[string][]object{}
	if again, err := b.Whole().FindClaim(t.Context(), operation); err != nil || again == nil || again.MachineID != claim.MachineID {
		t.Errorf("by its name: %+v, %v", again, err)
	}
	b.Fake.orders = orders
	server["server_name"] = "web"
	owned, err := b.Whole().Claims(t.Context())
	if err != nil || !slices.Equal(owned, []provider.OwnedMachine{{OperationID: operation, MachineID: claim.MachineID}}) {
		t.Errorf("by its order: %v, %v", owned, err)
	}
	if err := b.Whole().Release(t.Context(), operation, claim.MachineID); err != nil || b.Fake.sold(operation) != 0 {
		t.Errorf("release: %v", err)
	}
	if again, err := b.Whole().FindClaim(t.Context(), operation); err != nil || again == nil || again.State != provider.ClaimFailed || again.Err == nil {
		t.Errorf("after the release: %+v, %v", again, err)
	}
}

// TestOrdersAskForWhatIsNeeded: an IPv4 address, and no comment, which has people look at the order.
func TestOrdersAskForWhatIsNeeded(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID}); err != nil {
		t.Fatal(err)
	}
	made := b.Fake.orders["server"][0]["transaction"].(object)
	if got := made["addons"]; !slices.Equal(got.([]string), []string{"primary_ipv4"}) || made["product"].(object)["location"] != "FSN1" || len(made["authorized_key"].([]object)) != 2 {
		t.Errorf("ordered %v", made)
	}
}

// TestKeysAreNotLeft: each operation has one of its own, and Robot shows them all in one list.
func TestKeysAreNotLeft(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
	b.Faults.Add(onOrder(providertest.Reply(400, refusal(400, "INVALID_INPUT", "location"))))
	_, err := b.Whole().Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID})
	if provider.ClassOf(err) != provider.OutOfStock || len(b.Fake.keys) != 1 {
		t.Errorf("after a refusal: %v, %d keys", err, len(b.Fake.keys))
	}
	if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID}); err != nil || len(b.Fake.keys) != 2 {
		t.Fatalf("after an order: %v, %d keys", err, len(b.Fake.keys))
	}
	claim, err := b.Whole().FindClaim(t.Context(), operation)
	if err != nil || claim.State != provider.ClaimReady {
		t.Fatalf("claim %+v, %v", claim, err)
	}
	if err := b.Whole().Release(t.Context(), operation, claim.MachineID); err != nil || len(b.Fake.keys) != 1 {
		t.Errorf("after the release: %v, %d keys", err, len(b.Fake.keys))
	}
}

func TestCancelsAtTheEarliestDate(t *testing.T) {
	t.Parallel()
	for earliest, want := range map[string]string{"2020-01-01": "now", "2999-12-31": "2999-12-31", "": "now"} {
		b := rig.Bench(t, options{Change: func(f *fake) { f.earliest = earliest }})
		if _, err := b.Whole().Order(t.Context(), provider.Order{OperationID: operation, OfferID: offerID}); err != nil {
			t.Fatal(err)
		}
		claim, err := b.Whole().FindClaim(t.Context(), operation)
		if err != nil || claim.State != provider.ClaimReady {
			t.Fatalf("claim %+v, %v", claim, err)
		}
		if err := b.Whole().Release(t.Context(), operation, claim.MachineID); err != nil {
			t.Fatal(err)
		}
		for n, form := range b.Fake.cancelledFor {
			if form.Get("cancellation_date") != want || form.Get("reserve_location") != "false" || number(n) != claim.MachineID {
				t.Errorf("earliest %q: cancelled %d with %v", earliest, n, form)
			}
		}
		machines, err := b.Whole().Machines(t.Context())
		if err != nil || len(machines) != 3 || machines[2].Status != "cancelled" {
			t.Errorf("after the release: %v, %v", machines, err)
		}
		if _, err := b.Whole().Prepare(t.Context(), claim.MachineID); provider.ClassOf(err) != provider.Fatal {
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
	d := rigAt(clock.now).Driver(server.URL, 0)
	check := func(password string) error {
		c, err := d.Open(t.Context(), provider.Account{
			ID: "pacct_test", Config: json.RawMessage(plainConfig), Secret: func(context.Context, string) (string, error) { return password, nil },
		})
		if err != nil {
			return err
		}
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
	clock := &clock{at: time.Now()}
	b := rigAt(clock.now).Bench(t, options{Host: host})
	host.Run("mkdir -p /root/.oldroot/nfs/install /root/.oldroot/nfs/images /sys/block/nvme0n1 /sys/block/nvme1n1 /sys/block/sda")
	host.Run("for d in nvme0n1 nvme1n1; do echo 1000215216 >/sys/block/$d/size; done; echo 7814037168 >/sys/block/sda/size")
	host.Run("cd /root/.oldroot/nfs/images && touch Debian-1300-trixie-amd64-base.tar.gz Debian-1303-trixie-amd64-base.tar.zst Debian-1303-trixie-amd64-base.tar.zst.sig Debian-1400-x-arm64-base.tar.gz")
	host.Write("/root/.oldroot/nfs/install/installimage", installer)
	host.Run("chmod +x /root/.oldroot/nfs/install/installimage")

	steps := []string{}
	for deadline := time.Now().Add(time.Minute); ; {
		p, err := b.Whole().Prepare(t.Context(), first)
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
		clock.advance(2 * time.Minute)
		switch b.Fake.booted(321) {
		case "rescue":
			host.ReplaceHostKey()
			signer, err := cryptossh.ParsePrivateKey([]byte(host.Run("cat /etc/ssh/netns_host_key")))
			if err != nil {
				t.Fatal(err)
			}
			b.Fake.tell(321, cryptossh.FingerprintLegacyMD5(signer.PublicKey()))
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
	ref, err := b.Whole().Install(t.Context(), first, providertest.RunningPayload(1))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(host.Run("cat /etc/bcd/join-token")); got != "join-1" {
		t.Errorf("token %q", got)
	}
	if _, err := b.Whole().InstallStatus(t.Context(), first, ref); err != nil {
		t.Error(err)
	}
	if p, err := b.Whole().Prepare(t.Context(), first); err != nil || !p.Ready || b.Fake.booted(321) != "" {
		t.Errorf("a server with our system is not reset: %+v, %v", p, err)
	}
}

// TestAFailedInstallIsTold, and the next attempt begins anew.
func TestAFailedInstallIsTold(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	clock := &clock{at: time.Now()}
	b := rigAt(clock.now).Bench(t, options{Host: host})
	signer, err := cryptossh.ParsePrivateKey([]byte(host.Run("cat /etc/ssh/netns_host_key")))
	if err != nil {
		t.Fatal(err)
	}
	login, err := cryptossh.ParsePrivateKey([]byte(host.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	b.Fake.rescues[321].last = []string{cryptossh.FingerprintLegacyMD5(login.PublicKey())}
	b.Fake.tell(321, cryptossh.FingerprintLegacyMD5(signer.PublicKey()))
	prepare := func() error {
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
			if _, err := b.Whole().Prepare(t.Context(), first); err != nil {
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
	if b.Fake.booted(321) != "" {
		t.Error("the server was reset")
	}
}

// TestASilentServerIsWaitedFor before it is reset, since it may be booting; and its rescue system is not spoken to while nobody says its host key.
func TestASilentServerIsWaitedFor(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	clock := &clock{at: time.Now()}
	b := rigAt(clock.now).Bench(t, options{Host: host})
	host.StopSSHD()
	prepare := func() *provider.Preparation {
		t.Helper()
		p, err := b.Whole().Prepare(t.Context(), first)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if p := prepare(); !strings.Contains(p.Step, "to boot") || b.Fake.rescues[321].active {
		t.Fatalf("at first: %+v", p)
	}
	clock.advance(7 * time.Minute)
	prepare()
	prepare()
	if b.Fake.booted(321) != "rescue" {
		t.Fatal("it was not reset into the rescue system")
	}
	host.StartSSHD()
	if p := prepare(); !strings.Contains(p.Step, "to boot") {
		t.Errorf("no host key yet: %+v", p)
	}
	clock.advance(7 * time.Minute)
	if _, err := b.Whole().Prepare(t.Context(), first); provider.ClassOf(err) != provider.InstallError || !strings.Contains(err.Error(), "host key") {
		t.Errorf("no host key at all: %v", err)
	}
}
