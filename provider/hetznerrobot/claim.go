package hetznerrobot

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"better/compute/provider"
	"better/compute/provider/ssh"
)

// An order's comment would be the place for the operation, but has people at Hetzner look at each order. What an order carries in its place is
// a key that opens nothing, is of the operation alone, and has its name. Robot lists orders for 30 days with their keys; so the server gets the
// operation for its name once it is there.

// key is an SSH key that Robot keeps, or names.
type key struct {
	Name        string `json:"name"`
	Fingerprint string `json:"fingerprint"`
	Type        string `json:"type"`
}

type keyItem struct {
	Key key `json:"key"`
}

// transaction is an order.
type transaction struct {
	ID     string    `json:"id"`
	Status string    `json:"status"`
	Server int64     `json:"server_number"`
	Keys   []keyItem `json:"authorized_key"`
}

type transactionItem struct {
	Transaction *transaction `json:"transaction"`
}

// operation is the name of the key that only orders from here carry.
func (t transaction) operation() string {
	for _, k := range t.Keys {
		if provider.IsOperationID(k.Key.Name) {
			return k.Key.Name
		}
	}
	return ""
}

func (t transaction) carries(operationID string) bool {
	_, mark := ssh.Mark(operationID)
	return slices.ContainsFunc(t.Keys, func(k keyItem) bool { return k.Key.Fingerprint == mark })
}

// transactions lists the orders of the last 30 days.
func (c *client) transactions(ctx context.Context) ([]transaction, error) {
	all := []transaction{}
	for _, path := range []string{standardPath, marketPath} {
		listed, err := list[transactionItem](ctx, c, path+"/transaction")
		if err != nil {
			return nil, err
		}
		for _, l := range listed {
			if l.Transaction != nil && l.Transaction.ID != "" {
				all = append(all, *l.Transaction)
			}
		}
	}
	return all, nil
}

// Claims lists the servers that carry an operation, but for those that are cancelled.
func (c *client) Claims(ctx context.Context) ([]provider.OwnedMachine, error) {
	servers, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	transactions, err := c.transactions(ctx)
	if err != nil {
		return nil, err
	}
	ordered := map[int64]string{}
	for _, t := range transactions {
		if operation := t.operation(); operation != "" && t.Server > 0 {
			ordered[t.Server] = operation
		}
	}
	owned := []provider.OwnedMachine{}
	for _, s := range servers {
		operation := s.Name
		if !provider.IsOperationID(operation) {
			operation = ordered[s.Number]
		}
		if operation != "" && !s.Cancelled {
			owned = append(owned, provider.OwnedMachine{OperationID: operation, MachineID: machineID(s.Number)})
		}
	}
	return owned, nil
}

