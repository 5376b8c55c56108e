package server

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/99designs/gqlgen/graphql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vektah/gqlparser/v2/ast"

	"better/compute/authz"
	"better/compute/internal/problem"
	"better/compute/internal/strictjson"
	"better/compute/model"
)

// quota is what callers and tenants may use of this server in a time. What counts for a tenant counts only for callers who have a right in
// it: a stranger could otherwise use up a tenant's share by naming it.
type quota struct {
	atOnce
	meter            *meter
	streamsPerTenant int
	belongs          func(ctx context.Context, tenantID string) bool
}

func newQuota(l Limits, running prometheus.Gauge, belongs func(ctx context.Context, tenantID string) bool) *quota {
	if belongs == nil {
		belongs = func(context.Context, string) bool { return false }
	}
	return &quota{atOnce: newAtOnce(l, running), meter: newMeter(l), streamsPerTenant: l.StreamsPerTenant, belongs: belongs}
}

// own gives those of the tenants in which the context's caller has a right, and the one whose service it is: that has as many services as its
// administrators like, so whatever they ask for is the tenant's.
func (q *quota) own(ctx context.Context, tenants []string) []string {
	var own []string
	actor, _ := authz.ActorFrom(ctx)
	home := authz.ServiceTenant(actor.Subject)
	if home != "" {
		own = append(own, home)
	}
	for _, tenant := range tenants {
		if tenant != home && q.belongs(ctx, tenant) {
			own = append(own, tenant)
		}
	}
	return own
}

// charge takes points from the context's caller, and from its own tenants, those among the named and its service's, or from none of them: then it is RATE_LIMITED, and
// details.limit says whose points are used up, "subject" or "tenant".
func (q *quota) charge(ctx context.Context, points int, tenants []string) error {
	return q.take(points, q.accounts(ctx, tenants)...)
}

func (q *quota) accounts(ctx context.Context, tenants []string) []account {
	actor, _ := authz.ActorFrom(ctx)
	accounts := []account{{limitSubject, actor.Subject}}
	for _, tenant := range q.own(ctx, tenants) {
		accounts = append(accounts, account{limitTenant, tenant})
	}
	return accounts
}

// What JSON of a request is read for one point, beyond what comes with every request: the dearest then takes a fifth of a core at most.
const (
	freeBytes         = 1 << 10
	bodyBytesPerPoint = 128
)

func bodyPoints(bytes int) int { return max(bytes-freeBytes, 0) / bodyBytesPerPoint }

// chargeBody takes points from the context's caller for reading so many bytes, whatever becomes of them.
func (q *quota) chargeBody(ctx context.Context, bytes int) error {
	if points := bodyPoints(bytes); points > 0 {
		return q.charge(ctx, points, nil)
	}
	return nil
}

// replayPoints is what an event takes that is told again.
const replayPoints = 2

// ChargeReplay takes the points for telling the context's caller events of the tenant again. RATE_LIMITED.
func (s *Server) ChargeReplay(ctx context.Context, tenantID string, events int) error {
	return s.quota.charge(ctx, events*replayPoints, []string{tenantID})
}

// chargeNodes makes each tenant of what a `node` of the operation turns out to be pay for it, once, as if the operation had named
// it. A tenant that cannot pay has its object kept back.
func (q *quota) chargeNodes(ctx context.Context, op *operation) {
	named := false
	walkRootFields(op.Operation.SelectionSet, map[string]bool{}, func(f *ast.Field) { named = named || f.Name == nodeField })
	if !named {
		return
	}
	payers := payers{paid: slices.Concat(op.tenants, q.own(ctx, nil))}
	inner := op.ResolverMiddleware
	op.ResolverMiddleware = func(ctx context.Context, next graphql.Resolver) (any, error) {
		res, err := inner(ctx, next)
		if field := graphql.GetFieldContext(ctx); err != nil || field.Field.Name != nodeField || field.Object != "Query" {
			return res, err
		}
		return res, payers.pay(tenantOf(res), func(tenant string) error { return q.take(op.cost.Requested, account{limitTenant, tenant}) })
	}
}

