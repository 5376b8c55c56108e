package awsec2_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
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
	"better/compute/provider/awsec2"
	"better/compute/provider/providertest"
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
	plainConfig = `{"accessKeyId":"AKIAIOSFODNN7EXAMPLE","secretAccessKey":"secret://aws","region":"us-east-2","subnetId":"subnet-0123456789abcdef0",` +
		`"securityGroupIds":["sg-0123456789abcdef0"],"images":{"amd64":"ami-0123456789abcdef0","arm64":"ami-0fedcba9876543210"},"sshPrivateKey":"secret://aws-ssh"}`
	first     = "i-00000000000000001" // the instance that is there
	offer     = "c4.large:us-east-2"
	operation = "bcd-0000000000000000000000000a"
)

// withField adds a field to the plain config.
func withField(field string) string { return strings.TrimSuffix(plainConfig, "}") + "," + field + "}" }

// bundle is an account of a test's own.
type bundle struct {
	*providertest.Account
	fake   *fake
	faults *providertest.Faults
}

type options struct {
	timeout time.Duration
	host    *netns.Host // that the first instance is
	key     string
	config  string
	change  func(*fake)
}

func setup(t *testing.T, o options) *bundle {
	t.Helper()
	b := &bundle{fake: newFake()}
	b.fake.making = 1
	if o.config == "" {
		o.config = plainConfig
	}
	if o.host != nil {
		b.fake.address = o.host.Address.String()
		b.fake.instances[0]["PublicIpAddress"] = b.fake.address
		o.config = withField(fmt.Sprintf(`"hostFingerprints":{"%s":%q}`, first, o.host.Fingerprint))
		o.key = o.host.PrivateKey
	}
	if o.change != nil {
		o.change(b.fake)
	}
	b.faults = providertest.NewFaults(b.fake)
	server := httptest.NewServer(b.faults)
	client := open(server.URL, o.timeout, o.config, o.key)
	b.Account = &providertest.Account{Client: client, Secret: secret, OfferID: offer, Sold: b.fake.sold}
	if o.host != nil {
		b.MachineID, b.Payload = first, payload
	}
	t.Cleanup(func() { _ = client.Close(); server.Close() })
	return b
}

func open(url string, timeout time.Duration, config, key string) provider.Client {
	if key == "" {
		key = anyKey
	}
	client, err := driver(url, timeout).Open(context.Background(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(config),
		Secret: func(_ context.Context, reference string) (string, error) {
			if reference == "secret://aws-ssh" {
				return key, nil
			}
			return secret, nil
		},
	})
	if err != nil {
		panic(err)
	}
	return client
}

var anyKey = netns.NewKey()

func driver(url string, timeout time.Duration) *awsec2.Driver {
	return awsec2.New(awsec2.Options{Endpoint: url, Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}, Timeout: timeout})
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

