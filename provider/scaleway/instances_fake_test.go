package scaleway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// cloud is the half of a project that is virtual, in one zone, beside the metal of a fake. Its types are those that were recorded.
type cloud struct {
	metal *fake

	mu      sync.Mutex
	types   []object
	stock   map[string]string
	servers []object
	volumes []object
	images  []object
	// userData are what servers start with.
	userData map[string]string
	perPage  int
	// making is how many looks it takes from one state to the next, and ending how many until a server that ends is gone.
	making, ending int
	looks          map[string]int
	// soldOut: a server that is started finds no place. limit is the number of servers that the project may have; 0 is none.
	soldOut bool
	limit   int
	address string
}

func newCloud() *cloud {
	c := &cloud{metal: newFake(), stock: map[string]string{}, userData: map[string]string{}, looks: map[string]int{}, perPage: 100, address: "203.0.113.9"}
	text, err := os.ReadFile("testdata/instance_server_types.json")
	if err != nil {
		panic(err)
	}
	var recorded []struct {
		Body struct{ Servers map[string]object }
	}
	if err := json.Unmarshal(text, &recorded); err != nil {
		panic(err)
	}
	for _, page := range recorded {
		for _, name := range slices.Sorted(maps.Keys(page.Body.Servers)) {
			page.Body.Servers[name]["name"] = name
			c.types = append(c.types, page.Body.Servers[name])
			c.stock[name] = "available"
		}
	}
	c.stock["DEV1-M"], c.stock["DEV1-L"] = "scarce", "shortage"
	for i, arch := range []string{"x86_64", "arm64"} {
		c.images = append(c.images, object{"id": id(900 + i), "arch": arch, "zone": "fr-par-1", "compatible_commercial_types": []string{}, "label": "ubuntu_noble", "type": "instance_sbs"})
	}
	c.make("existing", "DEV1-S", nil)["state"] = "running"
	c.give(c.servers[0])
	return c
}

// make makes a server that does not run, with its volume. The caller holds the lock, or nobody else has the cloud yet.
func (c *cloud) make(name, kind string, tags []string) object {
	n := len(c.servers) + 7_000_000
	c.volumes = append(c.volumes, object{
		"id": id(n + 1_000_000), "name": "Ubuntu 24.04_sbs_volume_0", "type": "sbs_5k", "size": 20_000_000_000, "project_id": project, "status": "in_use", "tags": []string{}, "zone": "fr-par-1",
		"references": []object{}, "server": id(n),
	})
	s := object{
		"id": id(n), "name": name, "organization": project, "project": project, "tags": append([]string{}, tags...), "commercial_type": kind, "state": "stopped", "arch": "x86_64", "zone": "fr-par-1",
		"public_ips": []object{}, "protected": false, "volumes": object{"0": object{"id": id(n + 1_000_000), "volume_type": "sbs_volume", "zone": "fr-par-1"}},
	}
	c.servers = append(c.servers, s)
	return s
}

func (c *cloud) give(s object) {
	s["public_ips"] = []object{{"id": id(7), "address": c.address, "gateway": nil, "netmask": "32", "family": "inet", "dynamic": true}}
}

func (c *cloud) sold(operationID string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(matching(c.servers, func(s object) bool {
		return slices.Contains(s["tags"].([]string), "bcd-operation:"+operationID) && s["gone"] == nil
	}))
}

// left are the volumes that nobody uses.
func (c *cloud) left() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(matching(c.volumes, func(v object) bool { return v["status"] == "available" }))
}

// ServeHTTP answers as Scaleway does.
func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/baremetal/") || r.Header.Get("X-Auth-Token") != secret {
		c.metal.ServeHTTP(w, r)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	instances, isInstances := strings.CutPrefix(r.URL.Path, "/instance/v1/zones/fr-par-1/")
	volumes, isVolumes := strings.CutPrefix(r.URL.Path, "/block/v1/zones/fr-par-1/")
	switch {
	case r.URL.Path == "/marketplace/v2/local-images":
		q := r.URL.Query()
		c.list(w, r, "local_images", matching(c.images, func(i object) bool {
			return i["label"] == q.Get("image_label") && i["zone"] == q.Get("zone") && i["type"] == q.Get("type")
		}))
	case isInstances:
		c.compute(w, r, instances)
	case isVolumes:
		c.block(w, r, volumes)
	default:
		refuse(w, http.StatusNotFound, "not_found", "resource is not found")
	}
}

func (c *cloud) page(r *http.Request, n int) (from, to int) {
	q := r.URL.Query()
	page, _ := strconv.Atoi(q.Get("page"))
	size, _ := strconv.Atoi(q.Get("per_page") + q.Get("page_size"))
	page, size = max(page, 1), min(max(size, 1), c.perPage)
	return min((page-1)*size, n), min(page*size, n)
}

func (c *cloud) list(w http.ResponseWriter, r *http.Request, name string, items []object) {
	from, to := c.page(r, len(items))
	body := object{name: append([]object{}, items[from:to]...)}
	if w.Header().Set("X-Total-Count", strconv.Itoa(len(items))); name != "servers" { // of instances the header alone tells it
		body["total_count"] = len(items)
	}
	answer(w, http.StatusOK, body)
}

