package server

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/99designs/gqlgen/graphql"
	"github.com/99designs/gqlgen/graphql/executor"
	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"
	"github.com/vektah/gqlparser/v2/parser"
	"github.com/vektah/gqlparser/v2/validator"
	"github.com/vektah/gqlparser/v2/validator/rules"

	"better/compute/graph"
	"better/compute/graph/plan"
	"better/compute/internal/problem"
)

const (
	// Documents above cachedBytes are parsed each time, so that cachedDocuments of them bound the cache's memory.
	cachedDocuments = 500
	cachedBytes     = 8 << 10
	// bytesPerPoint is how much of a new document is read for one point: the dearest then take a fifth of a core at most.
	bytesPerPoint = 16
	// maxErrors is how many validation errors a client gets at once.
	maxErrors = 20
	// maxSuggestions is how many errors a document may have, and suggestedWord how long its names may be, for suggestions.
	maxSuggestions = 5
	suggestedWord  = 64
)

// liveFields are the fields that call a provider: they cost more and get more time.
var liveFields = []string{
	"Query.offers", "Query.planBootstrap", "ProviderAccount.offers", "ProviderAccount.machines", "BootstrapClaim.candidates",
	"Mutation.checkProviderAccount", "Mutation.checkProviderConfig", "Mutation.resolveClaim",
}

// engine takes a GraphQL request from its text to its responses, the same for every transport. The order is what keeps a
// hostile document cheap: size, tokens, shape, then validation, variables, price, and only then execution.
type engine struct {
	schema     graphql.ExecutableSchema
	exec       *executor.Executor
	presenter  presenter
	metrics    *metrics
	quota      *quota
	config     Config
	rules      *rules.Rules
	suggesting *rules.Rules // which say "did you mean" as well
	documents  *lru.Cache[string, *document]
	operations operations
	words      words
	live       map[string]bool
}

func newEngine(schema graphql.ExecutableSchema, config Config, p presenter, m *metrics, q *quota) (*engine, error) {
	documents, err := lru.New[string, *document](cachedDocuments)
	if err != nil {
		return nil, err
	}
	persisted, err := loadOperations(config.PersistedOperations)
	if err != nil {
		return nil, err
	}
	e := &engine{
		schema: schema, presenter: p, metrics: m, quota: q, config: config,
		rules: validationRules(false), suggesting: validationRules(true), documents: documents, operations: persisted, words: wordsOf(schema.Schema()), live: map[string]bool{},
	}
	for _, f := range liveFields {
		e.live[f] = true
	}
	e.exec = newExecutor(schema, p)
	return e, nil
}

func newExecutor(schema graphql.ExecutableSchema, p presenter) *executor.Executor {
	exec := executor.New(subscriptions{schema})
	exec.AroundFields(measure)
	exec.SetErrorPresenter(exceptTooLarge(p.present))
	exec.SetRecoverFunc(p.recovered)
	exec.SetQueryCache(documentOfRequest{})
	return exec
}

func validationRules(suggestions bool) *rules.Rules {
	r := rules.NewDefaultRules()
	r.ReplaceRule(mergeRule().Name, mergeRule().RuleFunc)
	if suggestions {
		return r
	}
	r.ReplaceRule(rules.FieldsOnCorrectTypeRule.Name, rules.FieldsOnCorrectTypeRuleWithoutSuggestions.RuleFunc)
	r.ReplaceRule(rules.KnownArgumentNamesRule.Name, rules.KnownArgumentNamesRuleWithoutSuggestions.RuleFunc)
	r.ReplaceRule(rules.KnownTypeNamesRule.Name, rules.KnownTypeNamesRuleWithoutSuggestions.RuleFunc)
	r.ReplaceRule(rules.ScalarLeafsRule.Name, rules.ScalarLeafsRuleWithoutSuggestions.RuleFunc)
	r.ReplaceRule(rules.ValuesOfCorrectTypeRule.Name, rules.ValuesOfCorrectTypeRuleWithoutSuggestions.RuleFunc)
	return r
}

// document is one that was parsed and validated, with what its selections were compiled to so far.
type document struct {
	*ast.QueryDocument
	plans plan.Plans
}

// operation is a request that was found fit to run.
type operation struct {
	*graphql.OperationContext
	plans    *plan.Plans
	cost     Cost
	usesLive bool
	tenants  []string // that it names
}