// isOrder reads the body, and puts it back.
func isOrder(r *http.Request) bool {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, _ := url.ParseQuery(string(body))
	return err == nil && form.Get("Action") == "RunInstances"
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
		Driver:  driver("http://127.0.0.1:1", 0),
		Configs: []string{plainConfig, withField(`"rootVolumeGiB":100,"rootDevice":"/dev/xvda","hostFingerprints":{"i-0123456789abcdef0":"SHA256:uNiVztksCsDhcc0u9e8BrkpJcqtoUZRiiYKqKpwRbZA"}`)},
		BadConfigs: []string{
			`{}`, withField(`"endpoint":"https://example.com"`), strings.Replace(plainConfig, "us-east-2", "us-east-2.example.com/", 1), strings.Replace(plainConfig, "secret://aws-ssh", "-----BEGIN", 1),
			strings.Replace(plainConfig, "secret://aws\"", "wJalrXUtnFEMI\"", 1), withField(`"rootVolumeGiB":0`), withField(`"hostFingerprints":{"a":"b"}`),
		},
		Plain: plain,

		ThreePages:    changed(func(f *fake) { f.perPage = 2 }),
		EmptyLastPage: changed(func(f *fake) { f.perPage, f.emptyLastPage = 5, true }),
		RepeatedPage:  changed(func(f *fake) { f.perPage, f.repeatedPage = 2, true }),
		ExtraFields:   changed(func(f *fake) { f.extra = true }),
		MissingPrice:  plain,
		UnknownGPU:    changed(func(f *fake) { setGPU(f, "Acme", "Frobnicator 9") }),
		OddIDs:        none("Types, regions and instances there have only the characters of our ids."),

		AnswerLost:      with(onOrder(providertest.AnswerLost)),
		HalfAnswer:      with(onOrder(providertest.HalfAnswer)),
		OrderFails:      with(onOrder(providertest.Reply(500, refusal("InternalError")))),
		OutOfStock:      changed(func(f *fake) { f.soldOut = true }),
		OutOfStockLater: changed(func(f *fake) { f.soldOutLater = true }),
		OfferGone:       changed(func(f *fake) { f.elsewhere["c4.large"] = true }),
		Quota:           changed(func(f *fake) { f.limit = 2 }),
		Payment:         with(onOrder(providertest.Reply(403, refusal("Blocked")))),
		Locked:          none("An install goes over SSH, past EC2, and waits there for another one."),

		Unauthorized:   with(always(providertest.Reply(401, refusal("AuthFailure")))),
		Forbidden:      with(onNext(providertest.Reply(403, refusal("UnauthorizedOperation")))),
		RateLimited:    with(onNext(providertest.Reply(503, refusal("RequestLimitExceeded")))),
		RateLimitedFor: with(onNext(providertest.Reply(503, refusal("RequestLimitExceeded"), "Retry-After", "7"))),
		Down:           with(always(providertest.Reply(503, refusal("Unavailable")))),
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

// setGPU gives the type that has GPUs others.
func setGPU(f *fake, manufacturer, name string) {
	gpu := f.typeOf("p3.16xlarge")["GpuInfo"].(object)["Gpus"].([]any)[0].(object)
	gpu["Manufacturer"], gpu["Name"] = manufacturer, name
}

func TestMutants(t *testing.T) {
	t.Parallel()
	providertest.Mutate(t, providertest.Mutants{Provider: "aws-ec2", New: func(*testing.T) providertest.Mutant {
		f := newFake()
		f.perPage = 4
		f.address = "0.0.0.1" // where nobody is dialled
		f.instances[0]["PublicIpAddress"] = f.address
		return providertest.Mutant{
			Fake: f, OfferID: offer, MachineID: first, InstallRef: "generation-1", Sold: f.sold,
			Open: func(url string) provider.Client { return open(url, 300*time.Millisecond, plainConfig, "") },
		}
	}})
}

func TestOrdersAreSentOnce(t *testing.T) {
	t.Parallel()
	providertest.SentOnce(t, isOrder, offer, newFake(), func(url string) provider.Client {
		return open(url, 300*time.Millisecond, plainConfig, "")
	})
}

// TestOffersOfAType reads recorded types, of which the subnet's zone lacks one.
func TestOffersOfAType(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(offers) != len(b.fake.types)-1 {
		t.Errorf("%d offers of %d types", len(offers), len(b.fake.types))
	}
	for id, want := range map[string]string{
		"c3.2xlarge:us-east-2": `{"id":"c3.2xlarge:us-east-2","kind":"vps","region":"us-east-2","providerRegion":"us-east-2","name":"c3.2xlarge","arch":"amd64","vcpu":8,"memoryGiB":15,` +
			`"disks":[{"sizeGB":80,"count":2,"media":"ssd"}],"gpu":null,"price":null,"availability":"unknown",`,
		"p3.16xlarge:us-east-2": `{"id":"p3.16xlarge:us-east-2","kind":"vps","region":"us-east-2","providerRegion":"us-east-2","name":"p3.16xlarge","arch":"amd64","vcpu":64,"memoryGiB":488,` +
			`"disks":[],"gpu":{"model":"V100-16GB","vendor":"nvidia","count":8,"memoryGiB":16},"price":null,`,
		"a1.metal:us-east-2": `{"id":"a1.metal:us-east-2","kind":"metal","region":"us-east-2","providerRegion":"us-east-2","name":"a1.metal","arch":"arm64","vcpu":16,"memoryGiB":32,`,
	} {
		i := slices.IndexFunc(offers, func(o *model.Offer) bool { return o.ID == id })
		if i < 0 {
			t.Fatalf("%s is not among %d offers", id, len(offers))
		}
		got, err := json.Marshal(offers[i])
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(got), want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestTypesWithoutAnImageAreNotOffered: nothing could be ordered of them.
func TestTypesWithoutAnImageAreNotOffered(t *testing.T) {
	t.Parallel()
	b := setup(t, options{config: strings.Replace(plainConfig, `,"arm64":"ami-0fedcba9876543210"`, "", 1)})
	offers, err := b.Client.Offers(t.Context())
	if err != nil || len(offers) == 0 {
		t.Fatalf("%d offers, %v", len(offers), err)
	}
	for _, o := range offers {
		if *o.Arch != "amd64" {
			t.Errorf("%s is offered", o.ID)
		}
	}
	_, err = b.Client.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: operation, OfferID: "a1.large:us-east-2"})
	if provider.ClassOf(err) != provider.InvalidConfig {
		t.Errorf("an order of one: %v", err)
	}
}

// TestARequestOfAnOrder looks at what goes out with one.
func TestARequestOfAnOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, options{config: withField(`"rootVolumeGiB":100`)})
	if _, err := b.Client.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: operation, OfferID: "a1.metal:us-east-2"}); err != nil {
		t.Fatal(err)
	}
	sent := b.fake.requests[operation]
	for field, want := range map[string]string{
		"InstanceType": "a1.metal", "ImageId": armImage, "BlockDeviceMapping.1.DeviceName": "/dev/sda1", "BlockDeviceMapping.1.Ebs.VolumeSize": "100",
		"BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true", "NetworkInterface.1.AssociatePublicIpAddress": "true", "MetadataOptions.HttpTokens": "required",
		"TagSpecification.1.Tag.1.Value": operation,
	} {
		if got := sent.Get(field); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	if data := b.fake.userData(operation); !strings.HasPrefix(data, "#cloud-config\n") {
		t.Errorf("user data %.40q", data)
	}
}

