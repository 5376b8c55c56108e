package openstack_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	secret     = "canary-5b1c77"
	credential = "7b4d2a1f0c9e4b6d8a3f5e2c1d0b9a87"
	imageID    = "4c475ca8-7a9e-4d53-8eae-86458b0d0b9b"
	networkID  = "364b79a3-5eab-459a-8c25-d1ec42bbd002"
	token      = "gAAAAABtoken"
)

type object = map[string]any

// fake is a project: Keystone below /v3, Nova below /v2.1.
type fake struct {
	mu      sync.Mutex
	flavors []object
	perPage int // at most
	// repeatedPage leads from a list's second page back to it.
	repeatedPage bool
	// building is how many looks at a server it takes until it is made, or rebuilt.
	building int
	// lateStock finds no host for what was ordered; failRebuilds ends rebuilds with an error.
	lateStock, failRebuilds bool
	// boot is told the user data of a server that was rebuilt; nil: nobody is.
	boot func(id, userData string)
	// limit is the number of servers in the quota; 0 is none.
	limit int
	// novaURL is what the catalog says; empty is the fake's own.
	novaURL  string
	servers  []object
	ordered  []object // the bodies of orders
	looks    map[string]int
	userData map[string]string
	nextID   int
}

func newFake() *fake {
	f := &fake{perPage: 1000, looks: map[string]int{}, userData: map[string]string{}}
	for i := range 8 {
		f.flavors = append(f.flavors, flavor(fmt.Sprintf("vps.%d", i+1), i+1, nil))
	}
	f.flavors = append(f.flavors,
		flavor("metal.h100x8", 96, object{"pci_passthrough:alias": "nvme-local:2,h100:8"}), flavor("gpu.l40s", 8, object{"resources:VGPU": "1", "trait:CUSTOM_NVIDIA_L40S": "required"}),
		flavor("baremetal", 64, object{"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0", "resources:CUSTOM_BAREMETAL": "1"}),
		flavor("nvme", 4, object{"pci_passthrough:alias": "nvme-local:2"}),
	)
	s := f.create("existing", f.flavors[0], nil)
	s["status"], s["OS-EXT-STS:task_state"], s["OS-SRV-USG:launched_at"] = "ACTIVE", nil, "2026-11-29T16:03:53.000000"
	return f
}

func uuid(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

func flavor(name string, cpus int, specs object) object {
	if specs == nil {
		specs = object{}
	}
	return object{
		"id": "f-" + name, "name": name, "ram": cpus * 2048, "disk": cpus * 20, "swap": 0, "vcpus": cpus, "OS-FLV-EXT-DATA:ephemeral": 0, "OS-FLV-DISABLED:disabled": false,
		"os-flavor-access:is_public": true, "rxtx_factor": 1.0, "links": []object{}, "description": nil, "extra_specs": specs,
	}
}

// create makes a server. The caller holds the lock, or nobody else has the fake yet.
func (f *fake) create(name string, of object, metadata object) object {
	f.nextID++
	if metadata == nil {
		metadata = object{}
	}
	s := object{
		"id": uuid(f.nextID), "name": name, "status": "BUILD", "metadata": metadata, "hostId": "", "image": object{"id": imageID, "links": []object{}}, "locked": false,
		"flavor": object{
			"vcpus": of["vcpus"], "ram": of["ram"], "disk": of["disk"], "ephemeral": 0, "swap": 0, "original_name": of["name"], "extra_specs": maps.Clone(of["extra_specs"].(object)),
		},
		"created": "2026-11-29T16:03:51Z", "updated": "2026-11-29T16:03:53Z", "accessIPv4": "", "accessIPv6": "", "config_drive": "", "key_name": nil, "progress": 0,
		"addresses": object{"shared": []object{
			{"version": 4, "addr": fmt.Sprintf("203.0.113.%d", f.nextID%250), "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:00:00:01"},
			{"version": 6, "addr": fmt.Sprintf("2001:db8::%x", f.nextID), "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": "fa:16:3e:00:00:01"},
		}},
		"OS-EXT-STS:task_state": "scheduling", "OS-EXT-STS:vm_state": "building", "OS-EXT-STS:power_state": 0, "OS-SRV-USG:launched_at": nil, "OS-SRV-USG:terminated_at": nil,
	}
	f.servers = append(f.servers, s)
	return s
}

func (f *fake) sold(operationID string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, s := range f.servers {
		if s["metadata"].(object)["bcd-operation"] == operationID {
			n++
		}
	}
	return n
}

// ServeHTTP is both APIs.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v3/auth/tokens", f.login)
	mux.HandleFunc("GET /v2.1/flavors/detail", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, "flavors", f.flavors) })
	mux.HandleFunc("GET /v2.1/servers", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, "servers", f.servers) })
	mux.HandleFunc("GET /v2.1/servers/detail", func(w http.ResponseWriter, r *http.Request) {
		for _, s := range f.servers {
			f.look(s)
		}
		f.list(w, r, "servers", withoutFaults(f.servers))
	})
	mux.HandleFunc("POST /v2.1/servers", f.order)
	mux.HandleFunc("GET /v2.1/servers/{id}", f.on(func(w http.ResponseWriter, _ *http.Request, s object) {
		f.look(s)
		answer(w, http.StatusOK, object{"server": s})
	}))
	mux.HandleFunc("DELETE /v2.1/servers/{id}", f.on(func(w http.ResponseWriter, _ *http.Request, s object) {
		f.servers = slices.DeleteFunc(f.servers, func(other object) bool { return other["id"] == s["id"] })
		w.WriteHeader(http.StatusNoContent)
	}))
	mux.HandleFunc("POST /v2.1/servers/{id}/action", f.on(f.act))
	version := r.Header.Get("OpenStack-API-Version")
	if strings.HasPrefix(r.URL.Path, "/v2.1") && (r.Header.Get("X-Auth-Token") != token || version != "compute 2.61") {
		answer(w, http.StatusUnauthorized, object{"error": object{"code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication."}})
		return
	}
	mux.ServeHTTP(w, r)
}