// FindClaim looks for the operation's order by its key, and for a server by its name where the order is not listed any more.
func (c *client) FindClaim(ctx context.Context, operationID string) (*provider.Claim, error) {
	transactions, err := c.transactions(ctx)
	if err != nil {
		return nil, err
	}
	if t := orderOf(transactions, operationID); t != nil {
		return c.claimOf(ctx, operationID, *t)
	}
	servers, err := c.servers(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range servers {
		if s.Name == operationID && !s.Cancelled {
			return &provider.Claim{State: provider.ClaimReady, MachineID: machineID(s.Number)}, nil
		}
	}
	return nil, nil
}

// orderOf is the operation's order. One that Robot cancelled does not count where there is another.
func orderOf(transactions []transaction, operationID string) (found *transaction) {
	for i := range transactions {
		t := &transactions[i]
		if t.carries(operationID) && (found == nil || found.Status == cancelled) {
			found = t
		}
	}
	return found
}

func (c *client) claimOf(ctx context.Context, operationID string, t transaction) (*provider.Claim, error) {
	claim := &provider.Claim{State: provider.ClaimPending, OrderRef: provider.Clean(t.ID)}
	switch {
	case t.Status == cancelled:
		claim.State, claim.Err = provider.ClaimFailed, c.vendor.Errorf(provider.OutOfStock)
		return claim, nil
	case t.Status != ready || t.Server <= 0:
		return claim, nil
	}
	s, err := c.server(ctx, machineID(t.Server))
	switch {
	case isNotFound(err), err == nil && s.Cancelled:
		claim.State, claim.Err = provider.ClaimFailed, provider.Errorf(provider.Fatal, "The server of this order was cancelled at %s.", vendorName)
		return claim, nil
	case err != nil:
		return nil, err
	case s.Status != ready:
		return claim, nil
	}
	if s.Name != operationID {
		if err := c.set(ctx, http.MethodPost, serverPath(t.Server), url.Values{"server_name": {operationID}}); err != nil {
			return nil, err
		}
	}
	claim.State, claim.MachineID = provider.ClaimReady, machineID(t.Server)
	return claim, nil
}

// Order orders one server, which is delivered in the rescue system. Its keys must be there first, and cost nothing.
func (c *client) Order(ctx context.Context, order provider.Order) (*provider.Claim, error) {
	p, err := c.resolve(ctx, order.OfferID)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	login, err := c.keepLogin(ctx)
	if err != nil {
		return nil, provider.NotSent(err)
	}
	line, mark := ssh.Mark(order.OperationID)
	if err := c.keepKey(ctx, order.OperationID, line); err != nil {
		return nil, provider.NotSent(err)
	}
	form := url.Values{"product_id": {string(p.product.ID)}, "authorized_key[]": {mark, login}}
	path := marketPath
	if !p.market {
		path = standardPath
		form.Set("location", p.location)
	}
	if p.ipv4() != nil {
		form.Set("addon[]", primaryIPv4)
	}
	var made transactionItem
	err = c.change(ctx, path+"/transaction", form, &made)
	if err != nil {
		if provider.ClassOf(err) != provider.UnknownOutcome {
			_ = c.dropKey(ctx, mark) // nothing will use it; what is left of it costs nothing
		}
		return nil, c.refusedOrder(err, p)
	}
	t := made.Transaction
	switch {
	case t == nil || t.ID == "" || !t.carries(order.OperationID):
		return nil, c.vendor.Errorf(provider.UnknownOutcome)
	case t.Status == cancelled:
		return nil, c.vendor.Errorf(provider.OutOfStock)
	}
	return &provider.Claim{State: provider.ClaimPending, OrderRef: provider.Clean(t.ID)}, nil
}

// resolve finds what an offer is of.
func (c *client) resolve(ctx context.Context, offerID string) (place, error) {
	places, err := c.places(ctx)
	if err != nil {
		return place{}, err
	}
	i := slices.IndexFunc(places, func(p place) bool { return p.offerID() == offerID })
	if i < 0 {
		return place{}, c.vendor.Errorf(provider.OfferGone)
	}
	return places[i], nil
}

// refusedOrder says what it means that Robot does not take a parameter: it has one code for all.
func (c *client) refusedOrder(err error, p place) error {
	t := refusalOf(err)
	if t.Code != "INVALID_INPUT" {
		return err
	}
	switch {
	case slices.Contains(t.Invalid, "product_id") && p.market, slices.Contains(t.Invalid, "location"):
		return c.vendor.Errorf(provider.OutOfStock).Because(err)
	case slices.Contains(t.Invalid, "product_id"):
		return c.vendor.Errorf(provider.OfferGone).Because(err)
	}
	return err
}

// keepLogin has Robot keep the account's own key, and gives its fingerprint.
func (c *client) keepLogin(ctx context.Context) (fingerprint string, err error) {
	access, err := c.access(ctx, "")
	if err != nil {
		return "", err
	}
	return access.LegacyFingerprint(), c.keepKey(ctx, "compute "+access.LegacyFingerprint(), access.AuthorizedKey())
}

// keepKey has Robot keep a key. One that it has already is kept.
func (c *client) keepKey(ctx context.Context, name, line string) error {
	err := c.set(ctx, http.MethodPost, "/key", url.Values{"name": {name}, "data": {line}})
	if refusalOf(err).Code == "KEY_ALREADY_EXISTS" {
		return nil
	}
	return err
}

// dropKey has Robot forget a key. One that it has not is forgotten.
func (c *client) dropKey(ctx context.Context, fingerprint string) error {
	err := c.set(ctx, http.MethodDelete, "/key/"+fingerprint, nil)
	if isNotFound(err) {
		return nil
	}
	return err
}

// cancellation is whether and when a server ends.
type cancellation struct {
	Number              int64  `json:"server_number"`
	Cancelled           bool   `json:"cancelled"`
	Earliest            string `json:"earliest_cancellation_date"`
	ReservationPossible bool   `json:"reservation_possible"`
}

type cancellationItem struct {
	Cancellation *cancellation `json:"cancellation"`
}

// Release cancels the server, at once where its contract lets that be and else for the earliest date: until then it costs money. A server that is
// gone or cancelled is released.
func (c *client) Release(ctx context.Context, operationID, machineID string) error {
	_, mark := ssh.Mark(operationID)
	s, err := c.server(ctx, machineID)
	if isNotFound(err) {
		return c.dropKey(ctx, mark)
	}
	if err != nil {
		return err
	}
	if err := c.mustCarry(ctx, operationID, s); err != nil {
		return err
	}
	if !s.Cancelled {
		if err := c.cancel(ctx, s.Number); err != nil {
			return err
		}
	}
	return c.dropKey(ctx, mark)
}

// mustCarry makes sure that the server is the operation's, by its name or by the order that it came from.
func (c *client) mustCarry(ctx context.Context, operationID string, s *server) error {
	if s.Name == operationID {
		return nil
	}
	transactions, err := c.transactions(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(transactions, func(t transaction) bool { return t.Server == s.Number && t.carries(operationID) }) {
		return c.vendor.Errorf(provider.IdentityChanged)
	}
	return nil
}

func (c *client) cancel(ctx context.Context, number int64) error {
	path := serverPath(number) + "/cancellation"
	var now cancellationItem
	if err := c.get(ctx, path, &now); err != nil {
		return err
	}
	state := now.Cancellation
	switch {
	case state == nil || state.Number != number:
		return c.vendor.Errorf(provider.InvalidResponse)
	case state.Cancelled:
		return nil
	}
	form := url.Values{"cancellation_date": {"now"}}
	if date, err := time.Parse(time.DateOnly, state.Earliest); err == nil && date.After(c.driver.options.Now()) {
		form.Set("cancellation_date", state.Earliest)
	}
	if state.ReservationPossible {
		form.Set("reserve_location", "false")
	}
	var done cancellationItem
	err := c.change(ctx, path, form, &done)
	if isNotFound(err) {
		return nil
	}
	if err == nil && (done.Cancellation == nil || !done.Cancellation.Cancelled) {
		return c.vendor.Errorf(provider.UnknownOutcome)
	}
	return err
}

func isNotFound(err error) bool { return err != nil && provider.ClassOf(err) == provider.NotFound }

func machineID(number int64) string { return strconv.FormatInt(number, 10) }

func serverPath(number int64) string { return "/server/" + machineID(number) }

// serverNumber takes nothing but what machineID gives.
func serverNumber(id string) (int64, bool) {
	number, err := strconv.ParseInt(id, 10, 64)
	return number, err == nil && number > 0 && machineID(number) == id
}

// server reads one server by our id, and makes sure that the answer is about it.
func (c *client) server(ctx context.Context, id string) (*server, error) {
	number, ok := serverNumber(id)
	if !ok {
		return nil, c.vendor.Errorf(provider.NotFound)
	}
	var answer struct {
		Server *server `json:"server"`
	}
	err := c.get(ctx, serverPath(number), &answer)
	switch {
	case err != nil:
		return nil, err
	case answer.Server == nil || answer.Server.Number != number:
		return nil, c.vendor.Errorf(provider.InvalidResponse)
	}
	return answer.Server, nil
}
