package scaleway

import (
	"context"
	"slices"
	"strings"

	"github.com/scaleway/scaleway-sdk-go/api/block/v1"
	"github.com/scaleway/scaleway-sdk-go/api/instance/v1"
	"github.com/scaleway/scaleway-sdk-go/api/marketplace/v2"
	"github.com/scaleway/scaleway-sdk-go/scw"

	"better/compute/provider"
)

func hasTag(tags []string, operationID string) bool {
	return slices.Contains(tags, operationTag+operationID)
}

// instanceOperation is the operation that an instance carries; empty when it carries none.
func instanceOperation(s *instance.Server) string {
	for _, tag := range s.Tags {
		if id, ok := strings.CutPrefix(tag, operationTag); ok && id != "" {
			return id
		}
	}
	return ""
}

func (v *virtual) claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	servers, err := v.instances(ctx, "")
	owned := []provider.OwnedMachine{}
	for _, s := range servers {
		if id := instanceOperation(s); provider.IsOperationID(id) {
			owned = append(owned, provider.OwnedMachine{OperationID: id, MachineID: instanceID(s)})
		}
	}
	return owned, err
}

// order creates an instance, which does not run yet. Nil without an error says that no such type of instance is sold.
func (v *virtual) order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	k, err := v.resolve(ctx, order.OfferID)
	if err != nil || k == nil {
		return nil, provider.NotSent(err)
	}
	if k.stock == instance.ServerTypesAvailabilityShortage {
		return nil, v.vendor.Errorf(provider.OutOfStock)
	}
	image, err := v.image(ctx, *k)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	request := &instance.CreateServerRequest{
		Zone: k.zone, Name: order.OperationID, CommercialType: k.name, Image: &image, Project: &v.config.ProjectID, Tags: []string{operationTag + order.OperationID},
		DynamicIPRequired: new(true),
		Volumes: map[string]*instance.VolumeServerTemplate{"0": {
			Boot: new(true), Size: new(scw.Size(v.config.InstanceVolumeGB) * scw.GB), VolumeType: instance.VolumeVolumeTypeSbsVolume,
		}},
	}
	var created *instance.Server
	err = v.change(ctx, func(a apis, o scw.RequestOption) error {
		r, err := a.compute.CreateServer(request, o)
		if err == nil {
			created = r.Server
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case created == nil || !isUUID(created.ID) || !hasTag(created.Tags, order.OperationID):
		return nil, v.vendor.Errorf(provider.UnknownOutcome)
	}
	// FindClaim starts it: an answer is not yet proof that the account has it.
	return &provider.Claim{State: provider.ClaimPending, OrderRef: created.ID}, nil
}

// resolve finds the type of an offer; nil when it is of none.
func (v *virtual) resolve(ctx context.Context, offerID string) (*kind, error) {
	zones := v.zones
	if _, zone, ok := provider.SplitOfferID(offerID); ok {
		zones = slices.DeleteFunc(slices.Clone(zones), func(z scw.Zone) bool { return z.String() != zone })
	}
	kinds, err := v.kinds(ctx, zones)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.offerID() == offerID })
	if i < 0 {
		return nil, nil
	}
	return &kinds[i], nil
}

// image finds the config's image for the type.
func (v *virtual) image(ctx context.Context, k kind) (id string, err error) {
	var images []*marketplace.LocalImage
	err = v.read(ctx, func(a apis, o scw.RequestOption) error {
		images, err = pages(v.client, func(page *int32, size *uint32) ([]*marketplace.LocalImage, uint32, error) {
			r, err := a.images.ListLocalImages(&marketplace.ListLocalImagesRequest{
				ImageLabel: &v.config.InstanceImage, Zone: &k.zone, Type: marketplace.LocalImageTypeInstanceSbs, Page: page, PageSize: size,
			}, o)
			if err != nil {
				return nil, 0, err
			}
			return r.LocalImages, r.TotalCount, nil
		})
		return err
	})
	if err != nil && provider.ClassOf(err) != provider.NotFound {
		return "", err
	}
	for _, i := range images {
		if i.Type == marketplace.LocalImageTypeInstanceSbs && i.Zone == k.zone && instance.Arch(i.Arch) == k.about.Arch && isUUID(i.ID) {
			return i.ID, nil
		}
	}
	return "", provider.Errorf(provider.InvalidConfig, "%s has no image %q for this offer; look at instanceImage in the account's config.", vendorName, v.config.InstanceImage)
}

// findClaim looks for the operation's instance by its tag. One that was created and not started is started, with the user data that lets the driver
// in; either may be done again.
func (v *virtual) findClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	servers, err := v.instances(ctx, operationTag+operationID)
	if err != nil {
		return nil, err
	}
	// A list that was not filtered is no answer to the question.
	i := slices.IndexFunc(servers, func(s *instance.Server) bool { return hasTag(s.Tags, operationID) })
	if i < 0 {
		return nil, nil
	}
	s := servers[i]
	claim := &provider.Claim{State: provider.ClaimPending, MachineID: instanceID(s), OrderRef: s.ID}
	switch {
	case s.State == instance.ServerStateRunning && len(instanceAddresses(s)) > 0:
		claim.State = provider.ClaimReady
	case s.State == instance.ServerStateStopped:
		return v.start(ctx, operationID, s, claim)
	}
	return claim, nil
}