func (f *fake) login(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Auth struct {
			Identity struct {
				Methods    []string
				Credential struct{ ID, Secret string } `json:"application_credential"`
			}
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	if c := in.Auth.Identity.Credential; c.ID != credential || c.Secret != secret || r.Header.Get("X-Auth-Token") != "" {
		answer(w, http.StatusUnauthorized, object{"error": object{"code": 401, "title": "Unauthorized", "message": "The request you have made requires authentication."}})
		return
	}
	nova := f.novaURL
	if nova == "" {
		nova = "http://" + r.Host + "/v2.1"
	}
	at := func(region, face, url string) object {
		return object{"id": "e", "interface": face, "region": region, "region_id": region, "url": url}
	}
	w.Header().Set("X-Subject-Token", token)
	answer(w, http.StatusCreated, object{"token": object{
		"methods": []string{"application_credential"}, "expires_at": "2026-11-29T17:03:51.000000Z", "catalog": []object{
			{"id": "i", "type": "identity", "name": "keystone", "endpoints": []object{at("RegionOne", "public", "http://"+r.Host+"/v3")}},
			{"id": "n", "type": "compute", "name": "nova", "endpoints": []object{
				at("RegionTwo", "public", "http://192.0.2.1/v2.1"), at("RegionOne", "internal", "http://192.0.2.2/v2.1"), at("RegionOne", "public", nova),
			}},
		},
	}})
}

// on finds the server that a request is about.
func (f *fake) on(do func(http.ResponseWriter, *http.Request, object)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, s := range f.servers {
			if s["id"] == r.PathValue("id") {
				do(w, r, s)
				return
			}
		}
		refuse(w, http.StatusNotFound, "Instance "+r.PathValue("id")+" could not be found.")
	}
}

func answer(w http.ResponseWriter, status int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Openstack-Request-Id", "req-1")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

var kinds = map[int]string{400: "badRequest", 403: "forbidden", 404: "itemNotFound", 409: "conflictingRequest", 413: "overLimit", 429: "overLimit", 500: "computeFault"}

func refusal(status int, message string) string {
	return fmt.Sprintf(`{%q:{"code":%d,"message":%q}}`, kinds[status], status, message)
}

func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, object{kinds[status]: object{"code": status, "message": message}})
}

// list has a next page after each full one, as Nova does: the last may be empty.
func (f *fake) list(w http.ResponseWriter, r *http.Request, kind string, items []object) {
	per, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	per = min(max(per, 1), f.perPage)
	begin := 0
	if marker := r.URL.Query().Get("marker"); marker != "" && !f.repeatedPage {
		begin = slices.IndexFunc(items, func(i object) bool { return i["id"] == marker }) + 1
		if begin == 0 {
			refuse(w, http.StatusBadRequest, "marker ["+marker+"] not found")
			return
		}
	}
	shown := items[begin:min(begin+per, len(items))]
	body := object{kind: append([]object{}, shown...)}
	if len(shown) == per {
		body[kind+"_links"] = []object{{"rel": "next", "href": "http://controller.internal:8774/v2.1/" + kind + "/detail"}}
	}
	answer(w, http.StatusOK, body)
}

