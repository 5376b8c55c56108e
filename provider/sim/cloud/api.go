package cloud

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const (
	bodyLimit = 4 << 20
	pageLimit = 50
)

// AdminHeader must be on every request to /v1/_faults and /v1/_ledger, with any value, so that no web page can send one.
const AdminHeader = "X-Cloud-Admin"

// The ways of ordering. Each has the API under a path of its own, "/name" for one; that of ByToken is at the root.
const (
	ByToken = "token" // a client token sells once, names are unique
	ByName  = "name"  // names are unique
	ByLabel = "label" // any number of machines may have the same name and labels; lists lag
	ByNone  = "none"  // an order has a name, lists show it late and look for nothing
)

// Handler serves the API, once for each way of ordering. A project is the same in all of them.
func (c *Cloud) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, way := range []string{ByName, ByLabel, ByNone} {
		mux.Handle("/"+way+"/v1/", http.StripPrefix("/"+way, c.api(way)))
	}
	mux.Handle("/", c.api(ByToken))
	return mux
}

func (c *Cloud) api(way string) http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h handler) { mux.HandleFunc(pattern, c.serve(way, h)) }
	handle("GET /v1/offers", c.listOffers)
	handle("GET /v1/machines", c.listMachines)
	handle("POST /v1/machines", c.createMachine)
	handle("GET /v1/machines/{id}", c.getMachine)
	handle("DELETE /v1/machines/{id}", c.releaseMachine)
	handle("GET /v1/machines/{id}/console", c.getConsole)
	handle("POST /v1/machines/{id}/install", c.installMachine)
	handle("DELETE /v1/machines/{id}/install", c.uninstallMachine)
	handle("GET /v1/machines/{id}/install/{installId}", c.getInstall)
	mux.HandleFunc("POST /v1/_faults", c.admin(c.addFaults))
	mux.HandleFunc("DELETE /v1/_faults", c.admin(c.clearFaults))
	mux.HandleFunc("GET /v1/_ledger", c.admin(c.getLedger))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		call := newCall(r)
		call.fail(w, notFound("path"))
	})
	return mux
}

// call is one request on its way through the API.
type call struct {
	r         *http.Request
	requestID string
	way       string // of ordering
	project   string // hash of the API token
	body      []byte
	fault     *Fault // nil: none
}

func newCall(r *http.Request) *call {
	return &call{r: r, requestID: strings.ToLower(rand.Text())}
}

// handler gives the status and the JSON of the answer; a nil answer has no body.
type handler func(*call) (int, any, error)

// serve authenticates, applies the fault script, and writes the handler's answer.
func (c *Cloud) serve(way string, h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		call := newCall(r)
		call.way = way
		if c.life.Err() != nil {
			call.fail(w, refusals[Fault503])
			return
		}
		var err error
		if call.project, err = authenticate(r); err == nil {
			call.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit))
		}
		if err != nil {
			call.fail(w, err)
			return
		}
		if err := c.spoiled(call); err != nil {
			c.fail(w, call, err)
			return
		}
		if c.before(w, call) {
			return
		}
		status, answer, err := h(call)
		if call.fault.kind() == FaultDuplicate {
			status, answer, err = h(call)
		}
		if err != nil {
			c.fail(w, call, err)
			return
		}
		body, err := encode(answer)
		if err != nil {
			c.fail(w, call, err)
			return
		}
		c.after(w, call, status, body)
	}
}

// spoiled finds the fault for the call and notes it in the ledger.
func (c *Cloud) spoiled(call *call) error {
	call.fault = c.faults.take(call.r.Method, call.r.URL.Path, call.project)
	if call.fault == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record(Entry{
		Kind: EntryFault, RequestID: call.requestID, Project: call.project, Fault: call.fault.Kind,
		Method: call.r.Method, Path: call.r.URL.Path,
	})
}

func encode(answer any) ([]byte, error) {
	if answer == nil {
		return nil, nil
	}
	return json.Marshal(answer)
}

