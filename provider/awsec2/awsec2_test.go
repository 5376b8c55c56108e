package awsec2_test

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"better/compute/apitest/netns"
	"better/compute/apitest/site"
	"better/compute/provider"
	"better/compute/provider/awsec2"
	"better/compute/provider/providertest"
)

func TestMain(m *testing.M) { providertest.Main(m, site.Main) }

const (
	plainConfig = `{"accessKeyId":"AKIAIOSFODNN7EXAMPLE","secretAccessKey":"secret://aws","region":"us-east-2","subnetId":"subnet-0123456789abcdef0",` +
		`"securityGroupIds":["sg-0123456789abcdef0"],"images":{"amd64":"ami-0123456789abcdef0","arm64":"ami-0fedcba9876543210"},"sshPrivateKey":"secret://aws-ssh"}`
	first     = "i-00000000000000001" // the instance that is there
	offer     = "c4.large:us-east-2"
	operation = "bcd-0000000000000000000000000a"
)

// withField adds a field to the plain config.
func withField(field string) string { return strings.TrimSuffix(plainConfig, "}") + "," + field + "}" }

type options = providertest.Options[*fake]

var rig = &providertest.Rig[*fake]{
	Driver: func(url string, timeout time.Duration) provider.Driver {
		return awsec2.New(awsec2.Options{Endpoint: url, Networks: providertest.Loopback(), Timeout: timeout})
	},
	Config: plainConfig, SSHKey: "secret://aws-ssh", Secret: secret,
	Fake: func() *fake {
		f := newFake()
		f.making = 1
		return f
	},
	OfferID: offer, MachineID: first, Sold: (*fake).sold,
	Place: func(f *fake, address string) {
		f.address = address
		f.instances[0]["PublicIpAddress"] = address
	},
}

// isOrder reads the body, and puts it back.
func isOrder(r *http.Request) bool {
	body, err := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	form, _ := url.ParseQuery(string(body))
	return err == nil && form.Get("Action") == "RunInstances"
}

func onOrder(do providertest.Do) providertest.Fault { return providertest.On(isOrder, do) }

func TestConformance(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	plain := rig.Arranged(options{Host: hosts[0]})
	providertest.Run(t, providertest.Config{
		Driver:  rig.Driver("http://127.0.0.1:1", 0),
		Configs: []string{plainConfig, withField(`"rootVolumeGiB":100,"rootDevice":"/dev/xvda","hostFingerprints":{"i-0123456789abcdef0":"SHA256:uNiVztksCsDhcc0u9e8BrkpJcqtoUZRiiYKqKpwRbZA"}`)},
		BadConfigs: []string{
			`{}`, withField(`"endpoint":"https://example.com"`), strings.Replace(plainConfig, "us-east-2", "us-east-2.example.com/", 1), strings.Replace(plainConfig, "secret://aws-ssh", "-----BEGIN", 1),
			strings.Replace(plainConfig, "secret://aws\"", "wJalrXUtnFEMI\"", 1), withField(`"rootVolumeGiB":0`), withField(`"hostFingerprints":{"a":"b"}`),
		},
		Plain: plain,

		ThreePages:    rig.Changed(func(f *fake) { f.perPage = 2 }),
		EmptyLastPage: rig.Changed(func(f *fake) { f.perPage, f.emptyLastPage = 5, true }),
		RepeatedPage:  rig.Changed(func(f *fake) { f.perPage, f.repeatedPage = 2, true }),
		ExtraFields:   rig.Changed(func(f *fake) { f.extra = true }),
		MissingPrice:  plain,
		UnknownGPU:    rig.Changed(func(f *fake) { setGPU(f, "Acme", "Frobnicator 9") }),
		OddIDs:        providertest.None("Types, regions and instances there have only the characters of our ids."),

		AnswerLost:      rig.With(onOrder(providertest.AnswerLost)),
		HalfAnswer:      rig.With(onOrder(providertest.HalfAnswer)),
		OrderFails:      rig.With(onOrder(providertest.Reply(500, refusal("InternalError")))),
		Spoilt:          rig.Spoilt(isOrder, options{}),
		OutOfStock:      rig.Changed(func(f *fake) { f.soldOut = true }),
		OutOfStockLater: rig.Changed(func(f *fake) { f.soldOutLater = true }),
		OfferGone:       rig.Changed(func(f *fake) { f.elsewhere["c4.large"] = true }),
		Quota:           rig.Changed(func(f *fake) { f.limit = 2 }),
		Payment:         rig.With(onOrder(providertest.Reply(403, refusal("Blocked")))),
		Locked:          providertest.None("An install goes over SSH, past EC2, and waits there for another one."),

		Unauthorized:   rig.With(providertest.Always(providertest.Reply(401, refusal("AuthFailure")))),
		Forbidden:      rig.With(providertest.OnNext(providertest.Reply(403, refusal("UnauthorizedOperation")))),
		RateLimited:    rig.With(providertest.OnNext(providertest.Reply(503, refusal("RequestLimitExceeded")))),
		RateLimitedFor: rig.With(providertest.OnNext(providertest.Reply(503, refusal("RequestLimitExceeded"), "Retry-After", "7"))),
		Down:           rig.With(providertest.Always(providertest.Reply(503, refusal("Unavailable")))),
		Hangs:          rig.Arranged(options{Timeout: 300 * time.Millisecond}, providertest.OnNext(providertest.Hang)),
		Garbage:        rig.With(providertest.Always(providertest.HTML)),
		InstallFails:   rig.Arranged(options{Host: hosts[1], Payload: providertest.BrokenPayload}),
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
		return rig.Mutant(f, "generation-1")
	}})
}