// withoutFaults leaves out those of servers that Nova found no host for: it keeps them apart, and its list does not look there.
func withoutFaults(servers []object) []object {
	shown := slices.Clone(servers)
	for i, s := range shown {
		if s["OS-SRV-USG:launched_at"] == nil {
			shown[i] = maps.Clone(s)
			delete(shown[i], "fault")
		}
	}
	return shown
}

func (f *fake) look(s object) {
	id := s["id"].(string)
	if s["OS-EXT-STS:task_state"] == nil {
		return
	}
	if f.looks[id]++; f.looks[id] <= f.building {
		return
	}
	f.looks[id] = 0
	task := s["OS-EXT-STS:task_state"]
	s["OS-EXT-STS:task_state"] = nil
	switch {
	case task == "scheduling" && f.lateStock:
		s["status"], s["fault"] = "ERROR", object{"code": 500, "created": "2026-11-29T16:04:22Z", "message": "No valid host was found. "}
	case task == "rebuilding" && f.failRebuilds:
		s["status"], s["fault"] = "ERROR", object{"code": 400, "created": "2026-11-29T16:04:22Z", "message": "Image could not be downloaded."}
	default:
		s["status"], s["OS-SRV-USG:launched_at"] = "ACTIVE", "2026-11-29T16:03:53.000000"
		delete(s, "fault")
	}
}

func (f *fake) order(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Server struct {
			Name, FlavorRef, ImageRef string
			Networks                  any
			Metadata                  map[string]string
		}
	}
	var text object
	body := json.NewDecoder(r.Body)
	_ = body.Decode(&text)
	again, _ := json.Marshal(text)
	_ = json.Unmarshal(again, &in)
	at := slices.IndexFunc(f.flavors, func(o object) bool { return o["id"] == in.Server.FlavorRef })
	switch {
	case at < 0:
		refuse(w, http.StatusBadRequest, "Invalid flavorRef provided.")
	case in.Server.ImageRef != imageID:
		refuse(w, http.StatusBadRequest, "Invalid imageRef provided.")
	case in.Server.Networks == nil || in.Server.Name == "":
		refuse(w, http.StatusBadRequest, "Invalid input for field/attribute server.")
	case f.limit > 0 && len(f.servers) >= f.limit:
		refuse(w, http.StatusForbidden, "Quota exceeded for instances: Requested 1, but already used 1 of 1 instances")
	default:
		f.ordered = append(f.ordered, text["server"].(object))
		metadata := object{}
		for key, value := range in.Server.Metadata {
			metadata[key] = value
		}
		s := f.create(in.Server.Name, f.flavors[at], metadata)
		answer(w, http.StatusAccepted, object{"server": object{"id": s["id"], "links": []object{}, "adminPass": "mg52PJUykZEh", "OS-DCF:diskConfig": "MANUAL", "security_groups": []object{}}})
	}
}

func (f *fake) act(w http.ResponseWriter, r *http.Request, s object) {
	var in struct {
		Start   json.RawMessage `json:"os-start"`
		Rebuild *struct {
			ImageRef string
			UserData string `json:"user_data"`
		}
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	id := s["id"].(string)
	f.look(s)
	switch {
	case s["OS-EXT-STS:task_state"] != nil:
		refuse(w, http.StatusConflict, fmt.Sprintf("Cannot 'rebuild' instance %s while it is in task_state %s", id, s["OS-EXT-STS:task_state"]))
	case in.Rebuild == nil && string(in.Start) == "null":
		s["status"] = "ACTIVE"
		w.WriteHeader(http.StatusAccepted)
	case in.Rebuild == nil || in.Rebuild.ImageRef != imageID:
		refuse(w, http.StatusBadRequest, "Invalid imageRef provided.")
	default:
		text, err := base64.StdEncoding.DecodeString(in.Rebuild.UserData)
		if err != nil {
			refuse(w, http.StatusBadRequest, "Invalid input for field/attribute user_data.")
			return
		}
		f.userData[id] = string(text)
		s["OS-EXT-STS:task_state"] = "rebuilding" // and its status stays as it is for a while
		if f.boot != nil {
			f.boot(id, f.userData[id])
		}
		answer(w, http.StatusAccepted, object{"server": s})
	}
}
