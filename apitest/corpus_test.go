package apitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/apitest/harness"
	"better/compute/internal/problem"
)

const fleetAdmin = "user:root"

// TestCorpus tells every story over both transports, on one server.
func TestCorpus(t *testing.T) {
	t.Parallel()
	stories := readStories(t)
	d := newDeployment(t)
	d.caller(fleetAdmin, "fleet-admin compute-fleet")
	for _, s := range stories {
		for _, transport := range []string{"rest", "graphql"} {
			newTelling(d, s, transport).admitActors()
		}
	}
	server := d.serve(t)
	t.Run("stories", func(t *testing.T) {
		for _, s := range stories {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				tellBoth(t, d, server, s)
			})
		}
	})
}

func readStories(t *testing.T) (stories []*story) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("found no stories: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parseStory(strings.TrimSuffix(filepath.Base(file), ".txtar"), string(text))
		if err != nil {
			t.Fatal(err)
		}
		stories = append(stories, s)
	}
	return stories
}

func tellBoth(t *testing.T, d *deployment, server *process, s *story) {
	t.Helper()
	told := map[string][]heard{}
	for _, transport := range []string{"rest", "graphql"} {
		ok := t.Run(transport, func(t *testing.T) {
			telling := newTelling(d, s, transport)
			telling.server = server
			telling.tell(t)
			told[transport] = telling.heard
		})
		if !ok {
			return // the difference would only repeat it
		}
	}
	if diff := cmp.Diff(told["rest"], told["graphql"]); diff != "" {
		t.Errorf("the transports differ (-REST +GraphQL):\n%s", diff)
	}
}

// heard is what was answered to a step that both transports have, without what has to differ.
type heard struct {
	Step    string
	Outcome outcome
}

// telling is one run of a story over one transport.
type telling struct {
	deployment *deployment
	server     *process
	story      *story
	transport  string
	variables  map[string]string
	number     int
	names      map[string]string // identifiers, to what stands for them
	counts     map[string]int    // how many of a kind there are
	audited    int64             // the last audit row that was looked at
	heard      []heard
}

func newTelling(d *deployment, s *story, transport string) *telling {
	prefix := s.name + "." + transport
	return &telling{
		deployment: d, story: s, transport: transport, names: map[string]string{}, counts: map[string]int{},
		variables: map[string]string{"tenant": prefix, "other": prefix + ".other"},
		number:    100, // so that all have three digits
	}
}

// admitActors puts the actors of the story into the configuration.
func (l *telling) admitActors() {
	tenant, other := "compute-tenant/"+l.variables["tenant"], "compute-tenant/"+l.variables["other"]
	for actor, bindings := range map[string][]string{
		"admin": {"tenant-admin " + tenant}, "manager": {"provider-manager " + tenant}, "viewer": {"provider-viewer " + tenant},
		"other": {"tenant-admin " + other}, "stranger": nil, "item": nil,
		"denied": {"tenant-admin " + tenant, "!tenant-admin " + tenant},
	} {
		l.deployment.caller(l.subject(actor), bindings...)
	}
}

func (l *telling) subject(actor string) string {
	if actor == "root" {
		return fleetAdmin
	}
	return "user:" + l.variables["tenant"] + "/" + actor
}

func (l *telling) token(t *testing.T, actor string) string {
	t.Helper()
	if actor == "nobody" {
		return ""
	}
	token, known := l.deployment.callers[l.subject(actor)]
	if !known {
		t.Fatalf("there is no actor %q", actor)
	}
	return token
}

func (l *telling) tell(t *testing.T) {
	t.Helper()
	for _, tenant := range []string{l.variables["tenant"], l.variables["other"]} {
		l.must(t, "root", "putSecret", map[string]any{"tenantId": tenant, "name": "sim", "value": newSecret()})
	}
	l.skipAudit(t)
	for _, st := range l.story.steps {
		if st.only != "" && st.only != l.transport {
			continue
		}
		t.Run(strings.ReplaceAll(st.title, "/", "|"), func(t *testing.T) { l.take(t, st) })
	}
}

