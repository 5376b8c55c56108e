package latitude_test

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

const (
	secret  = "canary-1a717de"
	project = "proj_gXQvNedwV0zpb"
)

type object = map[string]any

// fake is a project at Latitude.sh. Its answers have the form of those that were recorded.
type fake struct {
	mu      sync.Mutex
	plans   []object
	perPage int // at most
	// repeatedPage is an odd way to end a list.
	repeatedPage bool
	// making is how many looks at a server it takes until it is on.
	making int
	// address is where all servers are.
	address string
	servers []object
	texts   []object
	looks   map[string]int
	nextID  int
}

func newFake() *fake {
	f := &fake{perPage: 100, address: "203.0.113.7", looks: map[string]int{}}
	for i := range 9 {
		f.plans = append(f.plans, plan(fmt.Sprintf("c%d-small-x86", i+1), i+1))
	}
	gpu := plan("g3-large-x86", 64)
	gpu["attributes"].(object)["specs"].(object)["gpu"] = object{"count": 8, "type": "NVIDIA H100", "vram_per_gpu": 80}
	windows := plan("old-x86", 2)
	windows["attributes"].(object)["features"] = []string{"ssh"}
	f.plans = append(f.plans, gpu, windows)
	f.create("existing", "c1-small-x86", "SAO")
	f.create("existing-gpu", "g3-large-x86", "DAL")
	return f
}

func plan(slug string, cores int) object {
	price := func(by float64) object { return object{"hour": 0.22 * by, "month": 153.0 * by, "year": 1349.0 * by} }
	region := func(name, level string, by float64, sites, stock []string) object {
		return object{
			"name": name, "deploys_instantly": []string{}, "locations": object{"available": sites, "in_stock": stock}, "stock_level": level,
			"pricing": object{"USD": price(by), "BRL": price(5 * by)},
		}
	}
	return object{"id": "plan_" + strings.ReplaceAll(slug, "-", ""), "type": "plans", "attributes": object{
		"slug": slug, "name": strings.ReplaceAll(slug, "-", "."), "features": []string{"ssh", "user_data"},
		"specs": object{
			"cpu": object{"type": "E-2134G", "clock": 3.5, "cores": cores, "count": 2}, "memory": object{"total": 32 * cores},
			"drives": []object{{"count": 1, "size": "500 GB", "type": "SSD"}, {"count": 2, "size": "3.8 TB", "type": "NVME"}},
			"nics":   []object{{"count": 1, "type": "1 Gbps"}}, "gpu": object{},
		},
		"regions": []object{
			region("Brazil", "high", 1, []string{"SAO2", "SAO"}, []string{"SAO2", "SAO"}),
			region("United States", "low", 0.5, []string{"DAL", "NYC"}, []string{"DAL"}),
		},
	}}
}

// create makes a server. The caller holds the lock, or nobody else has the fake yet.
func (f *fake) create(hostname, plan, site string) object {
	f.nextID++
	s := object{"id": fmt.Sprintf("sv_Z%d", f.nextID), "type": "servers", "attributes": object{
		"tags": []string{}, "hostname": hostname, "label": "21BS005889", "price": 0.18, "role": "Bare Metal", "primary_ipv4": f.address, "status": "on",
		"ipmi_status": "Normal", "created_at": time.Now().UTC().Format(time.RFC3339), "scheduled_deletion_at": nil, "locked": false, "rescue_allowed": true,
		"region":  object{"city": "São Paulo", "country": "Brazil", "site": object{"id": "loc_1", "name": site, "slug": site, "facility": "Latitude.sh SP1"}},
		"project": object{"id": project, "name": "Terraform test", "slug": "terraform-test"},
		"plan":    object{"id": "plan_1", "name": plan, "slug": plan, "billing": "hourly"},
		"specs":   object{"cpu": "Xeon E-2278G CPU @ 3.40GHz (8 cores)", "disk": "2 X 4 TB NVMe", "ram": "64 GB", "nic": "10 Gbit/s + 1 Gbit/s", "gpu": nil},
	}}
	f.servers = append(f.servers, s)
	return s
}

func attributes(o object) object { return o["attributes"].(object) }

