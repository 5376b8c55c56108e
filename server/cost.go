package server

import (
	"encoding/json"
	"strconv"

	"github.com/vektah/gqlparser/v2/ast"
)

// What the price of an operation assumes where the document does not say.
const (
	assumedListSize   = 10  // of a list that has no `first`
	assumedPageSize   = 100 // of a page whose `first` is null: the largest there is
	liveFieldCost     = 50  // on top, for a field that calls a provider
	introspectionCost = 100 // of __schema and of __type, which the schema bounds
	changeCost        = 20  // on top, for a field that changes something: it leaves rows, in the audit log at least
)

// Cost is the price of an operation as `extensions.cost` shows it. Requested stops just above the limit.
type Cost struct {
	Requested int `json:"requested"`
	Limit     int `json:"limit"`
}

// pricer counts the objects that a validated operation can return at most. A connection's lists hold `first` objects, other
// lists assumedListSize, scalars are free; @skip and @include count as included, and what two fields of one response name
// share is counted twice. Each fragment is priced once for each page size it is used under, and every number stops at
// limit+1, so the work is linear in the document however its fragments multiply.
type pricer struct {
	variables map[string]any
	limit     int
	live      map[string]bool // "Type.field"
	fragments map[fragmentUse]int
	usesLive  bool
}

type fragmentUse struct {
	name string
	page int
}

// noPage is the page size outside of connections.
const noPage = -1

func (p *pricer) price(op *ast.OperationDefinition) int {
	p.fragments = map[fragmentUse]int{}
	return p.set(op.SelectionSet, noPage)
}

func (p *pricer) set(set ast.SelectionSet, page int) int {
	total := 0
	for _, sel := range set {
		switch sel := sel.(type) {
		case *ast.Field:
			total += p.field(sel, page)
		case *ast.InlineFragment:
			total += p.set(sel.SelectionSet, page)
		case *ast.FragmentSpread:
			total += p.fragment(sel, page)
		}
		if total > p.limit {
			return p.limit + 1
		}
	}
	return total
}

func (p *pricer) fragment(spread *ast.FragmentSpread, page int) int {
	use := fragmentUse{spread.Name, page}
	if cost, done := p.fragments[use]; done {
		return cost
	}
	cost := p.set(spread.Definition.SelectionSet, page)
	p.fragments[use] = cost
	return cost
}

func (p *pricer) field(f *ast.Field, page int) int {
	if f.Name == "__schema" || f.Name == "__type" {
		return introspectionCost
	}
	cost := 0
	if p.live[f.ObjectDefinition.Name+"."+f.Name] {
		p.usesLive = true
		cost = liveFieldCost
	}
	if f.ObjectDefinition.Name == "Mutation" {
		cost += changeCost
	}
	if len(f.SelectionSet) == 0 {
		return cost
	}
	each := 1 + p.set(f.SelectionSet, p.pageSize(f))
	return min(cost+each*p.listSize(f, page), p.limit+1)
}

// listSize is how many objects the field can hold: one, or for a list directly inside a connection the connection's page.
func (p *pricer) listSize(f *ast.Field, page int) int {
	switch {
	case f.Definition.Type.Elem == nil:
		return 1
	case page != noPage:
		return page
	default:
		return assumedListSize
	}
}

// pageSize is the `first` of a connection, noPage for any other field.
func (p *pricer) pageSize(f *ast.Field) int {
	def := f.Definition.Arguments.ForName("first")
	if def == nil {
		return noPage
	}
	value := def.DefaultValue
	if arg := f.Arguments.ForName("first"); arg != nil {
		value = arg.Value
		if v, set := p.variables[value.Raw]; value.Kind == ast.Variable && set {
			return p.clamp(v)
		}
		if value.Kind == ast.Variable { // neither given nor with a default of its own: the argument's default holds
			value = def.DefaultValue
		}
	}
	if value == nil || value.Kind != ast.IntValue {
		return assumedPageSize
	}
	return p.clamp(json.Number(value.Raw))
}

// clamp makes a page size that cannot overflow; what is not a count is refused later, by the service that reads it.
func (p *pricer) clamp(v any) int {
	n := int64(assumedPageSize)
	switch v := v.(type) {
	case int:
		n = int64(v)
	case int64:
		n = v
	case float64:
		n = int64(v)
	case json.Number:
		parsed, err := strconv.ParseInt(v.String(), 10, 64)
		if err != nil {
			parsed = int64(p.limit) + 1
		}
		n = parsed
	}
	return int(min(max(n, 0), int64(p.limit)+1))
}
