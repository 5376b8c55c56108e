package digitalocean_test

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

const secret = "canary-d0b2c4"

type object = map[string]any

// fake is an account at DigitalOcean.
type fake struct {
	mu      sync.Mutex
	sizes   []object
	perPage int // at most
	// emptyLastPage and repeatedPage are odd ways to end a list.
	emptyLastPage, repeatedPage bool
	// making is how many looks at a droplet it takes until it has addresses.
	making int
	// limit is the number of droplets that the account may have; 0 is none.
	limit int
	// boot is told the user data of a droplet that was ordered; nil: nobody is.
	boot func(userData string)
	// address is where all droplets are.
	address  string
	droplets []object
	looks    map[int]int
	userData map[int]string
	nextID   int
}

func newFake() *fake {
	f := &fake{perPage: 200, address: "203.0.113.7", looks: map[int]int{}, userData: map[int]string{}, nextID: 3164443}
	for i := range 9 {
		f.sizes = append(f.sizes, size(fmt.Sprintf("s-%dvcpu-%dgb", i+1, i+1), i+1, "nyc1", "fra1"))
	}
	h100 := size("gpu-h100x8-640gb", 160, "nyc2")
	h100["gpu_info"] = object{"count": 8, "model": "nvidia_h100", "vram": object{"amount": 640, "unit": "gib"}}
	h100["disk_info"] = []object{{"type": "local", "size": object{"amount": 2046, "unit": "gib"}}, {"type": "scratch", "size": object{"amount": 40960, "unit": "gib"}}}
	gone := size("s-old", 1, "nyc1")
	gone["available"] = false
	f.sizes = append(f.sizes, h100, gone)
	f.create("existing", "s-1vcpu-1gb", "nyc1", nil)
	f.create("existing-gpu", "gpu-h100x8-640gb", "nyc2", nil)
	return f
}

func size(slug string, cpus int, regions ...string) object {
	return object{
		"slug": slug, "memory": cpus * 1024, "vcpus": cpus, "disk": cpus * 25, "transfer": 1.0, "price_hourly": 0.00743999984115362 * float64(cpus),
		"price_monthly": 5.0 * float64(cpus), "regions": regions, "available": true, "description": "Basic",
	}
}

func (f *fake) size(slug string) object {
	for _, s := range f.sizes {
		if s["slug"] == slug {
			return s
		}
	}
	return nil
}

// create makes a droplet. The caller holds the lock, or nobody else has the fake yet.
func (f *fake) create(name, slug, region string, tags []string) object {
	f.nextID++
	s := f.size(slug)
	d := object{
		"id": f.nextID, "name": name, "memory": s["memory"], "vcpus": s["vcpus"], "disk": s["disk"], "locked": false, "status": "active",
		"created_at": time.Now().UTC().Format(time.RFC3339), "features": []string{}, "backup_ids": []int{}, "next_backup_window": object{}, "snapshot_ids": []int{},
		"image":      object{"id": 1, "name": "24.04 (LTS) x64", "distribution": "Ubuntu", "slug": "ubuntu-24-04-x64", "public": true, "regions": []string{}},
		"volume_ids": []string{}, "size": s, "size_slug": slug, "tags": append([]string{}, tags...),
		"region": object{"name": region, "slug": region, "available": true, "features": []string{}, "sizes": []string{}},
	}
	f.give(d)
	f.droplets = append(f.droplets, d)
	return d
}

// give gives a droplet its addresses.
func (f *fake) give(d object) {
	d["networks"] = object{
		"v4": []object{
			{"ip_address": "10.108.0.3", "netmask": "255.255.240.0", "gateway": "10.108.0.1", "type": "private"},
			{"ip_address": f.address, "netmask": "255.255.240.0", "gateway": "203.0.113.1", "type": "public"},
		},
		"v6": []object{},
	}
}

func (f *fake) sold(operationID string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, d := range f.droplets {
		if slices.Contains(d["tags"].([]string), "bcd-operation:"+operationID) {
			n++
		}
	}
	return n
}

func (f *fake) find(id string) object {
	for _, d := range f.droplets {
		if fmt.Sprint(d["id"]) == id {
			return d
		}
	}
	return nil
}

