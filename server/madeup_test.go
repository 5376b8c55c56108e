package server

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/99designs/gqlgen/graphql"

	"better/compute/graph"
	"better/compute/internal/problem"
	"better/compute/model"
)

// madeUp answers every field that a resolver stands behind with something of its type, always the same for one seed and place. Some of
// it is what no answer should have: nulls where none may be, unknown values, errors.
type madeUp struct {
	graph.ResolverRoot // nil but for batch resolvers
	seed               uint64
	trouble            float64 // how likely each of those is
	enums              map[reflect.Type][]string
	plain              *atomic.Int64 // fields without a resolver that the executor came by
}

func makeUp(seed uint64, trouble float64) madeUp {
	return madeUp{seed: seed, trouble: trouble, enums: enums(), plain: new(atomic.Int64)}
}

// at is the chance of a place.
func (m madeUp) at(place string) chance {
	h := fnv.New64a()
	_, _ = h.Write([]byte(place))
	return chance{rand.New(rand.NewPCG(m.seed, h.Sum64())), m}
}

// newMadeUpEngine has the resolvers stand where the real ones would, within all that goes around those.
func newMadeUpEngine(t testing.TB, m madeUp) *engine {
	t.Helper()
	e := newTestEngine(t, Config{Introspection: true})
	e.schema = graph.NewExecutableSchema(graph.Config{Resolvers: m})
	e.exec = newExecutor(e.schema, e.presenter)
	e.exec.AroundFields(m.resolve)
	return e
}

func (m madeUp) resolve(ctx context.Context, next graphql.Resolver) (any, error) {
	fc := graphql.GetFieldContext(ctx)
	if !fc.IsResolver {
		m.plain.Add(1)
		return next(ctx)
	}
	of := resultOf(fc.Object, fc.Field.Name)
	if of == nil {
		return next(ctx)
	}
	c := m.at(fc.Path().String())
	switch {
	case c.happens():
		return nil, problem.New(problem.Conflict, "Made up.")
	case c.happens():
		return nil, nil
	case c.happens():
		panic("made up")
	}
	return c.value(of).Interface(), nil
}

// resultOf is the type of what a resolver gives; nil for a batch resolver.
func resultOf(object, field string) reflect.Type {
	of, ok := reflect.TypeFor[graph.ResolverRoot]().MethodByName(object)
	if !ok {
		panic("no resolvers of " + object)
	}
	resolvers := of.Type.Out(0)
	for method := range resolvers.Methods() {
		if !strings.EqualFold(method.Name, field) {
			continue
		}
		if method.Type.NumIn() > 1 && method.Type.In(1).Kind() == reflect.Slice && object != "Query" {
			return nil
		}
		return method.Type.Out(0)
	}
	panic("no resolver for " + object + "." + field)
}

func (m madeUp) ProviderAccount() graph.ProviderAccountResolver { return madeUpAccounts{madeUp: m} }
func (m madeUp) Bootstrap() graph.BootstrapResolver             { return madeUpRuns{madeUp: m} }
func (m madeUp) Pool() graph.PoolResolver                       { return madeUpPools{madeUp: m} }
func (m madeUp) Query() graph.QueryResolver                     { return nil }
func (m madeUp) Mutation() graph.MutationResolver               { return nil }
func (m madeUp) Viewer() graph.ViewerResolver                   { return nil }
func (m madeUp) BootstrapClaim() graph.BootstrapClaimResolver   { return nil }

type madeUpAccounts struct {
	graph.ProviderAccountResolver
	madeUp
}

type madeUpRuns struct {
	graph.BootstrapResolver
	madeUp
}

type madeUpPools struct {
	graph.PoolResolver
	madeUp
}

func (m madeUpAccounts) Provider(_ context.Context, of []*model.ProviderAccount) ([]*model.Provider, error) {
	return batch[*model.ProviderAccount, *model.Provider](m.madeUp, "provider", of)
}

func (m madeUpAccounts) Bootstraps(_ context.Context, of []*model.ProviderAccount, _ []model.BootstrapStatus, _ *int, _ *string) ([]*model.BootstrapConnection, error) {
	return batch[*model.ProviderAccount, *model.BootstrapConnection](m.madeUp, "bootstraps", of)
}

func (m madeUpRuns) Account(_ context.Context, of []*model.Bootstrap) ([]*model.ProviderAccount, error) {
	return batch[*model.Bootstrap, *model.ProviderAccount](m.madeUp, "account", of)
}

func (m madeUpRuns) Pool(_ context.Context, of []*model.Bootstrap) ([]*model.Pool, error) {
	return batch[*model.Bootstrap, *model.Pool](m.madeUp, "pool", of)
}

func (m madeUpRuns) History(_ context.Context, of []*model.Bootstrap) ([][]*model.BootstrapTransition, error) {
	return batch[*model.Bootstrap, []*model.BootstrapTransition](m.madeUp, "history", of)
}

func (m madeUpRuns) Claim(_ context.Context, of []*model.Bootstrap) ([]*model.BootstrapClaim, error) {
	return batch[*model.Bootstrap, *model.BootstrapClaim](m.madeUp, "claim", of)
}

func (m madeUpPools) Account(_ context.Context, of []*model.Pool) ([]*model.ProviderAccount, error) {
	return batch[*model.Pool, *model.ProviderAccount](m.madeUp, "accountOfPool", of)
}

