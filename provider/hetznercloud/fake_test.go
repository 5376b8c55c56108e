package hetznercloud_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const secret = "canary-5b7fd2"

type object = map[string]any

// fake is a project at Hetzner Cloud. Its server types and what it knows of a server are as Hetzner's API description has them.
type fake struct {
	mu      sync.Mutex
	types   []object
	perPage int // at most
	// emptyLastPage and repeatedPage are odd ways to end a list.
	emptyLastPage, repeatedPage bool
	// initializing is how many looks at a server it takes until it is made.
	initializing int
	// failRebuilds ends rebuilds with an error.
	failRebuilds bool
	// boot is told the user data of a server that was rebuilt; nil: nobody is.
	boot     func(server int64, userData string)
	limit    int // of servers; 0 is none
	servers  []object
	looks    map[int64]int
	userData map[int64]string
	actions  map[int64]object
	nextID   int64
	deleted  map[string]bool // names
}

func newFake() *fake {
	f := &fake{
		perPage: 50, looks: map[int64]int{}, userData: map[int64]string{}, actions: map[int64]object{}, nextID: 4711, deleted: map[string]bool{},
	}
	for i := range 9 {
		name := fmt.Sprintf("cpx%d2", i+1)
		f.types = append(f.types, serverType(int64(i+1), name, "x86", i+1))
	}
	f.types = append(f.types, serverType(45, "cax11", "arm", 2))
	f.create("existing", "cpx12", "fsn1", nil)
	return f
}

func serverType(id int64, name, arch string, cores int) object {
	price := func(location string) object {
		amount := func(text string) object { return object{"net": text, "gross": text} }
		return object{
			"location": location, "included_traffic": 1 << 40, "price_per_tb_traffic": amount("1.0000000000"),
			"price_hourly": amount(fmt.Sprintf("0.00%d0000000000", cores)), "price_monthly": amount(fmt.Sprintf("%d.4900000000000", cores)),
		}
	}
	at := func(id int, location string, available bool) object {
		return object{"id": id, "name": location, "available": available, "recommended": available, "deprecation": nil}
	}
	return object{
		"id": id, "name": name, "description": strings.ToUpper(name), "category": "Shared vCPU", "cores": cores, "memory": float64(cores) * 2, "disk": cores * 40,
		"architecture": arch, "cpu_type": "shared", "storage_type": "local", "deprecated": false, "deprecation": nil,
		"prices": []object{price("fsn1"), price("hel1")}, "locations": []object{at(1, "fsn1", true), at(3, "hel1", cores%2 == 0)},
	}
}

func location(name string) object {
	return object{
		"id": 1, "name": name, "city": "Falkenstein", "country": "DE", "description": "A DC park", "latitude": 50.4, "longitude": 12.3, "network_zone": "eu-central",
	}
}

func image(name string) object {
	return object{
		"id": 1, "name": name, "type": "system", "status": "available", "description": name, "architecture": "x86", "os_flavor": "debian", "os_version": "13",
		"disk_size": 10, "image_size": nil, "bound_to": nil, "created": now(), "created_from": nil, "deleted": nil, "deprecated": nil,
		"labels": object{}, "protection": object{"delete": false},
	}
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }

func (f *fake) id() int64 {
	f.nextID++
	return f.nextID
}

func (f *fake) serverType(name string) object {
	for _, t := range f.types {
		if t["name"] == name {
			return t
		}
	}
	return nil
}

