// Package awsec2 is the driver for EC2 of Amazon Web Services.
//
// It owns how an account there is read in one region and how its instances are ordered and terminated, with the vendor's own SDK. It refuses
// to know how HTTP fails, which package vendor does, and how an agent gets onto an instance, which package ssh does. The invariant: every
// order carries the operation as its client token, for which EC2 makes one instance at most, and which nobody can change afterwards.
package awsec2

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"

	"better/compute/internal/guard"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
	"better/compute/provider/vendor"
)

//go:embed config.schema.json
var configSchema []byte

const (
	name              = "aws-ec2"
	vendorName        = "AWS EC2"
	defaultRootDevice = "/dev/sda1"
)

// Options are the operator's.
type Options struct {
	// Endpoint is the URL of EC2's API; empty means AWS's own of the account's region.
	Endpoint string
	// PricingEndpoint is the URL of the API that tells prices; empty means AWS's own, or none where there is an Endpoint.
	PricingEndpoint string
	// Networks may be reached beside the public internet.
	Networks guard.Networks
	// Timeout bounds each request; 0 is 30 seconds.
	Timeout time.Duration
}

// Driver makes clients. Make one with New.
type Driver struct {
	options Options
	prices  *priceBook
}

// New makes the driver.
func New(o Options) *Driver { return &Driver{o, newPriceBook()} }

// Manifest says what the driver can do.
func (d *Driver) Manifest() provider.Manifest {
	return provider.Manifest{
		Name:         name,
		DisplayName:  vendorName,
		ConfigSchema: configSchema,
		SecretFields: []string{}, // secretAccessKey and sshPrivateKey are by their names
		Capabilities: model.ProviderCapabilities{
			Offers: true, Machines: true, Order: true, Bootstrap: true, Release: true, Prices: true, ClaimMode: model.ClaimToken,
		},
		ListLag:    time.Minute,
		ClaimLimit: map[model.MachineKind]time.Duration{model.Metal: time.Hour},
		Typical:    map[model.MachineKind]time.Duration{model.VPS: 3 * time.Minute, model.Metal: 20 * time.Minute},
		Wipes:      []string{"An agent that is on the instance already, with its key and certificate. Nothing else is touched."},
		About: provider.About{
			GPUs: true, Installs: "SSH, let in by the order's user data", GivesBack: "terminates",
			TestedAgainst: "a fake after recorded answers, through AWS's SDK; OpenSSH in network namespaces",
		},
	}
}

// config is what config.schema.json describes.
type config struct {
	AccessKeyID      string            `json:"accessKeyId"`
	SecretAccessKey  string            `json:"secretAccessKey"`
	Region           string            `json:"region"`
	SubnetID         string            `json:"subnetId"`
	SecurityGroupIDs []string          `json:"securityGroupIds"`
	Images           map[string]string `json:"images"` // by architecture
	RootDevice       string            `json:"rootDevice"`
	RootVolumeGiB    int32             `json:"rootVolumeGiB"`
	SSHPrivateKey    string            `json:"sshPrivateKey"`
	HostFingerprints map[string]string `json:"hostFingerprints"`
}

// Open makes a client for an account. It calls nobody.
func (d *Driver) Open(_ context.Context, account provider.Account) (provider.Client, error) {
	var c config
	if err := json.Unmarshal(account.Config, &c); err != nil {
		return nil, provider.Errorf(provider.InvalidConfig, "The config is not what the driver's schema says.").Because(err)
	}
	c.RootDevice = cmp.Or(c.RootDevice, defaultRootDevice)
	endpoint := strings.TrimSuffix(cmp.Or(d.options.Endpoint, endpointOf(c.Region)), "/")
	origin, err := vendor.Origin(endpoint)
	if err != nil {
		return nil, err
	}
	origins, market := []string{origin}, d.market(c.Region)
	if market.endpoint != "" {
		prices, err := vendor.Origin(market.endpoint)
		if err != nil {
			return nil, err
		}
		origins = append(origins, prices)
	}
	made := &client{
		endpoint: endpoint, account: account, config: c, market: market, prices: d.prices,
		vendor: vendor.New(vendor.Options{
			Name: vendorName, Origins: origins, Networks: d.options.Networks, Timeout: d.options.Timeout,
			Rate:      vendor.Rate{PerSecond: 10, Burst: 50}, // half of what EC2 lets an account read in a region
			RequestID: "X-Amzn-Requestid", Code: codeOf, Codes: codes,
		}),
	}
	made.Fleet = ssh.Fleet{Account: account, PrivateKey: c.SSHPrivateKey, Fingerprints: c.HostFingerprints, Field: "hostFingerprints", Find: made.find}
	return made, nil
}

func endpointOf(region string) string {
	domain := "amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain = "amazonaws.com.cn"
	}
	return "https://ec2." + region + "." + domain
}