func (op *operation) kind() ast.Operation { return op.Operation.Operation }

// prepare parses, validates and prices a request. When it must not run, the response says why and operation is nil.
func (e *engine) prepare(ctx context.Context, params *graphql.RawParams) (*operation, *graphql.Response) {
	if err := e.operations.admit(params); err != nil {
		return nil, e.refuseUnread(ctx, err)
	}
	doc, errs := e.document(ctx, params.Query)
	if errs != nil {
		return nil, e.refuse(ctx, errs...)
	}
	if err := typeVariables(e.schema.Schema(), doc.QueryDocument, params); err != nil {
		return nil, e.refuseUnread(ctx, err)
	}
	ctx = graphql.StartOperationTrace(context.WithValue(ctx, documentKey{}, doc.QueryDocument))
	opCtx, invalid := e.exec.CreateOperationContext(ctx, params)
	if len(invalid) > 0 {
		if !e.config.Introspection {
			invalid = e.words.unsaid(params.Query, invalid)
		}
		return nil, e.refuse(ctx, asErrors(invalid)...)
	}
	opCtx.DisableIntrospection = !e.config.Introspection
	p := pricer{variables: opCtx.Variables, limit: e.config.Limits.Cost, live: e.live}
	op := &operation{OperationContext: opCtx, plans: &doc.plans, cost: Cost{Requested: p.price(opCtx.Operation), Limit: p.limit}, usesLive: p.usesLive}
	op.tenants = tenantsOf(opCtx)
	if op.cost.Requested > p.limit {
		return nil, e.refuseCost(ctx, op)
	}
	if op.usesLive && op.kind() == ast.Subscription {
		return nil, e.refuse(ctx, problem.New(problem.InvalidInput, "A subscription has no fields that call a provider, as it would with each event: ask for them in a query."))
	}
	if err := e.quota.charge(ctx, op.cost.Requested, op.tenants); err != nil {
		return nil, e.refuse(ctx, err)
	}
	e.quota.chargeNodes(ctx, op)
	return op, nil
}

// refuseUnread refuses what no document was read for. It takes a point all the same.
func (e *engine) refuseUnread(ctx context.Context, err error) *graphql.Response {
	if short := e.quota.charge(ctx, 1, nil); short != nil {
		err = short
	}
	return e.refuse(ctx, err)
}

// refuseCost refuses what is too dear. Finding that out takes points too, as many as reading the document: it may be one that is known, and so
// was read for nothing.
func (e *engine) refuseCost(ctx context.Context, op *operation) *graphql.Response {
	if err := e.quota.charge(ctx, documentPoints(op.RawQuery), op.tenants); err != nil {
		return e.refuse(ctx, err)
	}
	resp := e.refuse(ctx, tooMuch("cost", op.cost.Limit, "The operation could return more than %d objects.", op.cost.Limit))
	op.price(resp)
	return resp
}

// documentPoints is what reading a document takes, one point at least.
func documentPoints(text string) int { return (len(text) + bytesPerPoint - 1) / bytesPerPoint }

// document gives the parsed and validated document of a text. Equal texts share one, which nothing changes any more.
// One that was not seen before, which a refused one never was, takes points for the work that reading it is.
func (e *engine) document(ctx context.Context, text string) (*document, []error) {
	limits := e.config.Limits
	if len(text) > limits.DocumentBytes {
		return nil, []error{tooMuch("document_bytes", limits.DocumentBytes, "The document has %d bytes; at most %d are allowed.", len(text), limits.DocumentBytes)}
	}
	if doc, ok := e.documents.Get(text); ok {
		return doc, nil
	}
	if err := e.quota.charge(ctx, documentPoints(text), nil); err != nil {
		return nil, []error{err}
	}
	parsed, err := parser.ParseQueryWithTokenLimit(&ast.Source{Input: text}, limits.Tokens)
	if err != nil {
		return nil, []error{e.unparsed(err)}
	}
	if len(parsed.Operations) == 0 {
		return nil, []error{problem.New(problem.InvalidInput, "The document has no operation.")}
	}
	if err := checkShape(parsed, limits, e.config.Introspection); err != nil {
		return nil, []error{err}
	}
	if errs := e.validate(text, parsed); len(errs) > 0 {
		return nil, asErrors(errs)
	}
	doc := &document{QueryDocument: parsed}
	if len(text) <= cachedBytes {
		e.documents.Add(text, doc)
	}
	return doc, nil
}

