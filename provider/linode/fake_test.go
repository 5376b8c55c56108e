package linode_test

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

const secret = "canary-71e0de"

type object = map[string]any

// fake is an account at Linode.
type fake struct {
	mu                     sync.Mutex
	types, regions, stocks []object
	perPage                int // at most
	// emptyLastPage and repeatedPage are odd ways to end a list.
	emptyLastPage, repeatedPage bool
	// provisioning is how many looks at a Linode it takes until it is made, or rebuilt.
	provisioning int
	// failRebuilds ends rebuilds with an error.
	failRebuilds bool
	// boot is told the user data of a Linode that was rebuilt; nil: nobody is.
	boot func(id int, userData string)
	// limit is the number of Linodes that the account may have; 0 is none.
	limit     int
	instances []object
	events    []object
	looks     map[int]int
	userData  map[int]string
	passwords map[string]bool
	nextID    int
}

func newFake() *fake {
	f := &fake{perPage: 500, looks: map[int]int{}, userData: map[int]string{}, passwords: map[string]bool{}, nextID: 122}
	for i := range 9 {
		f.types = append(f.types, linodeType(fmt.Sprintf("g6-standard-%d", i+1), "standard", i+1))
	}
	gpu := linodeType("g1-gpu-rtx6000-2", "gpu", 16)
	gpu["gpus"], gpu["label"] = 2, "Dedicated 64GB + RTX6000 GPU x2"
	premium := linodeType("g7-premium-4", "premium", 4)
	f.types = append(f.types, gpu, premium)
	f.regions = []object{
		region("us-east", "Linodes", "Metadata", "GPU Linodes"), region("eu-central", "Linodes", "Metadata", "Premium Plans"), region("id-cgk", "Linodes", "Metadata"),
		region("old", "Linodes"), region("us-west", "Linodes", "Metadata"),
	}
	f.stocks = []object{
		{"region": "us-east", "plan": "g1-gpu-rtx6000-2", "available": true}, {"region": "eu-central", "plan": "g1-gpu-rtx6000-2", "available": false},
	}
	f.create("existing", "g6-standard-1", "us-east")
	return f
}

func linodeType(id, class string, cpus int) object {
	price := func(factor float64) object {
		return object{"hourly": 0.018 * factor * float64(cpus), "monthly": 12 * factor * float64(cpus)}
	}
	abroad := price(1.2)
	abroad["id"] = "id-cgk"
	return object{
		"id": id, "label": fmt.Sprintf("Linode %dGB", cpus*2), "class": class, "vcpus": cpus, "memory": cpus * 2048, "disk": cpus * 51200, "gpus": 0, "transfer": 2000,
		"network_out": 2000, "price": price(1), "region_prices": []object{abroad}, "successor": nil,
		"addons": object{"backups": object{"price": object{"hourly": 0.004, "monthly": 2.5}, "region_prices": []object{}}},
	}
}

func region(id string, capabilities ...string) object {
	return object{"id": id, "label": id, "country": "us", "capabilities": capabilities, "status": "ok", "resolvers": object{"ipv4": "192.0.2.0", "ipv6": "2001:db8::1"}}
}

func (f *fake) find(list []object, id any) object {
	for _, o := range list {
		if fmt.Sprint(o["id"]) == fmt.Sprint(id) {
			return o
		}
	}
	return nil
}

// create makes a Linode. The caller holds the lock, or nobody else has the fake yet.
func (f *fake) create(label, typeID, at string) object {
	f.nextID++
	t := f.find(f.types, typeID)
	i := object{
		"id": f.nextID, "label": label, "status": "running", "type": typeID, "region": at, "image": nil, "group": "", "tags": []string{}, "hypervisor": "kvm",
		"ipv4": []string{fmt.Sprintf("203.0.113.%d", f.nextID%250)}, "ipv6": fmt.Sprintf("2001:db8::%x/128", f.nextID), "watchdog_enabled": true, "has_user_data": false,
		"created": "2026-01-02T03:04:05Z", "updated": "2026-01-02T03:04:05Z", "capabilities": []string{}, "lke_cluster_id": nil, "placement_group": nil,
		"specs":   object{"disk": t["disk"], "memory": t["memory"], "vcpus": t["vcpus"], "gpus": t["gpus"], "transfer": t["transfer"]},
		"alerts":  object{"cpu": 90, "io": 10000, "network_in": 10, "network_out": 10, "transfer_quota": 80},
		"backups": object{"enabled": false, "available": false, "schedule": object{"day": nil, "window": nil}},
	}
	f.instances = append(f.instances, i)
	return i
}

func (f *fake) sold(operationID string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, i := range f.instances {
		if i["label"] == operationID {
			n++
		}
	}
	return n
}

// ServeHTTP is the API below /v4.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+secret {
		refuse(w, http.StatusUnauthorized, "", "Invalid Token")
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v4/linode/types", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, f.types) })
	mux.HandleFunc("GET /v4/regions", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, f.regions) })
	mux.HandleFunc("GET /v4/regions/availability", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, f.stocks) })
	mux.HandleFunc("GET /v4/account/events", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, f.events) })
	mux.HandleFunc("GET /v4/linode/instances", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, f.listed(r)) })
	mux.HandleFunc("POST /v4/linode/instances", f.order)
	mux.HandleFunc("GET /v4/linode/instances/{id}", f.on(func(w http.ResponseWriter, _ *http.Request, i object) {
		f.look(i)
		answer(w, http.StatusOK, i)
	}))
	mux.HandleFunc("DELETE /v4/linode/instances/{id}", f.on(func(w http.ResponseWriter, _ *http.Request, i object) {
		f.instances = slices.DeleteFunc(f.instances, func(other object) bool { return other["id"] == i["id"] })
		answer(w, http.StatusOK, object{})
	}))
	mux.HandleFunc("POST /v4/linode/instances/{id}/rebuild", f.on(f.rebuild))
	mux.ServeHTTP(w, r)
}

