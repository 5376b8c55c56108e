package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/99designs/gqlgen/graphql"
	"github.com/google/go-cmp/cmp"
)

// many selects a field under so many names.
func many(aliases int, field string) string {
	var b strings.Builder
	for i := range aliases {
		fmt.Fprintf(&b, " a%d: %s", i, field)
	}
	return b.String()
}

// What is asked for many times over ends at the bound.
func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	const bytes = 500
	e := newTestEngine(t, Config{Limits: Limits{AnswerBytes: bytes}})
	page := func(aliases int) string {
		return `{ node(id: "pool_p") { ... on Pool { ` + many(aliases, "id") + ` } } }`
	}
	run := func(document string) *graphql.Response {
		op, refused := e.prepare(t.Context(), &graphql.RawParams{Query: document})
		if refused != nil {
			t.Fatal(refused.Errors)
		}
		var resp *graphql.Response
		if err := e.run(t.Context(), op, func(r *graphql.Response) error { resp = r; return nil }); err != nil {
			t.Fatal(err)
		}
		return resp
	}
	if resp := run(page(2)); len(resp.Errors) > 0 || len(resp.Data) == 0 {
		t.Errorf("a small answer: %v", resp.Errors)
	}
	for _, document := range []string{page(100), "{ viewer {" + many(100, "subject") + " } }"} {
		resp := run(document)
		if len(resp.Errors) != 1 || resp.Data != nil || resp.Extensions["cost"] == nil {
			t.Fatalf("%d errors, %d bytes", len(resp.Errors), len(resp.Data))
		}
		want := map[string]any{"rule": "answer_bytes", "limit": bytes}
		if diff := cmp.Diff(want, resp.Errors[0].Extensions["details"]); diff != "" || resp.Errors[0].Extensions["code"] != "INVALID_INPUT" {
			t.Errorf("%v", resp.Errors)
		}
	}
}

// An event that is too large ends its stream, since it would be so again.
func TestEventsAreBounded(t *testing.T) {
	t.Parallel()
	w := setup(t, func(c *Config) { c.Limits.AnswerBytes = 300 })
	lines := w.events(t, `subscription { bootstrapStatusChanged(tenantId: "t", after: "5") { `+many(90, "cursor")+` } }`, tokenAlice)
	expectLines(t, lines, "event: next", `data: {"errors":[{"message":"The answer would have more than 300 bytes`, "event: complete", "data:")
	lines = w.events(t, `subscription { bootstrapStatusChanged(tenantId: "t", after: "5") { cursor } }`, tokenAlice)
	for range 5 { // together they may be longer
		expectLines(t, lines, "event: next", `data: {"data"`)
	}
}

// Whatever characters an answer has, it is as long as it was counted.
func TestAnswersAreAsLongAsTheyAreCounted(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"a", "<>&", "\u2028\u2029", `"`, `\`, "\t\r\n", "\x01\x1f", "\u00e4\U0001F600", "\x7f"} {
		text = strings.Repeat(text, 1000)
		var data strings.Builder
		graphql.MarshalString(text).MarshalGQL(&data)
		resp := &graphql.Response{Data: json.RawMessage(data.String())}
		want := len(`{"data":""}`) + quotedLength(text)
		if got := len(encodeResponse(resp)); got != want {
			t.Errorf("%.9q: %d bytes, counted %d", text, got, want)
		}
		message, err := encode(message{Payload: encodeResponse(resp)})
		if got := len(message) - len(`{"type":"","payload":}`); err != nil || got != want {
			t.Errorf("%.9q: %d bytes in a message, counted %d: %v", text, got, want, err)
		}
	}
}
