package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"better/compute/authz"
	"better/compute/internal/problem"
	"better/compute/model"
	"better/compute/provider"
)

// PlanInput names what a bootstrap would be started with.
type PlanInput struct {
	TenantID  string
	AccountID string
	PoolID    string
	MachineID *string
	OfferID   *string
}

// Plan says what Start would do with the input, for a caller who holds compute:providers:manage on the account: each precondition in the order
// in which Start looks at it, what the order costs, what the machine loses, how long it is likely to take. It asks the provider and
// changes nothing, here or there. UNAUTHENTICATED, INVALID_INPUT, FORBIDDEN, or RATE_LIMITED when too many calls wait; what Start would
// refuse is a red precondition and no error.
func (s *Service) Plan(ctx context.Context, in PlanInput) (*model.BootstrapPlan, error) {
	if _, err := s.Authz.Authenticated(ctx); err != nil {
		return nil, err
	}
	var check checklist
	check.plan(in)
	if err := check.err(); err != nil {
		return nil, err
	}
	account := authz.ProviderAccount(in.TenantID, in.AccountID)
	if err := s.Authz.Check(ctx, model.ProvidersManage, account); err != nil {
		return nil, err
	}
	i := &inspection{Service: s, in: in, plan: &model.BootstrapPlan{Wipes: []string{}, Ready: true}}
	if err := s.Authz.ErrorFor(ctx, model.ProvidersManage, account, i.inspect(ctx)); err != nil {
		return nil, err
	}
	return i.plan, nil
}

// inspection is a plan in the making, with what was found so far.
type inspection struct {
	*Service
	in   PlanInput
	plan *model.BootstrapPlan

	account  *model.ProviderAccount
	manifest provider.Manifest
	kind     model.MachineKind
}

// precondition is one that Start has. Needs names those without which it cannot be looked at.
type precondition struct {
	name  model.BootstrapPreconditionName
	needs []model.BootstrapPreconditionName
	// look says what was found, or why a bootstrap would come to nothing.
	look func(context.Context) (found string, err error)
}

func (i *inspection) checks() []precondition {
	account := []model.BootstrapPreconditionName{model.BootstrapPreconditionNameAccount}
	all := []precondition{
		{model.BootstrapPreconditionNameServer, nil, i.server},
		{model.BootstrapPreconditionNameAccount, nil, i.findAccount},
		{model.BootstrapPreconditionNameCapabilities, account, i.capabilities},
		{model.BootstrapPreconditionNamePool, nil, i.pool},
		{model.BootstrapPreconditionNameCredentials, account, i.credentials},
	}
	asked := []model.BootstrapPreconditionName{model.BootstrapPreconditionNameAccount, model.BootstrapPreconditionNameCredentials}
	if i.in.OfferID != nil {
		return append(all,
			precondition{model.BootstrapPreconditionNameAvailability, asked, i.offer},
			precondition{model.BootstrapPreconditionNameOrderLimit, nil, i.orderLimit})
	}
	able := []model.BootstrapPreconditionName{model.BootstrapPreconditionNameAccount, model.BootstrapPreconditionNameCapabilities}
	return append(all,
		precondition{model.BootstrapPreconditionNameAvailability, asked, i.machine},
		precondition{model.BootstrapPreconditionNameMachineFree, able, i.machineFree})
}

func (i *inspection) inspect(ctx context.Context) error {
	for _, c := range i.checks() {
		if err := i.report(ctx, c); err != nil {
			return err
		}
	}
	return i.estimate(ctx)
}

// report adds what came of one precondition. What is neither the caller's nor the provider's to put right is an error of the plan.
func (i *inspection) report(ctx context.Context, c precondition) error {
	out := &model.BootstrapPrecondition{Name: c.name}
	if red := i.missing(c.needs); red != nil {
		out.Message, out.Code = fmt.Sprintf("Not checked: it takes %s.", red.Name), red.Code
	} else {
		found, err := c.look(ctx)
		if out.Message, out.Ok = found, err == nil; err != nil {
			code := codeOf(err)
			if code == "" {
				return err
			}
			out.Message, out.Code = messageOf(err), &code
		}
	}
	i.plan.Preconditions = append(i.plan.Preconditions, out)
	i.plan.Ready = i.plan.Ready && out.Ok
	return nil
}