// codes are EC2's. Its statuses tell less: it says 400 of nearly everything, and 503 of a caller that asks too often.
var codes = map[string]provider.Class{
	"AuthFailure":           provider.Auth,
	"InvalidClientTokenId":  provider.Auth,
	"SignatureDoesNotMatch": provider.Auth,
	"UnauthorizedOperation": provider.Forbidden,
	"RequestExpired":        provider.Unavailable, // one of the clocks is wrong
	"OptInRequired":         provider.InvalidConfig,
	"Blocked":               provider.Payment,
	"PendingVerification":   provider.Quota,

	"RequestLimitExceeded":  provider.RateLimited,
	"ResourceCountExceeded": provider.RateLimited,
	"Throttling":            provider.RateLimited,
	"ThrottlingException":   provider.RateLimited,

	"InsufficientInstanceCapacity": provider.OutOfStock,
	"InsufficientHostCapacity":     provider.OutOfStock,
	"InsufficientCapacity":         provider.OutOfStock,

	"VcpuLimitExceeded":                 provider.Quota,
	"InstanceLimitExceeded":             provider.Quota,
	"VolumeLimitExceeded":               provider.Quota,
	"MaxIOPSLimitExceeded":              provider.Quota,
	"InsufficientFreeAddressesInSubnet": provider.Quota,
	"InsufficientAddressCapacity":       provider.Quota,

	"InvalidInstanceID.NotFound":  provider.NotFound,
	"InvalidInstanceID.Malformed": provider.NotFound,
	"InvalidInstanceType":         provider.OfferGone,
	"Unsupported":                 provider.OfferGone, // the subnet's zone does not have it
	"UnsupportedOperation":        provider.Unsupported,

	"InvalidAMIID.NotFound":       provider.InvalidConfig,
	"InvalidAMIID.Malformed":      provider.InvalidConfig,
	"InvalidAMIID.Unavailable":    provider.InvalidConfig,
	"InvalidSubnetID.NotFound":    provider.InvalidConfig,
	"InvalidSubnetID.Malformed":   provider.InvalidConfig,
	"InvalidGroup.NotFound":       provider.InvalidConfig,
	"InvalidGroupId.Malformed":    provider.InvalidConfig,
	"InvalidBlockDeviceMapping":   provider.InvalidConfig,
	"InvalidParameterCombination": provider.InvalidConfig,

	"IncorrectInstanceState": provider.Conflict,
	"IncorrectState":         provider.Conflict,
	"OperationNotPermitted":  provider.Conflict, // it is protected from being terminated

	// The operation has been ordered: with a request of other words, so what became of it is to be looked for; or what it got is terminated.
	"IdempotentParameterMismatch":  provider.UnknownOutcome,
	"IdempotentInstanceTerminated": provider.Fatal,
}

func codeOf(err error) string {
	if told, ok := errors.AsType[smithy.APIError](err); ok {
		return told.ErrorCode()
	}
	return ""
}

// client is one version of one account.
type client struct {
	ssh.Fleet
	endpoint string
	account  provider.Account
	config   config
	vendor   *vendor.Vendor

	market market
	prices *priceBook

	mu       sync.Mutex
	unpriced time.Time // when prices were last asked for in vain
}

var _ interface {
	provider.Bootstrapper
	provider.Claimant
} = (*client)(nil)

// Close lets the connections go.
func (c *client) Close() error {
	c.vendor.Close()
	return nil
}

// sender hides from the transport that the SDK's bodies write themselves. They do so with an io.EOF once the SDK has closed them, and that is
// when the answer begins to come: the transport takes it for a failed request, and closes the connection under the answer.
type sender struct{ http *http.Client }

// Do makes a request.
func (s sender) Do(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = struct{ io.ReadCloser }{r.Body}
	}
	return s.http.Do(r) //nolint:gosec // the SDK made the URL, and the vendor's client goes to its origins alone
}

// sdk makes AWS's client with the key as it is now. It reads nothing of the process's environment or of AWS's files, and repeats nothing.
func (c *client) sdk(ctx context.Context) (*ec2.Client, error) {
	credentials, err := c.credentials(ctx)
	if err != nil {
		return nil, err
	}
	return ec2.New(ec2.Options{
		Region: c.config.Region, BaseEndpoint: &c.endpoint, HTTPClient: sender{c.vendor.HTTP()}, Retryer: aws.NopRetryer{}, Credentials: credentials,
	}), nil
}

func (c *client) credentials(ctx context.Context) (aws.CredentialsProvider, error) {
	key, err := c.account.Secret(ctx, c.config.SecretAccessKey)
	if err != nil {
		return nil, err
	}
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: c.config.AccessKeyID, SecretAccessKey: key}, nil
	}), nil
}

func (c *client) read(ctx context.Context, calls func(context.Context, *ec2.Client) error) error {
	return c.vendor.Read(ctx, func(ctx context.Context) error { return c.with(ctx, calls) })
}

func (c *client) change(ctx context.Context, call func(context.Context, *ec2.Client) error) error {
	return c.vendor.Change(ctx, func(ctx context.Context) error { return c.with(ctx, call) })
}

func (c *client) with(ctx context.Context, call func(context.Context, *ec2.Client) error) error {
	sdk, err := c.sdk(ctx)
	if err != nil {
		return err
	}
	return call(ctx, sdk)
}

// Check asks for a page of instances, which any key that is of use may.
func (c *client) Check(ctx context.Context) error {
	return c.read(ctx, func(ctx context.Context, sdk *ec2.Client) error {
		out, err := sdk.DescribeInstances(ctx, &ec2.DescribeInstancesInput{MaxResults: aws.Int32(5)})
		if err == nil && out.Reservations == nil {
			return errNoList
		}
		return err
	})
}

// errNoList is for an answer without the element that a list is in: the SDK takes any XML, and none, for an empty list.
var errNoList = errors.New("the answer is no list")