// ServeHTTP is the API.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+secret {
		answer(w, http.StatusUnauthorized, object{"id": "unauthorized", "message": "Unable to authenticate you"})
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v2/sizes", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, "sizes", f.sizes) })
	mux.HandleFunc("GET /v2/droplets", func(w http.ResponseWriter, r *http.Request) { f.list(w, r, "droplets", f.listed(r)) })
	mux.HandleFunc("POST /v2/droplets", f.order)
	mux.HandleFunc("GET /v2/droplets/{id}", func(w http.ResponseWriter, r *http.Request) {
		if d := f.find(r.PathValue("id")); d != nil {
			f.look(d)
			answer(w, http.StatusOK, object{"droplet": d})
			return
		}
		notFound(w)
	})
	mux.HandleFunc("DELETE /v2/droplets/{id}", func(w http.ResponseWriter, r *http.Request) {
		d := f.find(r.PathValue("id"))
		if d == nil {
			notFound(w)
			return
		}
		f.droplets = slices.DeleteFunc(f.droplets, func(other object) bool { return other["id"] == d["id"] })
		w.WriteHeader(http.StatusNoContent)
	})
	mux.ServeHTTP(w, r)
}

func answer(w http.ResponseWriter, status int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Request-Id", "4d9d8375-3c56-4925-a3e7-eb137fed17e9")
	w.Header().Set("Ratelimit-Limit", "5000")
	w.Header().Set("Ratelimit-Remaining", "4816")
	w.Header().Set("Ratelimit-Reset", "1444931833")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func notFound(w http.ResponseWriter) {
	answer(w, http.StatusNotFound, object{"id": "not_found", "message": "The resource you were accessing could not be found."})
}

func refusal(id, message string) string { return fmt.Sprintf(`{"id":%q,"message":%q}`, id, message) }

func (f *fake) list(w http.ResponseWriter, r *http.Request, name string, items []object) {
	page, _ := strconv.Atoi(r.URL.Query().Get("page"))
	per, _ := strconv.Atoi(r.URL.Query().Get("per_page"))
	page, per = max(page, 1), min(max(per, 1), f.perPage)
	last := max((len(items)+per-1)/per, 1)
	if f.emptyLastPage {
		last++
	}
	link := func(number int) string {
		return fmt.Sprintf("https://api.digitalocean.com/v2/%s?page=%d", name, number)
	}
	pages := object{}
	if page > 1 {
		pages["first"], pages["prev"] = link(1), link(page-1)
	}
	if page < last {
		pages["next"], pages["last"] = link(page+1), link(last)
		if f.repeatedPage && page > 1 {
			pages["next"] = link(page - 1)
		}
	}
	shown := items[min((page-1)*per, len(items)):min(page*per, len(items))]
	answer(w, http.StatusOK, object{name: append([]object{}, shown...), "links": object{"pages": pages}, "meta": object{"total": len(items)}})
}

// listed filters as the query says, and is a look at each droplet. Without a filter those with GPUs are left out.
func (f *fake) listed(r *http.Request) []object {
	q := r.URL.Query()
	shown := []object{}
	for _, d := range f.droplets {
		_, isGPU := d["size"].(object)["gpu_info"]
		var fits bool
		switch {
		case q.Has("tag_name"):
			fits = slices.Contains(d["tags"].([]string), q.Get("tag_name"))
		case q.Has("name"):
			fits = !isGPU && strings.EqualFold(d["name"].(string), q.Get("name"))
		default:
			fits = isGPU == (q.Get("type") == "gpus")
		}
		if fits {
			f.look(d)
			shown = append(shown, d)
		}
	}
	return shown
}

func (f *fake) look(d object) {
	id := d["id"].(int)
	if d["status"] != "new" {
		return
	}
	if f.looks[id]++; f.looks[id] > f.making {
		d["status"] = "active"
		f.give(d)
	}
}

func (f *fake) order(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Name, Region, Size, Image string
		Tags                      []string
		UserData                  string `json:"user_data"`
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	refuse := func(message string) {
		answer(w, http.StatusUnprocessableEntity, object{"id": "unprocessable_entity", "message": message})
	}
	switch s := f.size(in.Size); {
	case s == nil:
		refuse("You specified an invalid size for Droplet creation.")
		return
	case !slices.Contains(s["regions"].([]string), in.Region):
		refuse("Size is not available in this region.")
		return
	case (s["gpu_info"] != nil) != strings.HasPrefix(in.Image, "gpu-"):
		refuse("You specified an invalid image for Droplet creation.")
		return
	case f.limit > 0 && len(f.droplets) >= f.limit:
		refuse("creating this/these droplet(s) will exceed your droplet limit")
		return
	}
	d := f.create(in.Name, in.Size, in.Region, in.Tags)
	f.userData[d["id"].(int)] = in.UserData
	if f.boot != nil {
		f.boot(in.UserData)
	}
	d["status"], d["networks"] = "new", object{"v4": []object{}, "v6": []object{}}
	answer(w, http.StatusAccepted, object{"droplet": d, "links": object{"actions": []object{{"id": 7515, "rel": "create", "href": "https://api.digitalocean.com/v2/actions/7515"}}}})
}