// create makes a server. The caller holds the lock, or nobody else has the fake yet.
func (f *fake) create(name, typeName, at string, labels object) object {
	if labels == nil {
		labels = object{}
	}
	id := f.id()
	s := object{
		"id": id, "name": name, "status": "running", "created": now(), "backup_window": nil, "locked": false, "rescue_enabled": false, "iso": nil,
		"datacenter": object{"id": 1, "name": at + "-dc14", "description": "dc", "location": location(at), "server_types": object{"available": []int{}, "available_for_migration": []int{}, "supported": []int{}}},
		"location":   location(at), "server_type": f.serverType(typeName), "image": image("debian-13"), "labels": labels, "volumes": []int{}, "load_balancers": []int{},
		"included_traffic": 0, "ingoing_traffic": 0, "outgoing_traffic": 0, "primary_disk_size": 40, "private_net": []object{}, "placement_group": nil,
		"protection": object{"delete": false, "rebuild": false},
		"public_net": object{
			"firewalls": []object{}, "floating_ips": []int{},
			"ipv4": object{"id": id, "ip": fmt.Sprintf("203.0.113.%d", id%250), "blocked": false, "dns_ptr": "static.example.net"},
			"ipv6": object{"id": id, "ip": fmt.Sprintf("2001:db8:%x::/64", id), "blocked": false, "dns_ptr": []object{}},
		},
	}
	f.servers = append(f.servers, s)
	return s
}

func (f *fake) action(command string, server int64, status string) object {
	a := object{
		"id": f.id(), "command": command, "status": status, "progress": 100, "started": now(), "finished": now(), "error": nil,
		"resources": []object{{"id": server, "type": "server"}},
	}
	if status == "error" {
		a["error"] = object{"code": "action_failed", "message": "Action failed"}
	}
	f.actions[a["id"].(int64)] = a
	return a
}

func (f *fake) sold(operationID string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, s := range f.servers {
		if s["labels"].(object)["bcd-operation"] == operationID {
			n++
		}
	}
	return n
}

func (f *fake) find(id string) object {
	for _, s := range f.servers {
		if fmt.Sprint(s["id"]) == id {
			return s
		}
	}
	return nil
}

// ServeHTTP is the API below /v1.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+secret {
		refuse(w, http.StatusUnauthorized, "unauthorized")
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/server_types", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, "server_types", f.types) })
	mux.HandleFunc("GET /v1/pricing", f.pricing)
	mux.HandleFunc("GET /v1/servers", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, "servers", f.listed(r)) })
	mux.HandleFunc("POST /v1/servers", f.order)
	mux.HandleFunc("GET /v1/servers/{id}", f.one)
	mux.HandleFunc("DELETE /v1/servers/{id}", f.delete)
	mux.HandleFunc("POST /v1/servers/{id}/actions/rebuild", f.rebuild)
	mux.HandleFunc("GET /v1/actions/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, _ := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if a := f.actions[id]; a != nil {
			answer(w, http.StatusOK, object{"action": a})
			return
		}
		refuse(w, http.StatusNotFound, "not_found")
	})
	mux.ServeHTTP(w, r)
}

func answer(w http.ResponseWriter, status int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Correlation-Id", "c0ffee")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, code string) {
	answer(w, status, object{"error": object{"code": code, "message": "This is why.", "details": nil}})
}

func refusal(code string) string {
	return fmt.Sprintf(`{"error":{"code":%q,"message":"This is why.","details":null}}`, code)
}

func (f *fake) list(w http.ResponseWriter, r *http.Request, name string, items []object) {
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	per, _ := strconv.Atoi(r.URL.Query().Get("per_page"))
	page, per = max(page, 1), min(max(per, 1), f.perPage)
	last := max((len(items)+per-1)/per, 1)
	if f.emptyLastPage {
		last++
	}
	shown := items[min((page-1)*per, len(items)):min(page*per, len(items))]
	var next, previous any
	if page < last {
		next = page + 1
	}
	if page > 1 {
		previous = page - 1
		if f.repeatedPage {
			next = page - 1
		}
	}
	answer(w, http.StatusOK, object{name: append([]object{}, shown...), "meta": object{"pagination": object{
		"page": page, "per_page": per, "previous_page": previous, "next_page": next, "last_page": last, "total_entries": len(items),
	}}})
}

