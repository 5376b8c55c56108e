package ironic_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"better/compute/provider"
)

const secret = "canary-51c0e7"

type object = map[string]any

// fake is an Ironic as far as the driver sees one. There is no description of its API that could hold it to anything: its nodes and
// allocations are the recorded ones with other values, and TestServer asks of the real server what is asked of it.
type fake struct {
	mu      sync.Mutex
	perPage int // at most
	// emptyLastPage and repeatedPage are odd ways to end a list.
	emptyLastPage, repeatedPage bool
	// failDeploys ends deployments with an error.
	failDeploys bool
	// lateStock has allocations find no node.
	lateStock   bool
	node        object // as recorded
	allocation  object // likewise
	nodes       []object
	allocations []object
	patched     map[string]any // of the last change to a node
	drives      []object       // of deployments
	nextID      int
}

const (
	class    = "metal.h100x8"
	existing = "00000000-0000-4000-8000-000000000001"
)

func newFake() *fake {
	f := &fake{perPage: 1000, patched: map[string]any{}}
	f.node = recorded("nodes_detail_available").Response.Body["nodes"].([]any)[0].(object)
	f.allocation = recorded("allocation_create_201").Response.Body
	f.add(class, "active")
	for range 4 {
		f.add(class, "available")
	}
	for i := range 5 {
		f.add(fmt.Sprintf("metal.small%d", i), "available")
	}
	return f
}

type recording struct {
	Request struct {
		Method, URL string
		Body        any
	}
	Response struct {
		Status int
		Body   object
	}
}

func recorded(name string) recording {
	text, err := os.ReadFile("testdata/recordings/" + name + ".json")
	if err != nil {
		panic(err)
	}
	var r recording
	_ = json.Unmarshal(text, &r) // a body that is empty is a text
	if r.Request.Method == "" {
		panic("recording " + name)
	}
	return r
}

func (f *fake) id() string {
	f.nextID++
	return fmt.Sprintf("00000000-0000-4000-8000-%012d", f.nextID)
}

func (f *fake) add(class, state string) object {
	n := maps.Clone(f.node)
	n["uuid"] = f.id()
	n["name"], n["resource_class"], n["provision_state"] = fmt.Sprintf("node-%d", f.nextID), class, state
	n["extra"] = object{"serial": fmt.Sprintf("SN%03d", f.nextID)}
	n["instance_info"] = object{}
	f.nodes = append(f.nodes, n)
	return n
}

func (f *fake) sold(operationID string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, a := range f.allocations {
		if a["name"] == operationID && a["state"] != "error" {
			n++
		}
	}
	return n
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	user, password, _ := r.BasicAuth()
	if user != "" && (user != "compute" || password != secret) {
		refuse(w, http.StatusUnauthorized, "Incorrect username or password")
		return
	}
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1/"), "/")
	switch r.Method + " " + path[0] {
	case "GET nodes":
		if path[len(path)-1] == "nodes" || path[1] == "detail" {
			f.list(w, r, "nodes", f.nodes)
			return
		}
		f.oneNode(w, path[1])
	case "PATCH nodes":
		f.patch(w, r, path[1])
	case "PUT nodes":
		f.provision(w, r, path[1])
	case "GET allocations":
		if len(path) == 1 {
			f.list(w, r, "allocations", f.allocations)
			return
		}
		f.oneAllocation(w, path[1])
	case "POST allocations":
		f.allocate(w, r)
	case "DELETE allocations":
		f.deallocate(w, path[1])
	default:
		refuse(w, http.StatusNotFound, "The resource could not be found.")
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refusal(message string) string {
	inner, _ := json.Marshal(object{"faultcode": "Client", "faultstring": message, "debuginfo": nil})
	text, _ := json.Marshal(object{"error_message": string(inner)})
	return string(text)
}

func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, json.RawMessage(refusal(message)))
}

// list answers with a page, and the link to the next as Ironic makes it: with what it takes for its own host.
func (f *fake) list(w http.ResponseWriter, r *http.Request, name string, items []object) {
	for _, item := range items {
		f.look(item)
	}
	query := r.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	limit = min(limit, f.perPage)
	from := 1 + slices.IndexFunc(items, func(item object) bool { return item["uuid"] == query.Get("marker") })
	shown := items[from:]
	body := object{}
	if len(shown) > limit || f.emptyLastPage && len(shown) > 0 {
		shown = shown[:min(limit, len(shown))]
		marker := shown[len(shown)-1]["uuid"].(string)
		if f.repeatedPage {
			marker = shown[0]["uuid"].(string)
		}
		body["next"] = "http://ironic.internal.test:6385" + r.URL.Path + "?limit=" + strconv.Itoa(limit) + "&marker=" + url.QueryEscape(marker)
	}
	body[name] = shown
	answer(w, http.StatusOK, body)
}

// look is what passes between two looks at a thing: whatever is under way ends.
func (f *fake) look(item object) {
	switch item["provision_state"] {
	case "deploying":
		item["provision_state"] = "wait call-back"
	case "wait call-back":
		item["provision_state"], item["last_error"] = "active", nil
		if f.failDeploys {
			item["provision_state"], item["last_error"] = "deploy failed", "Deploy step deploy.deploy failed: no space left"
		}
	case "unrescuing":
		item["provision_state"] = "active"
	case "deleting":
		item["provision_state"] = "cleaning"
		f.forget(item["allocation_uuid"])
	case "cleaning":
		item["provision_state"] = "available"
	}
	if item["state"] == "allocating" {
		f.match(item)
	}
}

