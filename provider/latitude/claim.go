package latitude

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"

	"better/compute/model"
	"better/compute/provider"
)

// Claims lists the project's servers whose host name is an operation.
func (c *client) Claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	servers, err := c.servers(ctx, "")
	if err != nil {
		return nil, err
	}
	owned := []provider.OwnedMachine{}
	for _, s := range servers {
		if provider.IsOperationID(s.Attributes.Hostname) {
			owned = append(owned, provider.OwnedMachine{OperationID: s.Attributes.Hostname, MachineID: s.ID})
		}
	}
	return owned, nil
}

// FindClaim looks for the operation's server by its host name. Of several it takes the first that was made.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	servers, err := c.servers(ctx, operationID)
	if err != nil {
		return nil, err
	}
	var found *item[server]
	for i := range servers {
		s := &servers[i]
		// A list that was not filtered is no answer to the question.
		if s.Attributes.Hostname == operationID && (found == nil || s.Attributes.CreatedAt.Before(found.Attributes.CreatedAt)) {
			found = s
		}
	}
	if found == nil {
		return nil, nil
	}
	claim := &provider.Claim{State: provider.ClaimReady, MachineID: found.ID, OrderRef: found.ID}
	if isNew(found.Attributes) {
		claim.State = provider.ClaimPending
	}
	return claim, nil
}

// isNew reports whether a server is being made. One whose deployment failed is not: that is for the bootstrap to find.
func isNew(s server) bool { return !hasFailed(s) && (s.Status != "on" || s.PrimaryIPv4 == "") }

func hasFailed(s server) bool {
	return s.Status == "failed_deployment" || s.Status == "failed_disk_erasing"
}

// Order creates one server. Its user data, which lets the driver in, is a thing of its own that must be there first, and costs nothing.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	slug, at, err := c.resolve(ctx, order.OfferID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	if at.availability() == model.OutOfStock {
		return nil, c.vendor.Errorf(provider.OutOfStock)
	}
	userData, err := c.keep(ctx, order.OperationID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	request := document[creation]{creation{"servers", map[string]any{
		"project": c.config.ProjectID, "plan": slug, "site": at.code, "operating_system": c.config.OperatingSystem, "hostname": order.OperationID,
		"user_data": userData, "billing": "hourly",
	}}}
	if len(c.config.SSHKeyIDs) > 0 {
		request.Data.Attributes["ssh_keys"] = c.config.SSHKeyIDs
	}
	var created document[item[server]]
	err = c.vendor.Change(ctx, func(ctx context.Context) error {
		return c.send(ctx, http.MethodPost, "/servers", nil, request, &created)
	})
	if err != nil {
		if provider.ClassOf(err) != provider.UnknownOutcome {
			_ = c.drop(ctx, userData) // nothing will use it; what is left of it costs nothing
		}
		return nil, err
	}
	if !isMachineID(created.Data.ID) || created.Data.Attributes.Hostname != order.OperationID {
		return nil, c.vendor.Errorf(provider.UnknownOutcome)
	}
	// The machine's id is what FindClaim tells: an answer is not yet proof that the account has it.
	return &provider.Claim{State: provider.ClaimPending, OrderRef: created.Data.ID}, nil
}

// resolve finds the plan and the site of an offer.
func (c *client) resolve(ctx context.Context, offerID string) (slug string, at site, err error) {
	plans, err := c.plans(ctx)
	if err != nil {
		return "", site{}, err
	}
	for _, p := range plans {
		for _, s := range p.sites() {
			if provider.OfferID(p.Slug, s.code) == offerID {
				return p.Slug, s, nil
			}
		}
	}
	return "", site{}, c.vendor.Errorf(provider.OfferGone)
}

// userData is a text that is kept for the servers to come.
type userData struct {
	Description string `json:"description"`
}

// operationText is what the description of an operation's user data begins with.
const operationText = "bcd-operation:"

// keep has Latitude.sh keep the operation's user data. Whatever becomes of it no machine was ordered, which is why its failures are those of a
// call that changes nothing.
func (c *client) keep(ctx context.Context, operationID string) (id string, err error) {
	text, err := c.UserData(ctx, operationID)
	if err != nil {
		return "", err
	}
	request := document[creation]{creation{"user_data", map[string]any{
		"description": operationText + operationID, "content": base64.StdEncoding.EncodeToString([]byte(text)),
	}}}
	var made document[item[userData]]
	err = c.vendor.Read(ctx, func(ctx context.Context) error {
		return c.send(ctx, http.MethodPost, "/user_data", nil, request, &made)
	})
	if err == nil && !userDataForm.MatchString(made.Data.ID) {
		err = c.vendor.Errorf(provider.InvalidResponse)
	}
	return made.Data.ID, err
}

// drop deletes a text of user data. One that is gone is deleted.
func (c *client) drop(ctx context.Context, id string) error {
	err := c.vendor.Read(ctx, func(ctx context.Context) error {
		return c.send(ctx, http.MethodDelete, "/user_data/"+id, nil, nil, nil)
	})
	if isNotFound(err) {
		return nil
	}
	return err
}

// forget deletes what keep kept for the operation: it has the host key in it.
func (c *client) forget(ctx context.Context, operationID string) error {
	texts, err := list[userData](ctx, c, "/user_data", url.Values{})
	if err != nil {
		return err
	}
	for _, t := range texts {
		if t.Attributes.Description == operationText+operationID && userDataForm.MatchString(t.ID) {
			if err := c.drop(ctx, t.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// Release removes the server, and then its user data. A server that is gone is removed.
func (c *client) Release(ctx context.Context, operationID, machineID string) error {
	s, err := c.server(ctx, machineID)
	if isNotFound(err) {
		return c.forget(ctx, operationID)
	}
	if err != nil {
		return err
	}
	if s.Hostname != operationID {
		return c.vendor.Errorf(provider.IdentityChanged)
	}
	if s.Locked {
		return provider.Errorf(provider.Conflict, "The server is locked at %s: unlock it there.", vendorName)
	}
	err = c.vendor.Change(ctx, func(ctx context.Context) error {
		return c.send(ctx, http.MethodDelete, "/servers/"+machineID, nil, nil, nil)
	})
	if err != nil && !isNotFound(err) {
		return err
	}
	return c.forget(ctx, operationID)
}

func isNotFound(err error) bool { return err != nil && provider.ClassOf(err) == provider.NotFound }

var (
	machineForm  = regexp.MustCompile(`\Asv_[A-Za-z0-9]{1,64}\z`)
	userDataForm = regexp.MustCompile(`\Aud_[A-Za-z0-9]{1,64}\z`)
)

func isMachineID(id string) bool { return machineForm.MatchString(id) }

// server reads one server, and makes sure that the answer is about it and that it is the project's.
func (c *client) server(ctx context.Context, machineID string) (*server, error) {
	if !isMachineID(machineID) {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	var answer document[item[server]]
	err := c.vendor.Read(ctx, func(ctx context.Context) error {
		return c.send(ctx, http.MethodGet, "/servers/"+machineID, nil, nil, &answer)
	})
	switch s := answer.Data.Attributes; {
	case err != nil:
		return nil, err
	case answer.Data.ID != machineID || s.Status == "" || s.Project.ID == "":
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	case s.Project.ID != c.config.ProjectID:
		return nil, c.vendor.Errorf(provider.NotFound)
	default:
		return &s, nil
	}
}