func (l *telling) take(t *testing.T, st step) {
	t.Helper()
	switch st.verb {
	case "call":
		l.call(t, st)
	case "vary":
		l.vary(t, st)
	case "grant", "deny":
		l.grant(t, st)
	case "sql":
		if _, err := l.deployment.db.Pool.Exec(t.Context(), l.expand(t, st.body)); err != nil {
			t.Fatal(err)
		}
	case "audit":
		l.audit(t, st)
	}
}

func (l *telling) expand(t *testing.T, text string) string {
	t.Helper()
	text, err := expand(text, l.variables, func() int { l.number++; return l.number })
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// ask calls a method over this telling's transport, or over GraphQL where only that has it.
func (l *telling) ask(t *testing.T, actor, method string, input map[string]any) outcome {
	t.Helper()
	if l.transport == "rest" && slices.Contains(restMethods(), method) {
		body, err := json.Marshal(input)
		if err != nil {
			t.Fatal(err)
		}
		return l.server.rest(t, method, l.token(t, actor), body)
	}
	return l.server.graphql(t, method, l.token(t, actor), input)
}

func (l *telling) must(t *testing.T, actor, method string, input map[string]any) any {
	t.Helper()
	out := l.ask(t, actor, method, input)
	if out.Code != "" {
		t.Fatalf("%s as %s: %+v", method, actor, out)
	}
	return out.Data
}

func (l *telling) call(t *testing.T, st step) {
	t.Helper()
	values := jsonValues(t, l.expand(t, st.body))
	if len(values) == 0 || len(values) > 2 {
		t.Fatal("a call has its input and at most one answer")
	}
	input, _ := values[0].(map[string]any)
	out := l.ask(t, st.actor, st.method, input)
	if st.keep != "" && out.Code == "" {
		l.keep(t, st.keep, out.Data)
	}
	if string(out.Code) != st.code {
		t.Fatalf("got %+v, want %s", out, st.code)
	}
	out = l.normalOutcome(out)
	if len(values) == 2 {
		l.compare(t, &out, l.normal(values[1]))
	}
	l.remember(st, st.title, out)
}

// keep keeps the id of an answer, or with numbers those of a list.
func (l *telling) keep(t *testing.T, name string, data any) {
	t.Helper()
	if list, ok := data.([]any); ok {
		for i, item := range list {
			l.keep(t, fmt.Sprintf("%s%d", name, i+1), item)
		}
		return
	}
	id, ok := member(data, "id").(string)
	if !ok {
		t.Fatalf("the answer has no id: %v", data)
	}
	l.variables[name] = id
	if !idForm.MatchString(id) {
		l.names[id] = "<" + name + ">" // one of the provider's
	}
}

// compare holds an outcome to what the story says, and puts "<any>" where the story does.
func (l *telling) compare(t *testing.T, out *outcome, want any) {
	t.Helper()
	var got any
	if out.Code != "" {
		details := maps.Clone(out.Details)
		if _, ok := details["issues"]; ok {
			details["issues"] = asAny(paths(out.Details))
		}
		got = details
	} else {
		out.Data = blank(out.Data, want)
		got = out.Data
	}
	if diff := cmp.Diff(wildcards(want, got), got); diff != "" {
		t.Errorf("the answer (-want +got):\n%s", diff)
	}
}

func (l *telling) remember(st step, title string, out outcome) {
	if st.only == "" {
		l.heard = append(l.heard, heard{title, out})
	}
}

// vary asks once for each line of the section.
func (l *telling) vary(t *testing.T, st step) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(st.body))
	var base json.RawMessage
	if err := dec.Decode(&base); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(st.body[dec.InputOffset():]) {
		if line = strings.TrimSpace(line); line != "" {
			l.variation(t, st, string(base), line)
		}
	}
}

