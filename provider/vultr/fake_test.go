package vultr_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const secret = "canary-5e1f09"

type object = map[string]any

// fake is an account at Vultr.
type fake struct {
	mu           sync.Mutex
	plans, metal []object
	perPage      int // at most
	// emptyLastPage and repeatedPage are odd ways to end a list.
	emptyLastPage, repeatedPage bool
	// making is how many looks at a machine it takes until it is made.
	making int
	// limit is the number of machines that the account may have; 0 is none.
	limit int
	// soldOut are plans that are listed and cannot be had.
	soldOut []string
	// address is where all machines are.
	address  string
	machines []object // each with its place under "at", which no answer shows
	looks    map[string]int
	userData map[string]string
	made     int
}

func newFake() *fake {
	f := &fake{perPage: 500, address: "203.0.113.7", looks: map[string]int{}, userData: map[string]string{}}
	for i := range 9 {
		f.plans = append(f.plans, plan(fmt.Sprintf("vc2-%dc-%dgb", i+1, i+1), i+1))
	}
	for id, gpu := range map[string]object{
		"vcg-a100-24c-240g-160vram": {"gpu_type": "NVIDIA_A100", "gpu_vram_gb": 160},
		"vcg-a16-2c-8g-2vram":       {"gpu_type": "NVIDIA_A16", "gpu_vram_gb": 2},
	} {
		p := plan(id, 24)
		p["gpu_type"], p["gpu_vram_gb"] = gpu["gpu_type"], gpu["gpu_vram_gb"]
		f.plans = append(f.plans, p)
	}
	slices.SortFunc(f.plans, func(a, b object) int { return strings.Compare(a["id"].(string), b["id"].(string)) })
	for _, id := range []string{"vbm-4c-32gb", "vbm-112c-2048gb-8-h100-gpu"} {
		f.metal = append(f.metal, object{
			"id": id, "cpu_count": 4, "cpu_threads": 8, "cpu_model": "E3-1270v6", "ram": 32768, "disk": "240", "disk_count": 2, "bandwidth": 5120, "monthly_cost": 300,
			"type": "SSD", "locations": []string{"ewr"},
		})
	}
	f.create("instances", "existing", "vc2-1c-1gb", "ewr", nil)
	f.create("bare-metals", "existing", "vbm-4c-32gb", "ewr", nil)
	return f
}

func plan(id string, cpus int) object {
	return object{
		"id": id, "vcpu_count": cpus, "ram": cpus * 1024, "disk": cpus * 25, "disk_count": 1, "bandwidth": 1024, "monthly_cost": cpus * 5, "type": "vc2",
		"locations": []string{"ewr", "AMS"},
	}
}

func find(list []object, id string) object {
	for _, o := range list {
		if o["id"] == id {
			return o
		}
	}
	return nil
}

func number(n int) string { return fmt.Sprintf("cb676a46-66fd-4dfb-b839-%012d", n) }

// create makes a machine. The caller holds the lock, or nobody else has the fake yet.
func (f *fake) create(at, label, planID, region string, tags []string) object {
	f.made++
	m := object{
		"at": at, "id": number(f.made), "label": label, "tags": append([]string{}, tags...), "plan": planID, "region": region, "os": "Debian 12 x64", "os_id": 2136, "app_id": 0,
		"main_ip": f.address, "date_created": "2026-01-02T03:04:05+00:00", "status": "active", "netmask_v4": "255.255.254.0", "gateway_v4": "203.0.113.1", "features": []string{},
	}
	if at == "instances" {
		p := find(f.plans, planID)
		m["vcpu_count"], m["ram"], m["disk"] = p["vcpu_count"], p["ram"], p["disk"]
		m["power_status"], m["server_status"], m["internal_ip"] = "running", "ok", ""
	} else {
		m["ram"], m["disk"], m["cpu_count"], m["mac_address"] = "32768 MB", "2x 240GB SSD", 4, 2199756823533
	}
	f.machines = append(f.machines, m)
	return m
}

// shown is what answers tell of a machine.
func shown(m object) object {
	c := object{}
	for k, v := range m {
		if k != "at" {
			c[k] = v
		}
	}
	return c
}

func (f *fake) sold(operationID string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, m := range f.machines {
		if slices.Contains(m["tags"].([]string), operationID) {
			n++
		}
	}
	return n
}

