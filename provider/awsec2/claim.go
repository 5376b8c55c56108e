package awsec2

import (
	"context"
	"encoding/base64"
	"errors"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"better/compute/provider"
)

// operationOf is the operation that ordered an instance; empty when none did.
func operationOf(i *types.Instance) string {
	if token := aws.ToString(i.ClientToken); provider.IsOperationID(token) {
		return token
	}
	return ""
}

// Claims lists the region's instances that carry an operation.
func (c *client) Claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	instances, err := c.instances(ctx)
	if err != nil {
		return nil, err
	}
	owned := []provider.OwnedMachine{}
	for n := range instances {
		i := &instances[n]
		if id := operationOf(i); id != "" && !isGone(i) {
			owned = append(owned, provider.OwnedMachine{OperationID: id, MachineID: aws.ToString(i.InstanceId)})
		}
	}
	return owned, nil
}

// FindClaim looks for the operation's instance by its client token.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	instances, err := c.instances(ctx, types.Filter{Name: aws.String("client-token"), Values: []string{operationID}})
	if err != nil {
		return nil, err
	}
	var found *types.Instance
	for n := range instances {
		i := &instances[n]
		// A list that was not filtered is no answer to the question. There is one instance, but one that lives goes before one that does not.
		if aws.ToString(i.ClientToken) == operationID && (found == nil || isGone(found)) {
			found = i
		}
	}
	if found == nil {
		return nil, nil
	}
	return c.claimOf(found), nil
}

// failures are why EC2 terminates an instance by itself while it starts it.
var failures = map[string]provider.Class{
	"Server.InsufficientInstanceCapacity": provider.OutOfStock,
	"Client.VolumeLimitExceeded":          provider.Quota,
	"Client.InternalError":                provider.InvalidConfig, // most often a key for a volume that may not be used
	"Client.InvalidSnapshot.NotFound":     provider.InvalidConfig,
	"Server.InternalError":                provider.Unavailable,
}

// claimOf takes an instance without a public address for one that is still being made. One that is gone is no claim, unless EC2 says that it
// could not be started.
func (c *client) claimOf(i *types.Instance) *provider.Claim {
	id := aws.ToString(i.InstanceId)
	claim := &provider.Claim{State: provider.ClaimReady, MachineID: id, OrderRef: id}
	switch {
	case isGone(i):
		if i.StateReason == nil {
			return nil
		}
		class, failed := failures[aws.ToString(i.StateReason.Code)]
		if !failed {
			return nil
		}
		return &provider.Claim{State: provider.ClaimFailed, OrderRef: id, Err: c.vendor.Errorf(class)}
	case isNew(i):
		claim.State = provider.ClaimPending
	}
	return claim
}

func stateOf(i *types.Instance) types.InstanceStateName {
	if i.State == nil {
		return ""
	}
	return i.State.Name
}

func isGone(i *types.Instance) bool {
	return stateOf(i) == types.InstanceStateNameTerminated || stateOf(i) == types.InstanceStateNameShuttingDown
}

func isNew(i *types.Instance) bool {
	return stateOf(i) == types.InstanceStateNamePending || aws.ToString(i.PublicIpAddress) == ""
}

// Order runs one instance, with user data that lets the driver in. It may be repeated.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	instanceType, image, err := c.resolve(ctx, order.OfferID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	userData, err := c.UserData(ctx, order.OperationID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	var made *ec2.RunInstancesOutput
	err = c.change(ctx, func(ctx context.Context, sdk *ec2.Client) error {
		made, err = sdk.RunInstances(ctx, c.request(order.OperationID, instanceType, image, userData))
		return err
	})
	if err != nil {
		return nil, c.refusedOrder(err)
	}
	if made == nil || len(made.Instances) != 1 || aws.ToString(made.Instances[0].ClientToken) != order.OperationID {
		return nil, c.vendor.Errorf(provider.UnknownOutcome)
	}
	// The machine's id is what FindClaim tells: lists may not have it for a while.
	return &provider.Claim{State: provider.ClaimPending, OrderRef: aws.ToString(made.Instances[0].InstanceId)}, nil
}