func (l *telling) variation(t *testing.T, st step, base, line string) {
	t.Helper()
	for _, transport := range []string{"rest", "graphql"} {
		if cut, ok := strings.CutPrefix(line, transport+" "); ok {
			if transport != l.transport {
				return
			}
			st.only, line = transport, cut
		}
	}
	input, _ := jsonValues(t, l.expand(t, base))[0].(map[string]any)
	want := applyChange(t, input, l.expand(t, line))
	out := l.ask(t, st.actor, st.method, input)
	got := shortOutcome(out, strings.HasPrefix(want, "items:"))
	if got != want {
		t.Errorf("%.200s: got %s, want %s: %.300s", line, got, want, out.Message)
	}
	if l.transport == "rest" && out.Code == problem.InvalidInput && !strings.Contains(got, "/") && out.Details["known"] == nil {
		body, _ := json.Marshal(input) // it was sent
		if requestError(t, st.method, body) == nil {
			t.Errorf("%.200s: openapi.json allows what the server refuses", line)
		}
	}
	out = l.normalOutcome(out)
	out.Data = nil // it differs by names; calls compare data
	l.remember(st, line, out)
}

// shortOutcome is an outcome as a line of a variation has it.
func shortOutcome(out outcome, listItems bool) string {
	if found := paths(out.Details); out.Code == problem.InvalidInput && len(found) > 0 {
		return strings.Join(found, ",")
	}
	if out.Code != "" {
		return string(out.Code)
	}
	if !listItems {
		return "ok"
	}
	items, _ := member(out.Data, "items").([]any)
	ids := "items:"
	for _, item := range items {
		ids += fmt.Sprintf(" %v", member(item, "id"))
	}
	return ids
}

// applyChange changes the input as the line says and gives the outcome that must come.
func applyChange(t *testing.T, input map[string]any, line string) (want string) {
	t.Helper()
	field, rest, _ := strings.Cut(line, " ")
	removed, isRemoval := strings.CutPrefix(field, "-")
	if isRemoval {
		delete(input, removed)
		return strings.TrimSpace(rest)
	}
	dec := json.NewDecoder(strings.NewReader(rest))
	dec.UseNumber()
	var value any
	if err := dec.Decode(&value); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	at, parents := input, strings.Split(field, ".")
	for _, parent := range parents[:len(parents)-1] {
		inner, ok := at[parent].(map[string]any)
		if !ok {
			inner = map[string]any{}
			at[parent] = inner
		}
		at = inner
	}
	at[parents[len(parents)-1]] = value
	return strings.TrimSpace(rest[dec.InputOffset():])
}

// grant makes a binding as the administrator of the fleet, and waits until it counts.
func (l *telling) grant(t *testing.T, st step) {
	t.Helper()
	object, effect := l.expand(t, st.object), "ALLOW"
	if st.verb == "deny" {
		effect = "DENY"
	}
	l.must(t, "root", "grantRole", map[string]any{"subject": l.subject(st.actor), "role": st.method, "object": object, "effect": effect})
	about := map[string]any{"tenantId": l.variables["tenant"]}
	if _, id, _ := strings.Cut(object, "/"); !strings.HasPrefix(object, "compute-tenant/") {
		about["objectId"] = id
	}
	harness.Await(t, "the binding to count", func() bool {
		held, _ := l.must(t, st.actor, "permissions", about).([]any)
		return slices.Contains(held, any("PROVIDERS_READ")) == (effect == "ALLOW")
	})
	l.skipAudit(t)
}

func (l *telling) skipAudit(t *testing.T) {
	t.Helper()
	if err := l.deployment.db.Pool.QueryRow(t.Context(), "SELECT coalesce(max(id), 0) FROM audit_log WHERE tenant_id = $1", l.variables["tenant"]).Scan(&l.audited); err != nil {
		t.Fatal(err)
	}
}