func authenticate(r *http.Request) (string, error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || token == "" || token == "invalid" {
		return "", refusals[FaultUnauthorized]
	}
	return hashToken(token), nil
}

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func (call *call) decode(into any) error {
	decoder := json.NewDecoder(bytes.NewReader(call.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return invalid("the body is not the JSON that this call takes: %v", err)
	}
	if decoder.More() {
		return invalid("the body goes on after its JSON")
	}
	return nil
}

func (call *call) writeHead(w http.ResponseWriter, status, length int) {
	h := w.Header()
	h.Set("X-Request-Id", call.requestID)
	if status != http.StatusNoContent {
		if h.Get("Content-Type") == "" {
			h.Set("Content-Type", "application/json")
		}
		h.Set("Content-Length", strconv.Itoa(length))
	}
	w.WriteHeader(status)
}

func (call *call) write(w http.ResponseWriter, status int, body []byte) {
	call.writeHead(w, status, len(body))
	_, _ = w.Write(body)
}

// apiError is an answer that tells the caller what is wrong.
type apiError struct {
	status        int
	code, message string
}

func (e *apiError) Error() string { return e.code + ": " + e.message }

func (e *apiError) body(requestID string) []byte {
	body, _ := json.Marshal(map[string]any{
		"error": map[string]string{"code": e.code, "message": e.message}, "requestId": requestID,
	})
	return body
}

func refusal(status int, code, message string) *apiError { return &apiError{status, code, message} }

func invalid(format string, args ...any) *apiError {
	return refusal(http.StatusUnprocessableEntity, "invalid_input", fmt.Sprintf(format, args...))
}

func notFound(noun string) *apiError {
	return refusal(http.StatusNotFound, "not_found", "there is no such "+noun)
}

// fail answers with an error; one that is not the caller's is logged and not told.
func (c *Cloud) fail(w http.ResponseWriter, call *call, err error) {
	if _, ok := errors.AsType[*apiError](err); !ok {
		c.options.Log.Error("the simulated cloud failed", "path", call.r.URL.Path, "requestId", call.requestID, "error", err)
	}
	call.fail(w, err)
}

func (call *call) fail(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*apiError](err)
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		e, ok = refusal(http.StatusRequestEntityTooLarge, "too_large", "the body is too large"), true
	}
	if !ok {
		e = refusals[Fault500Before]
	}
	call.write(w, e.status, e.body(call.requestID))
}

// page cuts one page out of a list and names the next one.
func page[T any](c *Cloud, call *call, name string, items []T) (int, any, error) {
	number, err := positive(call.r.FormValue("page"), 1)
	if err != nil {
		return 0, nil, err
	}
	size, err := positive(call.r.FormValue("per_page"), c.options.PageSize)
	if err != nil {
		return 0, nil, err
	}
	size = min(size, pageLimit)
	from := min((number-1)*size, len(items))
	to := min(from+size, len(items))
	answer := map[string]any{name: items[from:to], "page": number, "nextPage": nil, "total": len(items)}
	if to < len(items) {
		answer["nextPage"] = number + 1
	}
	return http.StatusOK, answer, nil
}

func positive(text string, fallback int) (int, error) {
	if text == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1<<20 {
		return 0, invalid("%q is not a page number or size", text)
	}
	return n, nil
}

func (c *Cloud) listOffers(call *call) (int, any, error) {
	return page(c, call, "offers", c.options.Catalogue)
}

// listMachines filters by name and by labels ("key" or "key=value", any number of them), where lists look for anything.
func (c *Cloud) listMachines(call *call) (int, any, error) {
	query := call.r.URL.Query()
	if call.way == ByNone {
		query = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.options.Now()
	items := []Machine{}
	for _, m := range c.projectOf(call.project).machines {
		if m.released || now.Before(m.order.ListedAt) || query.Has("name") && m.Name != query.Get("name") {
			continue
		}
		if !slices.ContainsFunc(query["label"], func(l string) bool { return !m.hasLabel(l) }) {
			items = append(items, c.view(m))
		}
	}
	return page(c, call, "machines", items)
}

func (m *machine) hasLabel(selector string) bool {
	key, want, valued := strings.Cut(selector, "=")
	value, ok := m.Labels[key]
	return ok && (!valued || value == want)
}

// admin serves those who run the cloud: from this computer, and no web page.
func (c *Cloud) admin(h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		call := newCall(r)
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() || r.Header.Get(AdminHeader) == "" {
			call.fail(w, refusal(http.StatusForbidden, "forbidden", "only from this computer, with the header "+AdminHeader))
			return
		}
		var err error
		if call.body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, bodyLimit)); err != nil {
			call.fail(w, err)
			return
		}
		status, answer, err := h(call)
		if err != nil {
			c.fail(w, call, err)
			return
		}
		body, err := encode(answer)
		if err != nil {
			c.fail(w, call, err)
			return
		}
		call.write(w, status, body)
	}
}

func (c *Cloud) addFaults(call *call) (int, any, error) {
	var rules []*Fault
	if err := call.decode(&rules); err != nil {
		return 0, nil, err
	}
	if slices.Contains(rules, nil) {
		return 0, nil, invalid("a rule is null")
	}
	return http.StatusNoContent, nil, c.faults.add(rules)
}

func (c *Cloud) clearFaults(*call) (int, any, error) {
	c.faults.clear()
	return http.StatusNoContent, nil, nil
}

func (c *Cloud) getLedger(*call) (int, any, error) {
	entries, err := ReadLedger(c.options.Dir)
	return http.StatusOK, map[string]any{"entries": entries}, err
}
