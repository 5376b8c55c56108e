package scaleway_test

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
	secret  = "7e5c4a1e-canary-9e0b2f1d"
	project = "fa1e3217-dc80-42ac-85c3-3f034b78b552"
)

type object = map[string]any

// fake is a project at Scaleway with two zones. Its answers have the form of those that were recorded.
type fake struct {
	mu      sync.Mutex
	offers  []object
	systems []object
	perPage int // at most
	// emptyLastPage and repeatedPage are odd ways to end a list.
	emptyLastPage, repeatedPage bool
	// making is how many looks at a server it takes from one state to the next.
	making int
	// limit is the number of servers that the project may have; 0 is none.
	limit int
	// late has orders taken and then not delivered.
	late bool
	// boot is what a server that is ordered does with its user data; nil is nothing.
	boot func(userData string)
	// address is where all servers are.
	address  string
	servers  []object
	looks    map[string]int
	userData map[string][]byte
}

func newFake() *fake {
	f := &fake{perPage: 100, address: "203.0.113.7", looks: map[string]int{}, userData: map[string][]byte{}}
	for i := range 9 {
		f.offers = append(f.offers, offer(fmt.Sprintf("EM-A%d10R-NVME", i+1), i+1, "fr-par-1"))
	}
	gpu := offer("EM-GPU-L40S", 64, "fr-par-2")
	gpu["gpus"] = []object{{"name": "NVIDIA L40S", "vram": 48000000000}, {"name": "NVIDIA L40S", "vram": 48000000000}}
	empty := offer("EM-L620E-NVME", 64, "fr-par-2")
	empty["stock"] = "empty"
	monthly := offer("EM-A110R-NVME", 1, "fr-par-1")
	monthly["subscription_period"], monthly["price_per_hour"], monthly["id"] = "monthly", nil, id(999)
	f.offers = append(f.offers, gpu, empty, monthly)
	f.systems = []object{system(1, "Ubuntu", "24.04 LTS (Noble Numbat)", true), system(2, "Ubuntu", "24.04 LTS (Noble Numbat) old installer", false), system(3, "Debian", "12", true)}
	f.create("existing", f.offers[0], nil)
	f.create("existing-gpu", gpu, nil)
	return f
}