// ServeHTTP is the API.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+secret {
		refuse(w, http.StatusUnauthorized, "Invalid API token.")
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/plans", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, "plans", f.plans) })
	mux.HandleFunc("GET /v2/plans-metal", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, "plans_metal", f.metal) })
	mux.HandleFunc("GET /v2/regions/{region}/availability", f.stock)
	for at, names := range map[string][2]string{"instances": {"instance", "instances"}, "bare-metals": {"bare_metal", "bare_metals"}} {
		mux.HandleFunc("GET /v2/"+at, func(w http.ResponseWriter, r *http.Request) { f.list(w, r, names[1], f.listed(r, at)) })
		mux.HandleFunc("POST /v2/"+at, func(w http.ResponseWriter, r *http.Request) { f.order(w, r, at, names[0]) })
		mux.HandleFunc("GET /v2/"+at+"/{id}", func(w http.ResponseWriter, r *http.Request) {
			if m := find(f.machines, r.PathValue("id")); m != nil && m["at"] == at {
				f.look(m)
				answer(w, http.StatusOK, object{names[0]: shown(m)})
				return
			}
			refuse(w, http.StatusNotFound, "Invalid machine.")
		})
		mux.HandleFunc("DELETE /v2/"+at+"/{id}", func(w http.ResponseWriter, r *http.Request) {
			m := find(f.machines, r.PathValue("id"))
			if m == nil || m["at"] != at {
				refuse(w, http.StatusNotFound, "Invalid machine.")
				return
			}
			f.machines = slices.DeleteFunc(f.machines, func(other object) bool { return other["id"] == m["id"] })
			w.WriteHeader(http.StatusNoContent)
		})
	}
	mux.ServeHTTP(w, r)
}

func answer(w http.ResponseWriter, status int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, object{"error": message, "status": status})
}

func refusal(status int, message string) string {
	return fmt.Sprintf(`{"error":%q,"status":%d}`, message, status)
}

// list makes the cursors of where to go on.
func (f *fake) list(w http.ResponseWriter, r *http.Request, name string, items []object) {
	from := 0
	if text, err := base64.StdEncoding.DecodeString(r.URL.Query().Get("cursor")); err == nil {
		from, _ = strconv.Atoi(string(text))
	}
	per, _ := strconv.Atoi(r.URL.Query().Get("per_page"))
	per = min(max(per, 1), f.perPage)
	from = min(from, len(items))
	to := min(from+per, len(items))
	next := ""
	if to < len(items) || f.emptyLastPage && from < to {
		next = base64.StdEncoding.EncodeToString([]byte(strconv.Itoa(to)))
		if f.repeatedPage && from > 0 {
			next = base64.StdEncoding.EncodeToString([]byte(strconv.Itoa(per)))
		}
	}
	answer(w, http.StatusOK, object{
		name: append([]object{}, items[from:to]...), "meta": object{"total": len(items), "links": object{"next": next, "prev": ""}},
	})
}

func (f *fake) stock(w http.ResponseWriter, r *http.Request) {
	plans := []string{}
	for _, p := range slices.Concat(f.plans, f.metal) {
		id := p["id"].(string)
		if slices.Contains(p["locations"].([]string), r.PathValue("region")) && !slices.Contains(f.soldOut, id) {
			plans = append(plans, id)
		}
	}
	answer(w, http.StatusOK, object{"available_plans": plans})
}

// listed filters as the query says, and is a look at each machine.
func (f *fake) listed(r *http.Request, at string) []object {
	q := r.URL.Query()
	list := []object{}
	for _, m := range f.machines {
		if m["at"] != at || q.Has("tag") && !slices.Contains(m["tags"].([]string), q.Get("tag")) || q.Has("label") && m["label"] != q.Get("label") {
			continue
		}
		f.look(m)
		list = append(list, shown(m))
	}
	return list
}

func (f *fake) look(m object) {
	id := m["id"].(string)
	if m["status"] != "pending" {
		return
	}
	if f.looks[id]++; f.looks[id] > f.making {
		m["status"], m["main_ip"] = "active", f.address
	}
}

func (f *fake) order(w http.ResponseWriter, r *http.Request, at, one string) {
	var in struct {
		Region, Plan, Label string
		Tags                []string
		OSID                int    `json:"os_id"`
		UserData            string `json:"user_data"`
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	plans := f.plans
	if at == "bare-metals" {
		plans = f.metal
	}
	p := find(plans, in.Plan)
	text, err := base64.StdEncoding.DecodeString(in.UserData)
	switch {
	case p == nil:
		refuse(w, http.StatusBadRequest, "Invalid plan chosen.")
	case !slices.Contains(p["locations"].([]string), in.Region), slices.Contains(f.soldOut, in.Plan):
		refuse(w, http.StatusBadRequest, "Plan is not available in the selected region.")
	case in.OSID != 2136:
		refuse(w, http.StatusBadRequest, "Invalid os_id.")
	case f.limit > 0 && len(f.machines) >= f.limit:
		refuse(w, http.StatusBadRequest, "You have reached the maximum active instance limit for this account.")
	case err != nil:
		refuse(w, http.StatusBadRequest, "Invalid user data.")
	default:
		m := f.create(at, in.Label, in.Plan, in.Region, in.Tags)
		f.userData[m["id"].(string)] = string(text)
		m["status"], m["main_ip"] = "pending", "0.0.0.0"
		answer(w, http.StatusAccepted, object{one: shown(m)})
	}
}