// on finds the Linode that a request is about.
func (f *fake) on(do func(http.ResponseWriter, *http.Request, object)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if i := f.find(f.instances, r.PathValue("id")); i != nil {
			do(w, r, i)
			return
		}
		refuse(w, http.StatusNotFound, "", "Not found")
	}
}

func answer(w http.ResponseWriter, status int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-RateLimit-Remaining", "799")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refuse(w http.ResponseWriter, status int, field, reason string) {
	told := object{"reason": reason}
	if field != "" {
		told["field"] = field
	}
	answer(w, status, object{"errors": []object{told}})
}

func refusal(field, reason string) string {
	return fmt.Sprintf(`{"errors":[{"field":%q,"reason":%q}]}`, field, reason)
}

func (f *fake) list(w http.ResponseWriter, r *http.Request, items []object) {
	number, _ := strconv.Atoi(r.URL.Query().Get("page"))
	per, _ := strconv.Atoi(r.URL.Query().Get("page_size"))
	number, per = max(number, 1), min(max(per, 1), f.perPage)
	pages := max((len(items)+per-1)/per, 1)
	if f.emptyLastPage {
		pages++
	}
	shown := items[min((number-1)*per, len(items)):min(number*per, len(items))]
	if f.repeatedPage && number > 1 {
		number, shown = 1, items[:min(per, len(items))]
	}
	answer(w, http.StatusOK, object{"data": append([]object{}, shown...), "page": number, "pages": pages, "results": len(items)})
}

// listed filters as the header says, and is a look at each Linode.
func (f *fake) listed(r *http.Request) []object {
	var filter struct{ Label string }
	_ = json.Unmarshal([]byte(r.Header.Get("X-Filter")), &filter)
	shown := []object{}
	for _, i := range f.instances {
		if filter.Label == "" || i["label"] == filter.Label {
			f.look(i)
			shown = append(shown, i)
		}
	}
	return shown
}

func (f *fake) look(i object) {
	id := i["id"].(int)
	if i["status"] != "provisioning" && i["status"] != "rebuilding" {
		return
	}
	if f.looks[id]++; f.looks[id] <= f.provisioning {
		return
	}
	f.looks[id] = 0
	switch {
	case i["status"] == "provisioning":
		i["status"] = "offline"
	case f.failRebuilds:
		i["status"] = "offline"
		f.events = append([]object{rebuildOf(id, "failed")}, f.events...)
	default:
		i["status"] = "running"
	}
}

func rebuildOf(id int, status string) object {
	return object{
		"action": "linode_rebuild", "status": status, "created": "2026-01-02T03:04:05Z", "duration": 30.5,
		"entity": object{"id": id, "type": "linode", "label": "a"},
	}
}

func (f *fake) order(w http.ResponseWriter, r *http.Request) {
	var in struct{ Type, Region, Label string }
	_ = json.NewDecoder(r.Body).Decode(&in)
	soldOut := slices.ContainsFunc(f.stocks, func(s object) bool {
		return s["region"] == in.Region && s["plan"] == in.Type && s["available"] == false
	})
	switch {
	case slices.ContainsFunc(f.instances, func(i object) bool { return i["label"] == in.Label }):
		refuse(w, http.StatusBadRequest, "label", "Label must be unique among your linodes")
	case f.find(f.types, in.Type) == nil:
		refuse(w, http.StatusBadRequest, "type", "A valid plan type by that ID was not found")
	case f.find(f.regions, in.Region) == nil:
		refuse(w, http.StatusBadRequest, "region", "region is not valid")
	case soldOut:
		refuse(w, http.StatusBadRequest, "type", "The selected plan is not currently available in this region")
	case f.limit > 0 && len(f.instances) >= f.limit:
		refuse(w, http.StatusBadRequest, "", "Account Limit reached. Please open a support ticket.")
	default:
		i := f.create(in.Label, in.Type, in.Region)
		i["status"] = "provisioning"
		answer(w, http.StatusOK, i)
	}
}

func (f *fake) rebuild(w http.ResponseWriter, r *http.Request, i object) {
	var in struct {
		Image    string
		RootPass string `json:"root_pass"`
		Metadata struct {
			UserData string `json:"user_data"`
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	id := i["id"].(int)
	f.look(i)
	switch {
	case i["status"] != "running" && i["status"] != "offline":
		refuse(w, http.StatusBadRequest, "", "Linode busy.")
		return
	case !strings.HasPrefix(in.Image, "linode/debian"):
		refuse(w, http.StatusBadRequest, "image", "image is not valid")
		return
	case f.passwords[in.RootPass] || len(in.RootPass) < 11:
		refuse(w, http.StatusBadRequest, "root_pass", "Password does not meet strength requirement.")
		return
	}
	text, err := base64.StdEncoding.DecodeString(in.Metadata.UserData)
	if err != nil {
		refuse(w, http.StatusBadRequest, "metadata.user_data", "user_data is not base64")
		return
	}
	f.passwords[in.RootPass] = true
	f.userData[id] = string(text)
	i["status"], i["has_user_data"], i["image"] = "rebuilding", true, in.Image
	if f.boot != nil {
		f.boot(id, f.userData[id])
	}
	answer(w, http.StatusOK, i)
}