// request gives the instance a public address, whatever the subnet does by itself. Its metadata service, which has the user data, answers no
// request that somebody outside could have a program on it make.
func (c *client) request(operationID string, instanceType types.InstanceType, image, userData string) *ec2.RunInstancesInput {
	in := &ec2.RunInstancesInput{
		ClientToken: &operationID, MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: instanceType, ImageId: &image,
		UserData: aws.String(base64.StdEncoding.EncodeToString([]byte(userData))),
		NetworkInterfaces: []types.InstanceNetworkInterfaceSpecification{{
			DeviceIndex: aws.Int32(0), SubnetId: &c.config.SubnetID, Groups: c.config.SecurityGroupIDs, AssociatePublicIpAddress: aws.Bool(true),
			DeleteOnTermination: aws.Bool(true),
		}},
		MetadataOptions: &types.InstanceMetadataOptionsRequest{HttpTokens: types.HttpTokensStateRequired},
		TagSpecifications: []types.TagSpecification{{
			ResourceType: types.ResourceTypeInstance, Tags: []types.Tag{{Key: aws.String("Name"), Value: &operationID}},
		}},
	}
	if c.config.RootVolumeGiB > 0 {
		in.BlockDeviceMappings = []types.BlockDeviceMapping{{
			DeviceName: &c.config.RootDevice, Ebs: &types.EbsBlockDevice{VolumeSize: &c.config.RootVolumeGiB, DeleteOnTermination: aws.Bool(true)},
		}}
	}
	return in
}

// resolve finds the type of an offer and the image for it.
func (c *client) resolve(ctx context.Context, offerID string) (types.InstanceType, string, error) {
	name, region, ok := provider.SplitOfferID(offerID)
	if !ok || region != c.config.Region {
		return "", "", c.vendor.Errorf(provider.OfferGone)
	}
	t, err := c.typeOf(ctx, types.InstanceType(name))
	if err != nil {
		return "", "", err
	}
	arch := c.archOf(t)
	if arch == "" {
		return "", "", provider.Errorf(provider.InvalidConfig, "The account's config has no image for the architecture of %s.", name)
	}
	return t.InstanceType, c.config.Images[arch], nil
}

// refusedOrder tells a type that is not sold any more from the other values that have this code.
func (c *client) refusedOrder(err error) error {
	told, ok := errors.AsType[smithy.APIError](err)
	if !ok || told.ErrorCode() != "InvalidParameterValue" {
		return err
	}
	if strings.Contains(told.ErrorMessage(), "InstanceType") {
		return c.vendor.Errorf(provider.OfferGone).Because(err)
	}
	return provider.Errorf(provider.InvalidConfig, "%s does not take the order; look at the subnet, the security groups and the images in the account's config.", vendorName).Because(err)
}

// Release terminates the instance. One that is gone is released.
func (c *client) Release(ctx context.Context, operationID, machineID string) error {
	i, err := c.instance(ctx, machineID)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if aws.ToString(i.ClientToken) != operationID {
		return c.vendor.Errorf(provider.IdentityChanged)
	}
	err = c.change(ctx, func(ctx context.Context, sdk *ec2.Client) error {
		_, err := sdk.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{machineID}})
		return err
	})
	if isNotFound(err) {
		return nil
	}
	return err
}

func isNotFound(err error) bool { return err != nil && provider.ClassOf(err) == provider.NotFound }

// instance reads one instance by its id, and makes sure that the answer is about it. One that is terminated is not found.
func (c *client) instance(ctx context.Context, id string) (*types.Instance, error) {
	if !isInstanceID(id) {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	var out *ec2.DescribeInstancesOutput
	err := c.read(ctx, func(ctx context.Context, sdk *ec2.Client) (err error) {
		out, err = sdk.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
		return err
	})
	if err != nil {
		return nil, err
	}
	if out == nil || len(out.Reservations) != 1 || len(out.Reservations[0].Instances) != 1 || aws.ToString(out.Reservations[0].Instances[0].InstanceId) != id {
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	}
	i := &out.Reservations[0].Instances[0]
	if isGone(i) {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	return i, nil
}

var instanceID = regexp.MustCompile(`\Ai-[0-9a-f]{8,17}\z`)

func isInstanceID(id string) bool { return instanceID.MatchString(id) }