// validate finds what is wrong with a document. What may have been meant is looked for only where that is cheap: each unknown name is
// compared with every name of the schema, letter by letter.
func (e *engine) validate(text string, doc *ast.QueryDocument) gqlerror.List {
	errs := validator.ValidateWithRules(e.schema.Schema(), doc, e.rules)
	errs = errs[:min(len(errs), maxErrors)]
	if !e.config.Introspection {
		errs = e.words.unsaid(text, errs)
	}
	if !e.config.Suggestions || len(errs) == 0 || len(errs) > maxSuggestions || longestWord(text) > suggestedWord {
		return errs
	}
	return validator.ValidateWithRules(e.schema.Schema(), doc, e.suggesting)
}

// longestWord is the length of the longest name that a text can have in it.
func longestWord(text string) int {
	longest := 0
	for len(text) > 0 {
		n := wordLength(text)
		longest = max(longest, n)
		text = text[max(n, 1):]
	}
	return longest
}

// unparsed tells the token limit, which the parser reports like a syntax error, from a syntax error.
func (e *engine) unparsed(err error) error {
	limit := e.config.Limits.Tokens
	if syntax, ok := errors.AsType[*gqlerror.Error](err); ok && strings.HasPrefix(syntax.Message, "exceeded token limit") {
		return tooMuch("tokens", limit, "The document has more than %d tokens.", limit)
	}
	return err
}

// run executes the operation and hands each response to emit until the operation or emit ends it. A query or mutation
// has one response, a subscription any number. A response without data is that of an operation that was not executed, or not to its end.
func (e *engine) run(ctx context.Context, op *operation, emit func(*graphql.Response) error) error {
	keys := e.quota.keys(ctx, op.tenants)
	e.quota.fieldsInTurn(op, keys, e.live)
	if op.kind() == ast.Subscription {
		return e.follow(ctx, op, keys, emit)
	}
	turn, err := e.quota.operation(ctx, op.usesLive, keys)
	if err != nil {
		return emit(e.refuse(ctx, err))
	}
	defer turn.end()
	ctx, cancel := context.WithTimeout(ctx, e.timeLimit(op))
	defer cancel()
	graph.AnswerByPlan(e.schema, op.OperationContext, op.plans, takeRoom)
	ctx, room := withRoom(ctx, e.config.Limits.AnswerBytes)
	responses, ctx := e.exec.DispatchOperation(ctx, op.OperationContext)
	resp := responses(ctx)
	if resp == nil {
		return nil
	}
	if room.exceeded() {
		resp = e.refuse(ctx, e.tooLarge(op.kind()))
	}
	turn.tell(isSmall(resp)) // the client may take its time with the answer
	op.price(resp)
	e.metrics.operation(op.kind(), resp)
	return emit(resp)
}

// isSmall reports whether an answer takes no memory worth counting for as long as it is written.
func isSmall(resp *graphql.Response) bool {
	return len(resp.Data) <= smallAnswer && len(resp.Errors) <= maxErrors
}

// follow runs a subscription.
func (e *engine) follow(ctx context.Context, op *operation, keys callerKeys, emit func(*graphql.Response) error) error {
	release, err := e.quota.subscription(ctx, op.tenants)
	if err != nil {
		return emit(e.refuse(ctx, err))
	}
	defer release()
	times := timeEvents(op, e.config.Limits.OperationTime, func(ctx context.Context) (turn, error) { return e.quota.operations.take(ctx, keys) })
	ctx, start := times.start(ctx)
	defer start.end()
	responses, ctx := e.exec.DispatchOperation(ctx, op.OperationContext)
	if start.isLate(ctx) {
		return emit(e.refuse(ctx, errLate))
	}
	for more := true; more && err == nil; {
		more, err = e.tellNext(ctx, op, times, responses, emit)
	}
	return err
}