func (c *cloud) compute(w http.ResponseWriter, r *http.Request, path string) {
	parts := strings.Split(path, "/")
	switch {
	case path == "products/servers", path == "products/servers/availability":
		from, to := c.page(r, len(c.types))
		shown := object{}
		for _, t := range c.types[from:to] {
			name := t["name"].(string)
			if shown[name] = t; len(parts) == 3 {
				shown[name] = object{"availability": c.stock[name]}
			}
		}
		w.Header().Set("X-Total-Count", strconv.Itoa(len(c.types)))
		answer(w, http.StatusOK, object{"servers": shown})
	case path == "servers" && r.Method == http.MethodPost:
		c.create(w, r)
	case path == "servers":
		q := r.URL.Query()
		c.look()
		c.list(w, r, "servers", matching(c.servers, func(s object) bool {
			return s["gone"] == nil && s["project"] == q.Get("project") && (!q.Has("tags") || slices.Contains(s["tags"].([]string), q.Get("tags")))
		}))
	default:
		c.look()
		found := matching(c.servers, func(s object) bool { return s["gone"] == nil && s["id"] == parts[1] })
		if len(found) == 0 {
			answer(w, http.StatusNotFound, object{"type": "unknown_resource", "message": "\"instance_server\" not found"})
			return
		}
		c.one(w, r, found[0], parts[2:])
	}
}

func (c *cloud) create(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name, Image, Project string
		CommercialType       string `json:"commercial_type"`
		Tags                 []string
		Volumes              map[string]struct {
			Size       int64
			VolumeType string `json:"volume_type"`
		}
		DynamicIP bool `json:"dynamic_ip_required"`
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	isSold := slices.ContainsFunc(c.types, func(t object) bool { return t["name"] == in.CommercialType })
	switch {
	case !isSold || in.Image != id(900) || in.Project != project || in.Volumes["0"].VolumeType != "sbs_volume" || in.Volumes["0"].Size < 10_000_000_000 || !in.DynamicIP:
		refuse(w, http.StatusBadRequest, "invalid_arguments", "invalid argument(s)")
	case c.limit > 0 && len(c.servers) >= c.limit:
		answer(w, http.StatusForbidden, object{"type": "quotas_exceeded", "message": "quota(s) exceeded for this resource"})
	default:
		answer(w, http.StatusCreated, object{"server": c.make(in.Name, in.CommercialType, in.Tags)})
	}
}

func (c *cloud) one(w http.ResponseWriter, r *http.Request, s object, rest []string) {
	key := s["id"].(string)
	switch {
	case r.Method == http.MethodDelete && s["state"] == "stopped":
		c.end(s)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPatch && len(rest) == 2 && rest[1] == "cloud-init":
		text, _ := io.ReadAll(r.Body)
		c.userData[key] = string(text)
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodPost && len(rest) == 1 && rest[0] == "action":
		var in struct{ Action string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		switch {
		case in.Action == "poweron" && s["state"] == "stopped" && c.soldOut:
			refuse(w, http.StatusPreconditionFailed, "out_of_stock", "resource out of stock")
			return
		case in.Action == "poweron" && s["state"] == "stopped" && c.userData[key] != "":
			s["state"] = "starting"
		case in.Action == "terminate" && s["state"] == "running":
			s["state"] = "stopping"
			c.ended(s)
		default:
			refuse(w, http.StatusBadRequest, "invalid_request_error", "invalid action")
			return
		}
		answer(w, http.StatusAccepted, object{"task": object{"id": id(1), "status": "pending"}})
	case r.Method == http.MethodGet && len(rest) == 0:
		answer(w, http.StatusOK, object{"server": s})
	default:
		refuse(w, http.StatusBadRequest, "invalid_request_error", "invalid request")
	}
}

func (c *cloud) end(s object) {
	s["gone"] = true
	for _, v := range c.volumes {
		if v["server"] == s["id"] {
			v["status"] = "available"
		}
	}
}

func (c *cloud) ended(s object) {
	if c.ending == 0 {
		c.end(s)
	}
}

// look takes servers that are on their way a state on.
func (c *cloud) look() {
	for _, s := range c.servers {
		key := fmt.Sprint(s["id"], s["state"])
		c.looks[key]++
		switch {
		case s["state"] == "starting" && c.looks[key] > c.making:
			s["state"] = "running"
			c.give(s)
		case s["state"] == "stopping" && c.looks[key] > c.ending:
			c.end(s)
		}
	}
}

func (c *cloud) block(w http.ResponseWriter, r *http.Request, path string) {
	parts := strings.Split(path, "/")
	found := matching(c.volumes, func(v object) bool {
		if len(parts) == 2 {
			return v["id"] == parts[1]
		}
		q := r.URL.Query()
		return v["project_id"] == q.Get("project_id") && (!q.Has("tags") || slices.Contains(v["tags"].([]string), q.Get("tags")))
	})
	switch {
	case len(parts) == 1:
		c.list(w, r, "volumes", found)
	case len(found) == 0:
		answer(w, http.StatusNotFound, object{"type": "not_found", "resource": "volume", "resource_id": parts[1], "message": "resource is not found"})
	case r.Method == http.MethodPatch:
		var in struct{ Tags []string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		found[0]["tags"] = in.Tags
		answer(w, http.StatusOK, found[0])
	case r.Method == http.MethodDelete && found[0]["status"] != "available":
		refuse(w, http.StatusPreconditionFailed, "precondition_failed", "resource is still in use")
	case r.Method == http.MethodDelete:
		c.volumes = slices.DeleteFunc(c.volumes, func(v object) bool { return v["id"] == parts[1] })
		w.WriteHeader(http.StatusNoContent)
	}
}