func (f *fake) sold(operationID string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, s := range f.servers {
		if attributes(s)["hostname"] == operationID {
			n++
		}
	}
	return n
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/vnd.api+json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refusal(status int, code, detail string) string {
	text, _ := json.Marshal(object{"errors": []object{{"code": code, "status": strconv.Itoa(status), "title": "Error", "detail": detail, "meta": object{}}}})
	return string(text)
}

func refuse(w http.ResponseWriter, status int, code, detail string) {
	answer(w, status, json.RawMessage(refusal(status, code, detail)))
}

// ServeHTTP answers as Latitude.sh does.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+secret {
		refuse(w, http.StatusUnauthorized, "unauthorized", "Authentication required")
		return
	}
	kind, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/servers":
		f.order(w, r)
	case r.Method == http.MethodPost && r.URL.Path == "/user_data":
		var in struct{ Data object }
		_ = json.NewDecoder(r.Body).Decode(&in)
		f.nextID++
		in.Data["id"] = fmt.Sprintf("ud_Z%d", f.nextID)
		f.texts = append(f.texts, in.Data)
		answer(w, http.StatusCreated, object{"data": in.Data, "meta": object{}})
	case r.Method == http.MethodGet && key == "":
		f.list(w, r, map[string][]object{"servers": f.listed(r), "plans": f.plans, "user_data": f.texts}[kind])
	case r.Method == http.MethodGet && kind == "servers":
		i := slices.IndexFunc(f.servers, func(s object) bool { return s["id"] == key })
		if i < 0 {
			refuse(w, http.StatusNotFound, "not_found", "Specified Record Not Found")
			return
		}
		f.look(f.servers[i])
		answer(w, http.StatusOK, object{"data": f.servers[i], "meta": object{}})
	case r.Method == http.MethodDelete:
		from := map[string]*[]object{"servers": &f.servers, "user_data": &f.texts}[kind]
		i := slices.IndexFunc(*from, func(s object) bool { return s["id"] == key })
		if i < 0 {
			refuse(w, http.StatusNotFound, "not_found", "Specified Record Not Found")
			return
		}
		*from = slices.Delete(*from, i, i+1)
		w.WriteHeader(http.StatusNoContent)
	default:
		refuse(w, http.StatusNotFound, "not_found", "Specified Record Not Found")
	}
}

func (f *fake) list(w http.ResponseWriter, r *http.Request, items []object) {
	page, _ := strconv.Atoi(r.URL.Query().Get("page[number]"))
	per, _ := strconv.Atoi(r.URL.Query().Get("page[size]"))
	page, per = max(page, 1), min(max(per, 1), f.perPage)
	if f.repeatedPage {
		page = min(page, 2)
	}
	shown := items[min((page-1)*per, len(items)):min(page*per, len(items))]
	answer(w, http.StatusOK, object{"data": append([]object{}, shown...), "meta": object{}})
}

// listed filters as the query says, and is a look at each server.
func (f *fake) listed(r *http.Request) []object {
	q := r.URL.Query()
	shown := []object{}
	for _, s := range f.servers {
		a := attributes(s)
		if a["project"].(object)["id"] == q.Get("filter[project]") && strings.Contains(a["hostname"].(string), q.Get("filter[hostname]")) {
			f.look(s)
			shown = append(shown, s)
		}
	}
	return shown
}

func (f *fake) look(s object) {
	id := s["id"].(string)
	if f.looks[id]++; attributes(s)["status"] == "starting_deploy" && f.looks[id] > f.making {
		attributes(s)["status"] = "on"
	}
}

func (f *fake) order(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Data struct {
			Attributes struct {
				Project, Plan, Site, Hostname string
				System                        string `json:"operating_system"`
				UserData                      string `json:"user_data"`
			}
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	a := in.Data.Attributes
	i := slices.IndexFunc(f.plans, func(p object) bool { return attributes(p)["slug"] == a.Plan })
	if i < 0 || a.Project != project || a.System == "" || !slices.ContainsFunc(f.texts, func(t object) bool { return t["id"] == a.UserData }) {
		refuse(w, http.StatusUnprocessableEntity, "VALIDATION_ERROR", "is invalid")
		return
	}
	for _, region := range attributes(f.plans[i])["regions"].([]object) {
		if slices.Contains(region["locations"].(object)["in_stock"].([]string), a.Site) {
			s := f.create(a.Hostname, a.Plan, a.Site)
			attributes(s)["status"] = "starting_deploy"
			answer(w, http.StatusCreated, object{"data": s, "meta": object{}})
			return
		}
	}
	refuse(w, http.StatusUnprocessableEntity, "SERVERS_OUT_OF_STOCK", "No stock availability")
}