// start starts an instance. Where there is none left of its type after all, it is deleted: nobody would.
func (v *virtual) start(ctx context.Context, operationID string, s *instance.Server, claim *provider.Claim) (*provider.Claim, error) {
	userData, err := v.UserData(ctx, operationID)
	if err != nil {
		return nil, err
	}
	if err := v.markVolume(ctx, operationID, s); err != nil {
		return nil, err
	}
	err = v.read(ctx, func(a apis, o scw.RequestOption) error {
		if err := a.compute.SetServerUserData(&instance.SetServerUserDataRequest{
			Zone: s.Zone, ServerID: s.ID, Key: "cloud-init", Content: strings.NewReader(userData),
		}, o); err != nil {
			return err
		}
		_, err := a.compute.ServerAction(&instance.ServerActionRequest{Zone: s.Zone, ServerID: s.ID, Action: instance.ServerActionPoweron}, o)
		return err
	})
	switch class := provider.ClassOf(err); {
	case err == nil, class == provider.Conflict: // it starts already
		return claim, nil
	case class == provider.OutOfStock, class == provider.Quota:
		if err := v.release(ctx, operationID, instanceID(s)); err != nil {
			return nil, err
		}
		return &provider.Claim{State: provider.ClaimFailed, OrderRef: s.ID, Err: v.vendor.Errorf(class)}, nil
	}
	return nil, err
}

// markVolume tags the block volume that an instance's system is on with its operation: it outlives the instance, and is found by that. Volumes that
// somebody attached are theirs.
func (v *virtual) markVolume(ctx context.Context, operationID string, s *instance.Server) error {
	volume := s.Volumes["0"]
	if volume == nil || volume.VolumeType != instance.VolumeServerVolumeTypeSbsVolume || !isUUID(volume.ID) {
		return nil
	}
	return v.read(ctx, func(a apis, o scw.RequestOption) error {
		_, err := a.volumes.UpdateVolume(&block.UpdateVolumeRequest{Zone: s.Zone, VolumeID: volume.ID, Tags: &[]string{operationTag + operationID}}, o)
		return err
	})
}

// release deletes the instance, and then its volume. One that is gone is deleted.
func (v *virtual) release(ctx context.Context, operationID, machineID string) error {
	s, err := v.instance(ctx, machineID)
	switch {
	case isNotFound(err):
		return v.dropVolumes(ctx, operationID, machineID)
	case err != nil:
		return err
	case !hasTag(s.Tags, operationID):
		return v.vendor.Errorf(provider.IdentityChanged)
	case s.Protected:
		return provider.Errorf(provider.Conflict, "The instance is protected at %s: end that there.", vendorName)
	}
	if err := v.markVolume(ctx, operationID, s); err != nil && !isNotFound(err) {
		return err
	}
	if err := v.end(ctx, s); err != nil && !isNotFound(err) {
		return err
	}
	if _, err := v.instance(ctx, machineID); !isNotFound(err) {
		return provider.Errorf(provider.Conflict, "%s is still deleting the instance; its volume goes after it.", vendorName)
	}
	return v.dropVolumes(ctx, operationID, machineID)
}

// end deletes an instance, in the way of its state.
func (v *virtual) end(ctx context.Context, s *instance.Server) error {
	switch s.State {
	case instance.ServerStateRunning, instance.ServerStateStoppedInPlace:
		return v.change(ctx, func(a apis, o scw.RequestOption) error {
			_, err := a.compute.ServerAction(&instance.ServerActionRequest{Zone: s.Zone, ServerID: s.ID, Action: instance.ServerActionTerminate}, o)
			return err
		})
	case instance.ServerStateStopped:
		return v.change(ctx, func(a apis, o scw.RequestOption) error {
			return a.compute.DeleteServer(&instance.DeleteServerRequest{Zone: s.Zone, ServerID: s.ID}, o)
		})
	default: // it starts, or it ends already
		return nil
	}
}

// dropVolumes deletes the volumes that the operation's instance has left.
func (v *virtual) dropVolumes(ctx context.Context, operationID, machineID string) error {
	m := instanceForm.FindStringSubmatch(machineID)
	if m == nil {
		return v.vendor.Errorf(provider.NotFound)
	}
	zone := scw.Zone(m[1])
	return v.read(ctx, func(a apis, o scw.RequestOption) error {
		left, err := pages(v.client, func(page *int32, size *uint32) ([]*block.Volume, uint32, error) {
			r, err := a.volumes.ListVolumes(&block.ListVolumesRequest{
				Zone: zone, ProjectID: &v.config.ProjectID, Tags: []string{operationTag + operationID}, Page: page, PageSize: size,
			}, o)
			if err != nil {
				return nil, 0, err
			}
			return r.Volumes, uint32(min(r.TotalCount, 1<<20)), nil
		})
		if err != nil {
			return err
		}
		for _, volume := range left {
			if !hasTag(volume.Tags, operationID) || volume.ProjectID != v.config.ProjectID || volume.Status == block.VolumeStatusDeleting {
				continue
			}
			if err := a.volumes.DeleteVolume(&block.DeleteVolumeRequest{Zone: zone, VolumeID: volume.ID}, o); err != nil {
				return err
			}
		}
		return nil
	})
}