// id makes a UUID of a number.
func id(number int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", number) }

func offer(name string, cores int, zone string) object {
	number := cores
	for _, c := range name + zone {
		number = number*31%1_000_000_007 + int(c)
	}
	return object{
		"id": id(number), "name": name, "stock": "available", "bandwidth": 500000000, "max_bandwidth": 1000000000, "commercial_range": "aluminium", "enable": true,
		"disks":               []object{{"capacity": 1024209543168, "type": "NVMe"}, {"capacity": 1024209543168, "type": "NVMe"}},
		"cpus":                []object{{"name": "AMD Ryzen PRO 3600", "core_count": cores, "thread_count": 2 * cores, "frequency": 3600, "benchmark": "17849"}},
		"memories":            []object{{"capacity": 32000000000, "type": "DDR4", "frequency": 2666, "is_ecc": true}},
		"price_per_hour":      object{"currency_code": "EUR", "units": cores / 10, "nanos": 110000000},
		"price_per_month":     nil,
		"persistent_memories": []object{}, "raid_controllers": []object{}, "incompatible_os_ids": []string{}, "subscription_period": "hourly", "operation_path": "",
		"fee": object{"currency_code": "EUR", "units": 0, "nanos": 0}, "private_bandwidth": 0, "shared_bandwidth": true, "tags": []string{"cloud-init"}, "gpus": []object{},
		"monthly_offer_id": nil, "zone": zone,
	}
}

func system(number int, name, version string, cloudInit bool) object {
	return object{
		"id": id(number), "name": name, "version": version, "logo_url": "", "enabled": true, "allowed": true, "license_required": false,
		"ssh": object{"editable": true, "required": true}, "custom_partitioning_supported": true, "cloud_init_supported": cloudInit,
	}
}

// create makes a server. The caller holds the lock, or nobody else has the fake yet.
func (f *fake) create(name string, offer object, tags []string) object {
	s := object{
		"id": id(5_000_000 + len(f.servers)), "organization_id": project, "project_id": project, "name": name, "description": "", "status": "ready",
		"updated_at": time.Now().UTC().Format(time.RFC3339), "created_at": time.Now().UTC().Format(time.RFC3339),
		"offer_id": offer["id"], "offer_name": offer["name"], "tags": append([]string{}, tags...), "domain": "", "boot_type": "normal",
		"ping_status": "ping_status_unknown", "options": []object{}, "rescue_server": nil, "protected": false, "user_data": nil, "zone": offer["zone"],
		"install": object{"os_id": id(1), "hostname": name, "ssh_key_ids": []string{}, "status": "completed", "user": "ubuntu", "service_user": "", "service_url": ""},
	}
	f.give(s)
	f.servers = append(f.servers, s)
	return s
}

// give gives a server its addresses.
func (f *fake) give(s object) {
	s["ips"] = []object{
		{"id": id(7), "address": "2001:bc8:1201:a22:b683:51ff:fe0f:6bbc", "reverse": "", "version": "IPv6", "reverse_status": "unknown", "reverse_status_message": ""},
		{"id": id(8), "address": f.address, "reverse": "", "version": "IPv4", "reverse_status": "unknown", "reverse_status_message": ""},
	}
}

func (f *fake) sold(operationID string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, s := range f.servers {
		if slices.Contains(s["tags"].([]string), "bcd-operation:"+operationID) && s["status"] != "deleting" && s["status"] != "out_of_stock" {
			n++
		}
	}
	return n
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refusal(kind, message string) string {
	text, _ := json.Marshal(object{"type": kind, "message": message})
	return string(text)
}

func refuse(w http.ResponseWriter, status int, kind, message string) {
	answer(w, status, object{"type": kind, "message": message})
}

// ServeHTTP answers as Scaleway does.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Header.Get("X-Auth-Token") != secret {
		refuse(w, http.StatusUnauthorized, "denied_authentication", "authentication is denied")
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/baremetal/v1/zones/")
	zone, rest, _ := strings.Cut(path, "/")
	kind, key, _ := strings.Cut(rest, "/")
	if !ok || zone != "fr-par-1" && zone != "fr-par-2" {
		refuse(w, http.StatusNotFound, "not_found", "resource is not found")
		return
	}
	switch {
	case r.Method == http.MethodPost && rest == "servers":
		f.order(w, r, zone)
	case r.Method == http.MethodGet && rest == "servers":
		f.list(w, r, "servers", f.listed(r, zone))
	case r.Method == http.MethodGet && rest == "offers":
		q := r.URL.Query()
		f.list(w, r, "offers", matching(f.offers, func(o object) bool {
			return o["zone"] == zone && (!q.Has("name") || o["name"] == q.Get("name")) && (!q.Has("subscription_period") || o["subscription_period"] == q.Get("subscription_period"))
		}))
	case r.Method == http.MethodGet && rest == "os":
		f.list(w, r, "os", f.systems)
	default:
		f.one(w, r, zone, kind, key)
	}
}

func (f *fake) one(w http.ResponseWriter, r *http.Request, zone, kind, key string) {
	from := map[string][]object{"offers": f.offers, "servers": f.servers}[kind]
	found := matching(from, func(o object) bool { return o["id"] == key && o["zone"] == zone })
	switch {
	case len(found) == 0:
		answer(w, http.StatusNotFound, object{"type": "not_found", "resource": kind, "resource_id": key, "message": "resource is not found"})
		return
	case r.Method == http.MethodDelete && kind == "servers":
		if found[0]["status"] == "delivering" || found[0]["status"] == "ordered" {
			answer(w, http.StatusBadRequest, object{"message": "Server is not delivered"})
			return
		}
		found[0]["status"] = "deleting"
	case kind == "servers":
		f.look(found[0])
	}
	answer(w, http.StatusOK, found[0])
}

func matching(items []object, fits func(object) bool) []object {
	found := []object{}
	for _, i := range items {
		if fits(i) {
			found = append(found, i)
		}
	}
	return found
}

func (f *fake) list(w http.ResponseWriter, r *http.Request, name string, items []object) {
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	per, _ := strconv.Atoi(r.URL.Query().Get("page_size"))
	page, per = max(page, 1), min(max(per, 1), f.perPage)
	total := len(items)
	if f.emptyLastPage {
		total++
	}
	if f.repeatedPage {
		page = 1
	}
	shown := items[min((page-1)*per, len(items)):min(page*per, len(items))]
	answer(w, http.StatusOK, object{name: append([]object{}, shown...), "total_count": total})
}

// listed is a look at each server of the zone.
func (f *fake) listed(r *http.Request, zone string) []object {
	return matching(f.servers, func(s object) bool {
		if s["zone"] != zone || s["project_id"] != r.URL.Query().Get("project_id") {
			return false
		}
		f.look(s)
		return true
	})
}

// look takes a server that is being made a state on, as the recording has them.
func (f *fake) look(s object) {
	key := s["id"].(string)
	install, _ := s["install"].(object)
	if f.looks[key]++; f.looks[key]%(f.making+1) != 0 {
		return
	}
	switch {
	case s["status"] == "ordered" && f.late:
		s["status"] = "out_of_stock"
	case s["status"] == "ordered":
		s["status"] = "delivering"
	case s["status"] == "delivering":
		s["status"] = "ready"
		f.give(s)
	case install["status"] == "to_install":
		install["status"] = "installing"
	case install["status"] == "installing":
		install["status"] = "completed"
	}
}

func (f *fake) order(w http.ResponseWriter, r *http.Request, zone string) {
	var in struct {
		OfferID   string `json:"offer_id"`
		ProjectID string `json:"project_id"`
		Name      string
		Tags      []string
		UserData  []byte `json:"user_data"`
		Install   struct {
			OSID      string   `json:"os_id"`
			SSHKeyIDs []string `json:"ssh_key_ids"`
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	found := matching(f.offers, func(o object) bool { return o["id"] == in.OfferID && o["zone"] == zone })
	systems := matching(f.systems, func(s object) bool { return s["id"] == in.Install.OSID && s["cloud_init_supported"] == true })
	switch {
	case len(found) == 0 || len(systems) == 0 || in.ProjectID != project || len(in.Install.SSHKeyIDs) == 0:
		refuse(w, http.StatusBadRequest, "invalid_arguments", "invalid argument(s)")
		return
	case found[0]["stock"] == "empty":
		refuse(w, http.StatusPreconditionFailed, "out_of_stock", "resource out of stock")
		return
	case f.limit > 0 && len(f.servers) >= f.limit:
		answer(w, http.StatusForbidden, object{"type": "quotas_exceeded", "message": "quota(s) exceeded for this resource", "details": []object{{"resource": "EM", "quota": 2, "current": 2}}})
		return
	}
	s := f.create(in.Name, found[0], in.Tags)
	f.userData[s["id"].(string)] = in.UserData
	s["status"], s["ips"] = "ordered", []object{}
	s["install"].(object)["status"] = "to_install"
	if f.boot != nil {
		f.boot(string(in.UserData)) // before anybody looks for it
	}
	answer(w, http.StatusOK, s)
}