// tellNext waits for one event of a subscription, and reports whether there may be more.
func (e *engine) tellNext(ctx context.Context, op *operation, times *eventTime, responses graphql.ResponseHandler, emit func(*graphql.Response) error) (more bool, err error) {
	eventCtx, event := times.next(ctx)
	defer event.end()
	eventCtx, room := withRoom(eventCtx, e.config.Limits.AnswerBytes)
	resp := responses(eventCtx)
	if event.isLate(eventCtx) { // whoever resumes gets the same event once more
		return false, emit(e.refuse(ctx, errLate))
	}
	if resp == nil || ctx.Err() != nil { // what was not executed to its end comes again too
		return false, nil
	}
	if room.exceeded() {
		return false, emit(e.refuse(ctx, e.tooLarge(op.kind())))
	}
	event.turn.tell(isSmall(resp))
	op.price(resp)
	e.metrics.operation(op.kind(), resp)
	if err := emit(resp); err != nil {
		return false, err
	}
	if err := e.chargeEvent(ctx, op); err != nil {
		return false, emit(e.refuse(ctx, err))
	}
	return true, nil
}

// eventPoints is the price up to which each event of a subscription is paid with its start.
const eventPoints = 20

// chargeEvent takes the price of a dear subscription again, since its selection is executed anew with the next event. Who resumes it loses nothing.
func (e *engine) chargeEvent(ctx context.Context, op *operation) error {
	if op.cost.Requested <= eventPoints {
		return nil
	}
	return e.quota.charge(ctx, op.cost.Requested, op.tenants)
}

func (e *engine) timeLimit(op *operation) time.Duration {
	if op.usesLive {
		return e.config.Limits.LiveOperationTime
	}
	return e.config.Limits.OperationTime
}

// refuse answers a request that is not run.
func (e *engine) refuse(ctx context.Context, errs ...error) *graphql.Response {
	resp := &graphql.Response{}
	for _, err := range errs {
		resp.Errors = append(resp.Errors, e.presenter.present(ctx, err))
	}
	e.metrics.refused(resp)
	return resp
}

// price writes extensions.cost.
func (op *operation) price(resp *graphql.Response) {
	extensions := maps.Clone(resp.Extensions)
	if extensions == nil {
		extensions = map[string]any{}
	}
	extensions["cost"] = op.cost
	resp.Extensions = extensions
}

func asErrors(list gqlerror.List) []error {
	errs := make([]error, len(list))
	for i, err := range list {
		errs[i] = err
	}
	return errs
}

// documentOfRequest is the executor's query cache: it holds just the document that prepare has put into the request's context,
// so that the executor neither parses nor validates again.
type documentOfRequest struct{}

type documentKey struct{}

func (documentOfRequest) Get(ctx context.Context, _ string) (*ast.QueryDocument, bool) {
	doc, ok := ctx.Value(documentKey{}).(*ast.QueryDocument)
	return doc, ok
}

func (documentOfRequest) Add(context.Context, string, *ast.QueryDocument) {}

// subscriptions lets one end with a reason: what its resolver reports by graphql.AddError, before it closes its
// channel, becomes the last response. Without it the error is lost, as the executor reads errors only at the start. It also has each event executed
// by a handler of its own, which forgets it: the executor's keeps its largest answer's buffer for as long as the subscription runs.
type subscriptions struct{ graphql.ExecutableSchema }

func (s subscriptions) Exec(ctx context.Context) graphql.ResponseHandler {
	op := graphql.GetOperationContext(ctx)
	if op.Operation.Operation != ast.Subscription {
		return s.ExecutableSchema.Exec(ctx)
	}
	subscribeOnce(op)
	next := s.ExecutableSchema.Exec(ctx)
	if next == nil {
		return nil
	}
	reported := false
	return func(eventCtx context.Context) *graphql.Response {
		resp := next(eventCtx)
		if resp != nil {
			next = s.ExecutableSchema.Exec(ctx)
			return resp
		}
		if reported || eventCtx.Err() != nil {
			return nil // of a stream that was ended from outside, the reason is known there
		}
		reported = true
		if errs := graphql.GetErrors(ctx); len(errs) > 0 {
			return &graphql.Response{Errors: errs}
		}
		return nil
	}
}

// subscribeOnce has each handler of a subscription read the one channel that its resolver gave.
func subscribeOnce(op *graphql.OperationContext) {
	inner := op.ResolverMiddleware
	var changes any
	op.ResolverMiddleware = func(ctx context.Context, next graphql.Resolver) (any, error) {
		if graphql.GetFieldContext(ctx).Object != "Subscription" {
			return inner(ctx, next)
		}
		var err error
		if changes == nil {
			changes, err = inner(ctx, next)
		}
		return changes, err
	}
}