// listed filters as the query says, and is a look at each server.
func (f *fake) listed(r *http.Request) []object {
	name, selector := r.URL.Query().Get("name"), r.URL.Query().Get("label_selector")
	key, value, _ := strings.Cut(selector, "==")
	shown := []object{}
	for _, s := range f.servers {
		if name != "" && s["name"] != name || selector != "" && s["labels"].(object)[key] != value {
			continue
		}
		f.look(s)
		shown = append(shown, s)
	}
	return shown
}

func (f *fake) look(s object) {
	id := s["id"].(int64)
	if s["status"] == "initializing" {
		if f.looks[id]++; f.looks[id] > f.initializing {
			s["status"] = "running"
		}
	}
}

func (f *fake) pricing(w http.ResponseWriter, _ *http.Request) {
	amount := object{"net": "1.0000", "gross": "1.1900"}
	answer(w, http.StatusOK, object{"pricing": object{
		"currency": "EUR", "vat_rate": "19.00", "floating_ip": object{"price_monthly": amount}, "floating_ips": []object{}, "image": object{"price_per_gb_month": amount},
		"load_balancer_types": []object{}, "primary_ips": []object{}, "server_backup": object{"percentage": "20.00"}, "server_types": []object{},
		"traffic": object{"price_per_tb": amount}, "volume": object{"price_per_gb_month": amount},
	}})
}

func (f *fake) order(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name, Location, Image string
		ServerType            string `json:"server_type"`
		Labels                object
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	invalid := func(field string) {
		answer(w, http.StatusUnprocessableEntity, object{"error": object{
			"code": "invalid_input", "message": "invalid input in field '" + field + "'",
			"details": object{"fields": []object{{"name": field, "messages": []string{"is not valid"}}}},
		}})
	}
	t := f.serverType(in.ServerType)
	switch {
	case slices.ContainsFunc(f.servers, func(s object) bool { return s["name"] == in.Name }):
		refuse(w, http.StatusConflict, "uniqueness_error")
		return
	case t == nil:
		invalid("server_type")
		return
	case in.Image != "debian-13":
		invalid("image")
		return
	case f.limit > 0 && len(f.servers) >= f.limit:
		refuse(w, http.StatusForbidden, "resource_limit_exceeded")
		return
	}
	s := f.create(in.Name, in.ServerType, in.Location, in.Labels)
	s["status"] = "initializing"
	answer(w, http.StatusCreated, object{
		"server": s, "action": f.action("create_server", s["id"].(int64), "running"), "next_actions": []object{}, "root_password": "YItygq1v3GYjjMomLaKc",
	})
}

func (f *fake) one(w http.ResponseWriter, r *http.Request) {
	s := f.find(r.PathValue("id"))
	if s == nil {
		refuse(w, http.StatusNotFound, "not_found")
		return
	}
	f.look(s)
	answer(w, http.StatusOK, object{"server": s})
}

func (f *fake) delete(w http.ResponseWriter, r *http.Request) {
	s := f.find(r.PathValue("id"))
	if s == nil {
		refuse(w, http.StatusNotFound, "not_found")
		return
	}
	f.servers = slices.DeleteFunc(f.servers, func(other object) bool { return other["id"] == s["id"] })
	answer(w, http.StatusOK, object{"action": f.action("delete_server", s["id"].(int64), "running")})
}

func (f *fake) rebuild(w http.ResponseWriter, r *http.Request) {
	s := f.find(r.PathValue("id"))
	if s == nil {
		refuse(w, http.StatusNotFound, "not_found")
		return
	}
	var in struct {
		UserData string `json:"user_data"`
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	id := s["id"].(int64)
	f.userData[id] = in.UserData
	status := "success"
	if f.failRebuilds {
		status = "error"
	} else if f.boot != nil {
		f.boot(id, in.UserData)
	}
	answer(w, http.StatusCreated, object{"action": f.action("rebuild_server", id, status), "root_password": nil})
}
