package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/99designs/gqlgen/graphql"
	"github.com/vektah/gqlparser/v2/ast"
	"github.com/vektah/gqlparser/v2/gqlerror"

	"better/compute/internal/problem"
	"better/compute/internal/strictjson"
)

// The media types of the GraphQL-over-HTTP specification, and of Server-Sent Events.
const (
	typeJSON     = "application/json"
	typeGraphQL  = "application/graphql-response+json"
	typeEvents   = "text/event-stream"
	utf8Suffix   = "; charset=utf-8"
	allowMethods = "GET, POST"
)

// serveGraphQL answers /graphql: a WebSocket upgrade, an event stream, or one response.
func (s *Server) serveGraphQL(w http.ResponseWriter, r *http.Request) {
	if isUpgrade(r) {
		s.serveSocket(w, r)
		return
	}
	answer := negotiate(r.Header.Values("Accept"))
	if answer == "" {
		s.refuseUnread(w, r, http.StatusNotAcceptable, problem.New(problem.InvalidInput, "This endpoint answers with %s, %s or %s.", typeGraphQL, typeJSON, typeEvents))
		return
	}
	params, status, err := readParams(r)
	if err != nil {
		if status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", allowMethods)
		}
		s.refuseUnread(w, r, status, err)
		return
	}
	if answer == typeEvents {
		s.serveEvents(w, r, params)
		return
	}
	s.serveOnce(w, r, params, answer)
}

// refuseUnread refuses a request of which no document is read. It takes a point all the same.
func (s *Server) refuseUnread(w http.ResponseWriter, r *http.Request, status int, err error) {
	if short := s.quota.charge(r.Context(), 1, nil); short != nil {
		s.metrics.limit(ruleOf(short))
		s.refuse(w, r, short)
		return
	}
	s.fail(w, r, status, err)
}

// serveOnce executes a query or mutation.
func (s *Server) serveOnce(w http.ResponseWriter, r *http.Request, params *graphql.RawParams, answer string) {
	op, refusal := s.engine.prepare(r.Context(), params)
	if refusal == nil && op.kind() == ast.Subscription {
		refusal = s.engine.refuse(r.Context(), problem.New(problem.InvalidInput, "A subscription needs a stream: use WebSocket, or POST with Accept: %s.", typeEvents))
	}
	if refusal != nil {
		writeResponse(w, refusalStatus(w, params, answer, refusal), answer, refusal)
		return
	}
	if op.kind() != ast.Query && r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		s.fail(w, r, http.StatusMethodNotAllowed, problem.New(problem.InvalidInput, "A mutation must be sent by POST."))
		return
	}
	_ = s.engine.run(r.Context(), op, func(resp *graphql.Response) error {
		status := http.StatusOK
		if resp.Data == nil { // it was not executed after all
			status = refusalStatus(w, params, answer, resp)
		}
		writeResponse(w, status, answer, resp)
		return nil
	})
}

// refusalStatus is the status of what was not executed. As the specification has it, that is 400 in its own media type and 200
// in application/json, which a proxy could have sent as well; a caller over its rate gets 429 in both.
func refusalStatus(w http.ResponseWriter, params *graphql.RawParams, answer string, refusal *graphql.Response) int {
	if firstCode(refusal) == string(problem.RateLimited) {
		if details, ok := firstDetails(refusal); ok {
			w.Header().Set("Retry-After", fmt.Sprint(details["retryAfterSeconds"]))
		}
		return http.StatusTooManyRequests
	}
	if answer == typeJSON && params.Query != "" {
		return http.StatusOK
	}
	return http.StatusBadRequest
}

// readParams reads the request from the body of a POST or the query string of a GET. The status goes with the error.
func readParams(r *http.Request) (*graphql.RawParams, int, error) {
	switch r.Method {
	case http.MethodGet:
		params, err := queryParams(r.URL.RawQuery)
		return params, http.StatusBadRequest, err
	case http.MethodPost:
	default:
		return nil, http.StatusMethodNotAllowed, problem.New(problem.InvalidInput, "Use POST, or GET for a query.")
	}
	media, options, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != typeJSON || !isUTF8(options["charset"]) {
		return nil, http.StatusUnsupportedMediaType, problem.New(problem.InvalidInput, "The request body must be %s in UTF-8.", typeJSON)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, http.StatusBadRequest, problem.New(problem.InvalidInput, "The request body could not be read.").Because(err)
	}
	params, err := parseParams(body)
	return params, http.StatusBadRequest, err
}

func queryParams(raw string) (*graphql.RawParams, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, problem.New(problem.InvalidInput, "The query string cannot be read.")
	}
	object := map[string]any{"query": values.Get("query")}
	if name := values.Get("operationName"); name != "" {
		object["operationName"] = name
	}
	for _, name := range []string{"variables", "extensions"} {
		text := values.Get(name)
		if text == "" {
			continue
		}
		if object[name], err = strictjson.Parse([]byte(text)); err != nil {
			return nil, problem.New(problem.InvalidInput, "The parameter %s cannot be read: %s.", name, err)
		}
	}
	return paramsFrom(object)
}

func isUTF8(charset string) bool {
	return charset == "" || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "utf8")
}

// negotiate picks the media type of the answer: the first acceptable one, application/json when the client does not
// mind. Empty when there is none.
func negotiate(accept []string) string {
	header := strings.Join(accept, ",")
	if strings.TrimSpace(header) == "" {
		return typeJSON
	}
	for part := range strings.SplitSeq(header, ",") {
		media, options, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil || options["q"] == "0" || !isUTF8(options["charset"]) {
			continue
		}
		switch media {
		case typeJSON, "*/*", "application/*":
			return typeJSON
		case typeGraphQL, typeEvents:
			return media
		}
	}
	return ""
}

// body is a response on the wire. Data is there, null included, exactly when the operation was executed.
type body struct {
	Errors     gqlerror.List   `json:"errors,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
	Extensions map[string]any  `json:"extensions,omitempty"`
}

// encode is json.Marshal without its care for HTML, which makes one character six: every answer says that it is none.
func encode(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

func encodeResponse(resp *graphql.Response) json.RawMessage {
	out, err := encode(body{Errors: resp.Errors, Data: resp.Data, Extensions: resp.Extensions})
	if err != nil { // data that a marshaler of a scalar wrote wrong
		panic(fmt.Errorf("encoding a response: %w", err))
	}
	return out
}

func writeResponse(w http.ResponseWriter, status int, media string, resp *graphql.Response) {
	out := encodeResponse(resp)
	w.Header().Set("Content-Type", media+utf8Suffix)
	w.WriteHeader(status)
	_, _ = w.Write(out) // the client is gone
}