// batch makes up results for parents, with all that can be wrong with them.
func batch[P, V any](m madeUp, field string, parents []P) ([]V, error) {
	var place strings.Builder
	place.WriteString(field)
	for _, p := range parents {
		if v := reflect.ValueOf(p); !v.IsNil() {
			fmt.Fprintf(&place, " %q", v.Elem().FieldByName("ID").String())
		}
	}
	c := m.at(place.String())
	results, failed := make([]V, len(parents)), false
	errs := make(graphql.BatchErrorList, len(parents))
	for i := range parents {
		results[i], _ = reflect.TypeAssert[V](c.value(reflect.TypeFor[V]()))
		if c.happens() {
			errs[i], failed = problem.New(problem.Conflict, "Made up for one."), true
		}
	}
	switch {
	case c.happens():
		return nil, errors.New("made up for all")
	case c.happens():
		return results[1:], nil
	case failed:
		return results, errs
	}
	return results, nil
}

// chance makes values up.
type chance struct {
	*rand.Rand
	of madeUp
}

func (c chance) happens() bool { return c.Float64() < c.of.trouble }

func (c chance) value(t reflect.Type) reflect.Value {
	v := reflect.New(t).Elem()
	switch t {
	case reflect.TypeFor[model.Node]():
		v.Set(c.node())
		return v
	case reflect.TypeFor[model.Time]():
		v.Set(reflect.ValueOf(model.NewTime(time.Unix(c.Int64N(1<<34)-1<<32, c.Int64N(1e9)).In(time.FixedZone("", c.IntN(3600))))))
		return v
	case reflect.TypeFor[model.JSON]():
		v.SetBytes([]byte(pick(c, "", `{}`, `{"a": "<&>\u2028", "b": [1, null, "é"]}`)))
		if c.happens() {
			v.SetZero()
		}
		return v
	}
	c.fill(v)
	return v
}

func (c chance) node() reflect.Value {
	switch c.IntN(6) {
	case 0:
		return c.value(reflect.TypeFor[*model.ProviderAccount]())
	case 1:
		return c.value(reflect.TypeFor[*model.Host]())
	case 2:
		return c.value(reflect.TypeFor[*model.Bootstrap]())
	case 3:
		return c.value(reflect.TypeFor[model.Pool]())
	default:
		return c.value(reflect.TypeFor[*model.Pool]())
	}
}

func (c chance) fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if c.isNil(v.Type().Elem()) {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		v.Elem().Set(c.value(v.Type().Elem()))
	case reflect.Slice:
		if c.happens() {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), c.IntN(4), 4))
		for i := range v.Len() {
			v.Index(i).Set(c.value(v.Type().Elem()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Run" { // which is no field of the schema, and has no end
				v.Field(i).Set(c.value(v.Type().Field(i).Type))
			}
		}
	default:
		c.scalar(v)
	}
}

// isNil makes pointers to what is no object nil often: all of them may be.
func (c chance) isNil(of reflect.Type) bool {
	if strings.HasPrefix(of.Name(), "Siblings") {
		return true
	}
	if of.Kind() != reflect.Struct || of == reflect.TypeFor[model.Time]() {
		return c.IntN(4) == 0
	}
	return c.happens()
}

func (c chance) scalar(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if values := c.of.enums[v.Type()]; len(values) > 0 && !c.happens() {
			v.SetString(pick(c, values...))
			return
		}
		v.SetString(pick(c, "", "plain", "\"\\\t\r\n", "\x00\x01\x1f\x7f", "<a&b>", "éß日本😀", "\u2028\u2029", "\xff\xfe\xc3", strings.Repeat("long ", 60)))
		if v.Type().Name() == "string" && c.IntN(3) > 0 {
			v.SetString(fmt.Sprintf("s-%x", c.Uint64()))
		}
	case reflect.Int, reflect.Int64:
		v.SetInt(pick[int64](c, 0, 1, -1, math.MaxInt32, math.MaxInt64, math.MinInt64, c.Int64()))
	case reflect.Float64:
		v.SetFloat(pick(c, 0, 0.5, 1e6, 1e21, 1e-9, -123456789.25, c.Float64()))
		if c.IntN(3) == 0 {
			v.SetFloat(pick(c, math.NaN(), math.Inf(1)))
		}
	case reflect.Bool:
		v.SetBool(c.IntN(2) == 0)
	default:
		panic("nothing is made up for " + v.Type().String())
	}
}

func pick[T any](c chance, from ...T) T { return from[c.IntN(len(from))] }

// enums are the values of the enums.
func enums() map[reflect.Type][]string {
	all := map[reflect.Type][]string{}
	add := func(values ...any) {
		for _, value := range values {
			t := reflect.TypeOf(value)
			all[t] = append(all[t], reflect.ValueOf(value).String())
		}
	}
	addAll(add, model.BootstrapStatuses())
	addAll(add, model.CleanupStatuses())
	addAll(add, model.FailureReasons())
	addAll(add, model.AllBootstrapPreconditionName)
	add(model.Metal, model.VPS, model.Available, model.Limited, model.OutOfStock, model.AvailabilityUnknown)
	add(model.ClaimToken, model.ClaimUniqueName, model.ClaimLabel, model.ClaimLocal, model.ClaimNone, model.OrphanNotOurs, model.OrphanNotThere)
	add(model.ClassVPSHost, model.ClassMetalHost, model.ClassVPS, model.ClassMetal, model.ClassContainer, model.AgentBCD, model.AgentNone)
	add(model.AuditAllowed, model.AuditDenied, model.AuditReplayed, model.Allow, model.Deny)
	add(model.ProvidersRead, model.ProvidersManage, model.PoolsRead, model.PoolsManage, model.IAMManage, model.AuditRead)
	return all
}

func addAll[T any](add func(...any), values []T) {
	for _, value := range values {
		add(value)
	}
}