// missing finds the first of the preconditions that does not hold.
func (i *inspection) missing(needs []model.BootstrapPreconditionName) *model.BootstrapPrecondition {
	for _, p := range i.plan.Preconditions {
		if !p.Ok && slices.Contains(needs, p.Name) {
			return p
		}
	}
	return nil
}

// codeOf is the code that a bootstrap would be refused with, or the reason that it would fail for; empty for what says nothing about it.
func codeOf(err error) string {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		switch p.Code {
		case problem.Unavailable, problem.RateLimited, problem.Internal:
			return ""
		default:
			return string(p.Code)
		}
	}
	if errors.Is(err, context.Canceled) {
		return ""
	}
	if red, ok := errors.AsType[redError](err); ok {
		return red.code
	}
	class := classed(err).Class
	switch class {
	case provider.Auth, provider.Forbidden:
		return string(model.CredentialsRejected)
	case provider.SSHUnreachable: // which a run waits over, and fails for in the end
		return string(model.SSHUnreachable)
	default:
	}
	if reason, ends := reasons[class]; ends {
		return string(reason)
	}
	return string(problem.ProviderError)
}

func messageOf(err error) string {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p.Message
	}
	if red, ok := errors.AsType[redError](err); ok {
		return red.message
	}
	return printable(classed(err).Message, maxMessage)
}

// redError is what would become of a run after it was started.
type redError struct{ code, message string }

func (e redError) Error() string { return e.code + ": " + e.message }

func (i *inspection) server(context.Context) (string, error) {
	if i.Options == nil {
		return "", notSetUp()
	}
	return "This server bootstraps machines.", nil
}

func (i *inspection) findAccount(ctx context.Context) (found string, err error) {
	i.account, err = i.Accounts.Account(ctx, i.DB.DB, i.in.TenantID, i.in.AccountID)
	if err != nil {
		return "", err
	}
	i.manifest, _ = i.Accounts.Manifest(i.account.Provider)
	return "The account is one of " + i.account.Provider + ".", nil
}

func (i *inspection) capabilities(context.Context) (string, error) {
	if i.manifest.Name == "" {
		return "", noProvider(i.account.Provider)
	}
	return "The provider can do it.", supports(i.manifest, i.in.OfferID != nil)
}

func (i *inspection) pool(ctx context.Context) (string, error) {
	return "The pool takes hosts.", i.checkPool(ctx, i.DB.DB, i.in.TenantID, i.in.PoolID)
}

func (i *inspection) credentials(ctx context.Context) (string, error) {
	if i.manifest.Capabilities.ClaimMode == model.ClaimLocal {
		return i.login(ctx)
	}
	return "The provider takes the account's credentials.", i.Accounts.Peek(ctx, i.account, func(ctx context.Context, c provider.Client) error {
		return c.Check(ctx)
	})
}