func TestOrdersAreSentOnce(t *testing.T) {
	t.Parallel()
	rig.SentOnce(t, isOrder)
}

// TestOffersOfAType reads recorded types, of which the subnet's zone lacks one.
func TestOffersOfAType(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
	offers, err := b.Client.Offers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(offers) != len(b.Fake.types)-1 {
		t.Errorf("%d offers of %d types", len(offers), len(b.Fake.types))
	}
	providertest.WantOffers(t, offers, map[string]string{
		"c3.2xlarge:us-east-2": `{"id":"c3.2xlarge:us-east-2","kind":"vps","region":"us-east-2","providerRegion":"us-east-2","name":"c3.2xlarge","arch":"amd64","vcpu":8,"memoryGiB":15,` +
			`"disks":[{"sizeGB":80,"count":2,"media":"ssd"}],"gpu":null,"price":null,"availability":"unknown",`,
		"p3.16xlarge:us-east-2": `{"id":"p3.16xlarge:us-east-2","kind":"vps","region":"us-east-2","providerRegion":"us-east-2","name":"p3.16xlarge","arch":"amd64","vcpu":64,"memoryGiB":488,` +
			`"disks":[],"gpu":{"model":"V100-16GB","vendor":"nvidia","count":8,"memoryGiB":16},"price":null,`,
		"a1.metal:us-east-2": `{"id":"a1.metal:us-east-2","kind":"metal","region":"us-east-2","providerRegion":"us-east-2","name":"a1.metal","arch":"arm64","vcpu":16,"memoryGiB":32,`,
	})
}

// TestTypesWithoutAnImageAreNotOffered: nothing could be ordered of them.
func TestTypesWithoutAnImageAreNotOffered(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{Config: strings.Replace(plainConfig, `,"arm64":"ami-0fedcba9876543210"`, "", 1)})
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
	b := rig.Bench(t, options{Config: withField(`"rootVolumeGiB":100`)})
	if _, err := b.Client.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: operation, OfferID: "a1.metal:us-east-2"}); err != nil {
		t.Fatal(err)
	}
	sent := b.Fake.requests[operation]
	for field, want := range map[string]string{
		"InstanceType": "a1.metal", "ImageId": armImage, "BlockDeviceMapping.1.DeviceName": "/dev/sda1", "BlockDeviceMapping.1.Ebs.VolumeSize": "100",
		"BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true", "NetworkInterface.1.AssociatePublicIpAddress": "true", "MetadataOptions.HttpTokens": "required",
		"TagSpecification.1.Tag.1.Value": operation,
	} {
		if got := sent.Get(field); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	if data := b.Fake.userData(operation); !strings.HasPrefix(data, "#cloud-config\n") {
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
		err := rig.Refused(t, onOrder(providertest.Reply(400, refusal(code))))
		if provider.ClassOf(err) != want {
			t.Errorf("%s: %v, want class %s", code, err, want)
		}
	}
}

// TestAnEmptyAnswerIsNoList: the SDK takes one for an empty list, and an operation's instance would be taken for none.
func TestAnEmptyAnswerIsNoList(t *testing.T) {
	t.Parallel()
	b := rig.Bench(t, options{})
	b.Faults.Add(providertest.Always(providertest.Reply(200, "<DescribeInstancesResponse/>")))
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
	b := rig.Bench(t, options{Change: func(f *fake) { f.address = host.Address.String() }})
	c := b.Whole()
	claim, err := c.Order(t.Context(), provider.Order{OperationID: operation, OfferID: offer})
	if err != nil {
		t.Fatal(err)
	}
	host.TakeUserData(b.Fake.userData(operation))
	id := claim.OrderRef
	identity := providertest.InstallsOnOrdered(t, c, host, id, first)
	if identity.Serial != "" || identity.CPUs != 2 || identity.MemoryMiB != 3840 {
		t.Errorf("identity %+v", identity)
	}
}