const nodeField = "node"

// payers are the tenants that have paid for an operation, whose fields run at the same time.
type payers struct {
	mu   sync.Mutex
	paid []string
}

func (p *payers) pay(tenant string, take func(tenant string) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if tenant == "" || slices.Contains(p.paid, tenant) {
		return nil
	}
	if err := take(tenant); err != nil {
		return err
	}
	p.paid = append(p.paid, tenant)
	return nil
}

// tenantOf is whose a node is, which its caller may read and so has a right in; empty for none.
func tenantOf(node any) string {
	switch node := node.(type) {
	case *model.ProviderAccount:
		return node.TenantID
	case *model.Pool:
		return node.TenantID
	case *model.Bootstrap:
		return node.TenantID
	case *model.Host:
		return node.TenantID
	default:
		return ""
	}
}

func (q *quota) take(points int, accounts ...account) error {
	wait, short := q.meter.charge(points, accounts...)
	if wait == 0 {
		return nil
	}
	rule, message := "points", "You have used up what one caller may ask for in a short time."
	if short.limit == limitTenant {
		rule, message = "tenant_points", "The callers of this tenant have used up what one tenant may ask for in a short time."
	}
	return problem.New(problem.RateLimited, "%s", message).
		With("rule", rule).With("limit", short.limit).With("retryAfterSeconds", int(math.Ceil(wait.Seconds())))
}

// longestTenant is how long a tenant's id can be; nothing longer is one.
const longestTenant = 128

// tenantsOf lists the tenants that an operation names at its top: in `tenantId`, or in `input.tenantId`.
func tenantsOf(op *graphql.OperationContext) []string {
	var tenants []string
	walkRootFields(op.Operation.SelectionSet, map[string]bool{}, func(f *ast.Field) {
		for _, arg := range f.Arguments {
			if arg.Name != "tenantId" && arg.Name != "input" {
				continue
			}
			v, err := arg.Value.Value(op.Variables)
			if err != nil {
				continue // it is refused when the field is resolved
			}
			if input, ok := v.(map[string]any); ok {
				v = input["tenantId"]
			}
			if tenant := idText(v); tenant != "" && !slices.Contains(tenants, tenant) {
				tenants = append(tenants, tenant)
			}
		}
	})
	return tenants
}

func walkRootFields(set ast.SelectionSet, seen map[string]bool, visit func(*ast.Field)) {
	for _, sel := range set {
		switch sel := sel.(type) {
		case *ast.Field:
			visit(sel)
		case *ast.InlineFragment:
			walkRootFields(sel.SelectionSet, seen, visit)
		case *ast.FragmentSpread:
			if sel.Definition != nil && !seen[sel.Name] {
				seen[sel.Name] = true
				walkRootFields(sel.Definition.SelectionSet, seen, visit)
			}
		}
	}
}

// idText is the id that a value of the type ID stands for; empty when it can be no tenant's.
func idText(v any) string {
	var text string
	switch v := v.(type) {
	case string:
		text = v
	case int64:
		text = strconv.FormatInt(v, 10)
	}
	if len(text) > longestTenant {
		return ""
	}
	return text
}

// tenantsOfBody lists the tenant that the body of a REST call names. What is wrong with the body is for the method to say.
func tenantsOfBody(body []byte) []string {
	if tenant := textMember(body, "tenantId", longestTenant); tenant != "" {
		return []string{tenant}
	}
	return nil
}

// textMember is the text of an object's member, as far as one look at each byte tells it, see strictjson.Member; empty for what is no text or
// longer than so many bytes, which costs no more than to look at it.
func textMember(data []byte, name string, most int) string {
	value := strictjson.Member(data, name)
	value = value[:min(len(value), 6*most+2)] // all of it escaped, and the quotes
	var text string
	if err := json.NewDecoder(bytes.NewReader(value)).Decode(&text); err != nil || len(text) > most {
		return ""
	}
	return text
}