// match finds an allocation its node.
func (f *fake) match(a object) {
	i := slices.IndexFunc(f.nodes, func(n object) bool {
		return n["resource_class"] == a["resource_class"] && n["provision_state"] == "available" && n["instance_uuid"] == nil
	})
	if i < 0 || f.lateStock {
		a["state"] = "error"
		a["last_error"] = fmt.Sprintf("Failed to process allocation %v: no available nodes match the resource class %v.", a["uuid"], a["resource_class"])
		return
	}
	f.nodes[i]["instance_uuid"], f.nodes[i]["allocation_uuid"] = a["uuid"], a["uuid"]
	a["state"], a["node_uuid"] = "active", f.nodes[i]["uuid"]
}

func (f *fake) forget(allocation any) {
	f.allocations = slices.DeleteFunc(f.allocations, func(a object) bool { return a["uuid"] == allocation })
	for _, n := range f.nodes {
		if n["allocation_uuid"] == allocation {
			n["instance_uuid"], n["allocation_uuid"], n["instance_info"] = nil, nil, object{}
		}
	}
}

func find(items []object, id string) object {
	for _, item := range items {
		if item["uuid"] == id || item["name"] == id {
			return item
		}
	}
	return nil
}

func (f *fake) oneNode(w http.ResponseWriter, id string) {
	n := find(f.nodes, id)
	if n == nil {
		refuse(w, http.StatusNotFound, "Node "+id+" could not be found.")
		return
	}
	f.look(n)
	answer(w, http.StatusOK, n)
}

func (f *fake) oneAllocation(w http.ResponseWriter, id string) {
	a := find(f.allocations, id)
	if a == nil {
		refuse(w, http.StatusNotFound, "Allocation "+id+" could not be found.")
		return
	}
	answer(w, http.StatusOK, maps.Clone(a))
	f.look(a)
}

func (f *fake) allocate(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name          string
		ResourceClass string `json:"resource_class"`
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	if find(f.allocations, in.Name) != nil {
		refuse(w, http.StatusConflict, "An allocation with name "+in.Name+" already exists.")
		return
	}
	a := maps.Clone(f.allocation)
	a["uuid"], a["name"], a["resource_class"] = f.id(), in.Name, in.ResourceClass
	f.allocations = append(f.allocations, a)
	answer(w, http.StatusCreated, a)
}

func (f *fake) deallocate(w http.ResponseWriter, id string) {
	a := find(f.allocations, id)
	if a == nil {
		refuse(w, http.StatusNotFound, "Allocation "+id+" could not be found.")
		return
	}
	f.forget(a["uuid"])
	w.WriteHeader(http.StatusNoContent)
}

func (f *fake) patch(w http.ResponseWriter, r *http.Request, id string) {
	var in []struct {
		Op, Path string
		Value    any
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	n := find(f.nodes, id)
	info := maps.Clone(n["instance_info"].(object))
	for _, change := range in {
		field, ok := strings.CutPrefix(change.Path, "/instance_info/")
		if change.Op != "add" || !ok {
			refuse(w, http.StatusBadRequest, "Cannot patch "+change.Path)
			return
		}
		info[field], f.patched[field] = change.Value, change.Value
	}
	n["instance_info"] = info
	answer(w, http.StatusOK, n)
}

// verbs are what Ironic takes in each state, and what it then does.
var verbs = map[string]map[string]string{
	"active": {"available": "deploying", "deploy failed": "deploying"}, "rebuild": {"active": "deploying", "deploy failed": "deploying"},
	"unrescue": {"rescue": "unrescuing"},
	"deleted":  {"active": "deleting", "deploy failed": "deleting", "wait call-back": "deleting", "rescue": "deleting", "error": "deleting"},
}

func (f *fake) provision(w http.ResponseWriter, r *http.Request, id string) {
	var in struct {
		Target      string
		ConfigDrive object `json:"configdrive"`
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	n := find(f.nodes, id)
	state := n["provision_state"].(string)
	next, ok := verbs[in.Target][state]
	if !ok {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("The requested action %q can not be performed on node %q while it is in state %q.", in.Target, id, state))
		return
	}
	if next == "deploying" {
		f.drives = append(f.drives, in.ConfigDrive)
	}
	n["provision_state"] = next
	w.WriteHeader(http.StatusAccepted)
}

// TestRecordings replays what Ironic answered.
func TestRecordings(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"allocation_active": "ready d51b2120-f750-43a7-8862-a04f8ecfc58b", "allocation_error_nostock": "failed", "allocation_gone_404": "none",
		"allocation_create_201": "pending", "allocation_duplicate_409": "unknown_outcome",
	} {
		if got := replayed(t, recorded(name)); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// replayed is what FindClaim, or Order, makes of a recorded answer.
func replayed(t *testing.T, r recording) string {
	t.Helper()
	list := recorded("nodes_detail_available").Response.Body
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, asked *http.Request) {
		switch {
		case strings.HasSuffix(r.Request.URL, asked.URL.Path) && asked.Method == r.Request.Method:
			answer(w, r.Response.Status, r.Response.Body)
		case asked.URL.Query().Get("marker") != "":
			answer(w, http.StatusOK, object{"nodes": []object{}})
		default:
			answer(w, http.StatusOK, list)
		}
	}))
	defer server.Close()
	c := rig.Open(server.URL, options{Config: open})
	defer func() { _ = c.Close() }()
	var claim *provider.Claim
	var err error
	if r.Request.Method == http.MethodPost {
		claim, err = c.(provider.Orderer).Order(t.Context(), provider.Order{OperationID: "claim-k9", OfferID: class + ":rack-7"})
	} else {
		claim, err = c.(provider.Orderer).FindClaim(t.Context(), r.Request.URL[strings.LastIndexByte(r.Request.URL, '/')+1:])
	}
	switch {
	case err != nil:
		return string(provider.ClassOf(err))
	case claim == nil:
		return "none"
	}
	return strings.TrimSpace(string(claim.State) + " " + claim.MachineID)
}
