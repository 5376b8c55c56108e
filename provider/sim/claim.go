package sim

import (
	"context"
	"net/http"
	"net/url"

	"better/compute/model"
	"better/compute/provider"
)

// operationLabel marks a machine with the operation that ordered it. The name does too, and alone, where the label got lost.
const operationLabel = "operation"

func (t cloudMachine) belongsTo(operationID string) bool {
	return t.Name == operationID || t.Labels[operationLabel] == operationID
}

// operation is the operation that the machine carries; empty when it carries none.
func (t cloudMachine) operation() string {
	for _, mark := range []string{t.Labels[operationLabel], t.Name} {
		if provider.IsOperationID(mark) {
			return mark
		}
	}
	return ""
}

// Claims lists the project's machines that carry an operation.
func (c *client) Claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	machines, err := list[cloudMachine](ctx, c, "machines", nil)
	if err != nil {
		return nil, err
	}
	owned := []provider.OwnedMachine{}
	for _, m := range machines {
		id, ok := encodeID(m.ID)
		if operation := m.operation(); ok && operation != "" {
			owned = append(owned, provider.OwnedMachine{OperationID: operation, MachineID: id})
		}
	}
	return owned, nil
}

// FindClaim looks for the operation's machine by what the order marked it with: by its label, or by its name. Only where names are unique is
// there one at most.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	machines, err := list[cloudMachine](ctx, c, "machines", c.marks(operationID))
	if err != nil {
		return nil, err
	}
	for _, m := range machines {
		if !c.marked(m, operationID) {
			continue // a filter that the cloud does not know would be ignored
		}
		id, ok := encodeID(m.ID)
		if !ok {
			return nil, provider.Errorf(provider.InvalidResponse, "The cloud's id of the machine cannot be used.")
		}
		claim := &provider.Claim{State: provider.ClaimReady, MachineID: id, OrderRef: m.ID}
		if m.Status == "pending" {
			claim.State = provider.ClaimPending
		}
		return claim, nil
	}
	return nil, nil
}

// marks are what lists are asked for to find what an operation ordered.
func (c *client) marks(operationID string) url.Values {
	switch c.mode {
	case model.ClaimLabel:
		return url.Values{"label": {operationLabel + "=" + operationID}}
	case model.ClaimNone:
		return nil // lists look for nothing
	case model.ClaimToken, model.ClaimUniqueName, model.ClaimLocal:
	}
	return url.Values{"name": {operationID}}
}

func (c *client) marked(m cloudMachine, operationID string) bool {
	if c.mode == model.ClaimLabel {
		return m.Labels[operationLabel] == operationID
	}
	return m.Name == operationID
}

// order is what an order says. Which operation it is of, it says in each way that the cloud takes.
func (c *client) order(operationID, offerID string) map[string]any {
	order := map[string]any{"offerId": offerID, "name": operationID}
	if c.mode != model.ClaimNone {
		order["labels"] = map[string]string{operationLabel: operationID}
	}
	if c.mode == model.ClaimToken {
		order["clientToken"] = operationID
	}
	return order
}

// Order buys one machine. The claim has no machine id: what an order's
// answer calls the machine is not yet proof that the project has it, so FindClaim tells the id.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	offerID, ok := decodeID(order.OfferID)
	if !ok {
		return nil, provider.Errorf(provider.OfferGone, "The cloud does not sell this offer.")
	}
	var m cloudMachine
	err := c.call(ctx, http.MethodPost, "/v1/machines", nil, c.order(order.OperationID, offerID), &m)
	if err != nil {
		return nil, err
	}
	if m.ID == "" || m.Name != order.OperationID {
		return nil, provider.Errorf(provider.UnknownOutcome, "The cloud answered the order with another machine.")
	}
	return &provider.Claim{State: provider.ClaimPending, OrderRef: m.ID}, nil
}

// Release gives the machine back. One that is gone is released.
func (c *client) Release(ctx context.Context, operationID, machineID string) error {
	m, err := c.machine(ctx, machineID)
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !m.belongsTo(operationID) {
		return provider.Errorf(provider.IdentityChanged, "The machine was not ordered by this operation.")
	}
	path, err := machinePath(machineID)
	if err != nil {
		return err
	}
	err = c.call(ctx, http.MethodDelete, path, nil, nil, nil)
	if isNotFound(err) {
		return nil
	}
	return err
}

func isNotFound(err error) bool { return err != nil && provider.ClassOf(err) == provider.NotFound }

// machine reads one machine by our id, and makes sure that the answer is about it.
func (c *client) machine(ctx context.Context, machineID string) (*cloudMachine, error) {
	path, err := machinePath(machineID)
	if err != nil {
		return nil, err
	}
	var m cloudMachine
	if err := c.call(ctx, http.MethodGet, path, nil, nil, &m); err != nil {
		return nil, err
	}
	if id, ok := encodeID(m.ID); !ok || id != machineID {
		return nil, provider.Errorf(provider.InvalidResponse, "The cloud answered with another machine.")
	}
	return &m, nil
}

// machinePath is where the API has the machine. Ids that a path would swallow are no machine's.
func machinePath(machineID string) (string, error) {
	id, ok := decodeID(machineID)
	if !ok || id == "." || id == ".." {
		return "", provider.Errorf(provider.NotFound, "The cloud has no such machine in this project.")
	}
	return "/v1/machines/" + url.PathEscape(id), nil
}