// audit compares what callers had written about the tenant since the last look. What agents and workers do has its own time.
func (l *telling) audit(t *testing.T, st step) {
	t.Helper()
	rows, err := l.deployment.db.Pool.Query(t.Context(), `SELECT id, actor, action, object, outcome, request_id FROM audit_log
		WHERE tenant_id = $1 AND id > $2 AND actor <> 'system' ORDER BY id`, l.variables["tenant"], l.audited)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []string
	for rows.Next() {
		var actor, action, object, result, requestID string
		if err := rows.Scan(&l.audited, &actor, &action, &object, &result, &requestID); err != nil {
			t.Fatal(err)
		}
		if requestID == "" {
			t.Errorf("the row of %s has no request id", action)
		}
		actor = strings.TrimPrefix(actor, "user:"+l.variables["tenant"]+"/")
		got = append(got, l.normalText(strings.Join([]string{actor, action, object, result}, " ")))
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	var want []string
	for line := range strings.Lines(l.expand(t, st.body)) {
		want = append(want, l.normalText(strings.TrimSpace(line)))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("audit rows (-want +got):\n%s", diff)
	}
}

var (
	idForm   = regexp.MustCompile(`\b(pacct|pool|boot|host|inst)_[0-9a-hjkmnp-tv-z]{26,52}\b`)
	timeForm = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$`)
	idName   = regexp.MustCompile(`^<[a-z]+ [0-9]+>$`)
)

func (l *telling) normalOutcome(out outcome) outcome {
	out.Message = l.normalText(out.Message)
	out.Data = l.normal(out.Data)
	if out.Details != nil {
		out.Details, _ = l.normal(out.Details).(map[string]any)
		delete(out.Details, "requestId")
	}
	return out
}

// normal takes out of a value what differs between two tellings of one story.
func (l *telling) normal(v any) any {
	switch v := v.(type) {
	case string:
		return l.normalText(v)
	case []any:
		return each(v, l.normal)
	case map[string]any:
		changed := make(map[string]any, len(v))
		for _, name := range slices.Sorted(maps.Keys(v)) { // identifiers are numbered as they are met
			changed[name] = l.normal(v[name])
		}
		return changed
	}
	return v
}

func (l *telling) normalText(s string) string {
	if timeForm.MatchString(s) {
		return "<time>"
	}
	s = idForm.ReplaceAllStringFunc(s, func(id string) string {
		if l.names[id] == "" {
			kind, _, _ := strings.Cut(id, "_")
			l.counts[kind]++
			l.names[id] = fmt.Sprintf("<%s %d>", kind, l.counts[kind])
		}
		return l.names[id]
	})
	for id, name := range l.names {
		s = strings.ReplaceAll(s, id, name)
	}
	return strings.ReplaceAll(s, l.variables["tenant"], "<tenant>")
}

// blank puts "<any>" into the value wherever the story has it.
func blank(got, want any) any {
	switch want := want.(type) {
	case string:
		if want == "<any>" {
			return want
		}
	case []any:
		if list, ok := got.([]any); ok && len(list) == len(want) {
			changed := make([]any, len(list))
			for i := range list {
				changed[i] = blank(list[i], want[i])
			}
			return changed
		}
	case map[string]any:
		if object, ok := got.(map[string]any); ok {
			changed := maps.Clone(object)
			for name, w := range want {
				if v, there := object[name]; there {
					changed[name] = blank(v, w)
				}
			}
			return changed
		}
	}
	return got
}

// wildcards replaces "<id>" in what is wanted by the identifier that came.
func wildcards(want, got any) any {
	switch want := want.(type) {
	case string:
		if s, ok := got.(string); ok && want == "<id>" && idName.MatchString(s) {
			return s
		}
	case []any:
		if list, ok := got.([]any); ok && len(list) == len(want) {
			changed := make([]any, len(list))
			for i := range list {
				changed[i] = wildcards(want[i], list[i])
			}
			return changed
		}
	case map[string]any:
		if object, ok := got.(map[string]any); ok {
			changed := maps.Clone(want)
			for name, w := range want {
				changed[name] = wildcards(w, object[name])
			}
			return changed
		}
	}
	return want
}

// paths lists where the issues of INVALID_INPUT are. GraphQL finds some of them in its variables; the path within the input is the same.
func paths(details map[string]any) []string {
	issues, _ := details["issues"].([]any)
	found := make([]string, 0, len(issues))
	for _, issue := range issues {
		path, _ := member(issue, "path").(string)
		if path == "" {
			path = "." // the config as a whole
		}
		found = append(found, strings.TrimPrefix(strings.TrimPrefix(path, "variables."), "input."))
	}
	return found
}

func asAny(list []string) []any {
	values := make([]any, len(list))
	for i, s := range list {
		values[i] = s
	}
	return values
}

func jsonValues(t *testing.T, text string) (values []any) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.UseNumber()
	for {
		var v any
		err := dec.Decode(&v)
		if errors.Is(err, io.EOF) {
			return values
		}
		if err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		values = append(values, v)
	}
}