// login reaches the machine that the bootstrap would be of. Where there is no provider it is the machines that judge the credentials, and
// what is wrong with another one is no matter.
func (i *inspection) login(ctx context.Context) (found string, err error) {
	err = i.Accounts.Peek(ctx, i.account, func(ctx context.Context, c provider.Client) error {
		b, err := bootstrapper(c, i.account)
		if err != nil {
			return err
		}
		machines, err := c.Machines(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(machines, i.takes)
		if at < 0 {
			found = "No machine is there that could judge the credentials."
			return nil
		}
		found = "The machine takes the account's credentials."
		_, err = b.Identify(ctx, machines[at].ID)
		return err
	})
	return found, err
}

// takes reports whether the bootstrap would be of the machine, if of none before it.
func (i *inspection) takes(m *model.Machine) bool {
	if i.in.MachineID != nil {
		return m.ID == *i.in.MachineID
	}
	return m.Status == provider.MachineFree && m.OfferID != nil && *m.OfferID == *i.in.OfferID
}

func (i *inspection) offer(ctx context.Context) (string, error) {
	var offers []*model.Offer
	err := i.Accounts.Peek(ctx, i.account, func(ctx context.Context, c provider.Client) (err error) {
		if offers, err = c.Offers(ctx); err == nil {
			offers, err = provider.CheckOffers(offers)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(offers, func(o *model.Offer) bool { return o.ID == *i.in.OfferID })
	if at < 0 {
		return "", redError{string(model.OfferGone), "The provider does not sell this offer."}
	}
	offer := offers[at]
	i.kind, i.plan.Price = offer.Kind, offer.Price
	if i.manifest.Capabilities.ClaimMode == model.ClaimLocal { // what is ordered is a machine that stands there already
		i.plan.Wipes = append(i.plan.Wipes, i.manifest.Wipes...)
	}
	switch offer.Availability {
	case model.OutOfStock:
		return "", redError{string(model.OfferOutOfStock), "None is left of this offer."}
	case model.AvailabilityUnknown:
		return "The offer is sold; the provider does not tell whether any is left.", nil
	case model.Available, model.Limited:
	}
	return "The offer is sold and there are some left.", nil
}

func (i *inspection) machine(ctx context.Context) (string, error) {
	if !i.manifest.Capabilities.Machines {
		return "The provider does not list its machines.", nil
	}
	var machines []*model.Machine
	err := i.Accounts.Peek(ctx, i.account, func(ctx context.Context, c provider.Client) (err error) {
		machines, err = c.Machines(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(machines, func(m *model.Machine) bool { return m.ID == *i.in.MachineID })
	if at < 0 {
		return "", redError{string(model.MachineNotFound), "The account has no such machine."}
	}
	i.kind, i.plan.Wipes = machines[at].Kind, append(i.plan.Wipes, i.manifest.Wipes...)
	return "The account has the machine.", nil
}

func (i *inspection) machineFree(ctx context.Context) (string, error) {
	key, err := i.machineKey(ctx, i.account, *i.in.MachineID)
	if err != nil {
		return "", err
	}
	taken, err := reserved(ctx, i.DB.DB, key)
	if err != nil {
		return "", err
	}
	contested, err := i.contested(ctx, key, i.in.TenantID)
	if err == nil && taken[key] && !contested {
		err = machineInUse(*i.in.MachineID)
	}
	return "No bootstrap and no host has the machine.", err
}

func (i *inspection) orderLimit(ctx context.Context) (string, error) {
	wait, err := untilOrder(ctx, i.DB.DB, i.in.TenantID, i.OrdersPerHour)
	switch {
	case err != nil:
		return "", err
	case wait > 0:
		minutes := int(math.Ceil(wait.Minutes()))
		return "", redError{waitsForOrderLimit, fmt.Sprintf(
			"The tenant has sent %d orders within an hour, which is the limit: the bootstrap would wait for about %d minutes.", i.OrdersPerHour, minutes)}
	case i.OrdersPerHour == 0:
		return "Orders are not limited.", nil
	}
	return fmt.Sprintf("The tenant may send %d orders within an hour.", i.OrdersPerHour), nil
}

// estimate says how long it is likely to take: as long as the account's last runs of that sort did, or what the driver says.
func (i *inspection) estimate(ctx context.Context) error {
	if i.account == nil {
		return nil
	}
	took, err := typical(ctx, i.DB.DB, i.account.ID, i.in.OfferID != nil)
	if err != nil {
		return err
	}
	if took == 0 {
		took = i.manifest.Typical[i.kind]
	}
	if took > 0 {
		i.plan.ExpectedMinutes = new(int(math.Ceil(took.Minutes())))
	}
	return nil
}