// TestRefusals: EC2 says 400 of nearly everything, and the codes tell them apart.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]provider.Class{
		"InvalidParameterValue": provider.OfferGone, "Unsupported": provider.OfferGone, "InvalidAMIID.NotFound": provider.InvalidConfig,
		"InvalidGroup.NotFound": provider.InvalidConfig, "OptInRequired": provider.InvalidConfig, "InstanceLimitExceeded": provider.Quota,
		"InsufficientFreeAddressesInSubnet": provider.Quota, "IdempotentParameterMismatch": provider.UnknownOutcome,
		"IdempotentInstanceTerminated": provider.Fatal, "SomethingNew": provider.Fatal,
	} {
		b := setup(t, options{})
		b.faults.Add(onOrder(providertest.Reply(400, refusal(code))))
		_, err := b.Client.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: operation, OfferID: offer})
		if provider.ClassOf(err) != want {
			t.Errorf("%s: %v, want class %s", code, err, want)
		}
	}
}

// TestAnEmptyAnswerIsNoList: the SDK takes one for an empty list, and an operation's instance would be taken for none.
func TestAnEmptyAnswerIsNoList(t *testing.T) {
	t.Parallel()
	b := setup(t, options{})
	b.faults.Add(always(providertest.Reply(200, "<DescribeInstancesResponse/>")))
	claim, err := b.Client.(provider.Orderer).FindClaim(t.Context(), operation)
	if claim != nil || provider.ClassOf(err) != provider.InvalidResponse {
		t.Errorf("claim %+v, %v", claim, err)
	}
	if err := b.Client.Check(t.Context()); provider.ClassOf(err) != provider.InvalidResponse {
		t.Errorf("check: %v", err)
	}
}

// TestInstallsOnWhatItOrdered has a machine take its order's user data as cloud-init does, and installs on it. An instance that was not
// ordered is not spoken to.
func TestInstallsOnWhatItOrdered(t *testing.T) {
	t.Parallel()
	host := netns.Hosts(t, 1)[0]
	b := setup(t, options{key: netns.NewKey(), change: func(f *fake) { f.address = host.Address.String() }})
	c := b.Client.(interface {
		provider.Bootstrapper
		provider.Orderer
	})
	claim, err := c.Order(t.Context(), provider.Order{OperationID: operation, OfferID: offer})
	if err != nil {
		t.Fatal(err)
	}
	host.TakeUserData(b.fake.userData(operation))
	id := claim.OrderRef
	identity, err := c.Identify(t.Context(), id)
	for ; provider.ClassOf(err) == provider.Unavailable && err != nil; identity, err = c.Identify(t.Context(), id) { // it runs after some looks
	}
	if err != nil || identity.Serial != "" || !strings.HasPrefix(identity.SSHHostKey, "SHA256:") || identity.CPUs != 2 || identity.MemoryMiB != 3840 {
		t.Fatalf("identity %+v, %v", identity, err)
	}
	if p, err := c.Prepare(t.Context(), id); err != nil || !p.Ready {
		t.Fatalf("prepare: %+v, %v", p, err)
	}
	ref, err := c.Install(t.Context(), id, payload(1))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(host.Run("cat /etc/bcd/join-token")); got != "join-1" {
		t.Errorf("token %q", got)
	}
	if _, err := c.InstallStatus(t.Context(), id, ref); err != nil {
		t.Error(err)
	}
	if _, err := c.Prepare(t.Context(), first); provider.ClassOf(err) != provider.InvalidConfig || !strings.Contains(err.Error(), "hostFingerprints") {
		t.Errorf("an instance that nobody ordered: %v", err)
	}
}
