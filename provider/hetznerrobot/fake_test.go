package hetznerrobot_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

const (
	user   = "#ws+canary"
	secret = "canary-50b07"
)

type object = map[string]any

// fake is a customer of Hetzner's. It takes the parameters that Robot's page names, and no others.
type fake struct {
	mu       sync.Mutex
	products []object
	market   []object
	servers  []object
	keys     []object
	// orders are the transactions, by the path of their kind.
	orders map[string][]object
	// making is how many looks at the orders it takes until one is delivered.
	making int
	looks  map[string]int
	// cancelling has orders given up in place of delivered.
	cancelling bool
	// earliest is the date that servers can be cancelled for.
	earliest string
	// cancelledFor are the dates that servers were cancelled for.
	cancelledFor map[int]url.Values
	rescues      map[int]*rescueOf
	// boots are what servers have booted since the test looked.
	boots   map[int]string
	address string
	nextID  int
	// wrong counts logins that failed. Robot blocks at the third.
	wrong int
}

// rescueOf is the rescue system of a server.
type rescueOf struct {
	active   bool
	keys     []string // fingerprints
	last     []string // of the last that booted
	hostKeys []object
}

func newFake() *fake {
	f := &fake{
		address: "203.0.113.7", earliest: "2020-01-01", looks: map[string]int{}, orders: map[string][]object{}, cancelledFor: map[int]url.Values{},
		rescues: map[int]*rescueOf{}, boots: map[int]string{}, nextID: 2000000,
	}
	for i := range 4 {
		f.products = append(f.products, product(fmt.Sprintf("EX%d", 44+i), fmt.Sprintf("%d Cores", 4+i), fmt.Sprintf("%d GB DDR4 RAM", 32+i), "2 x 512 GB NVMe SSD"))
	}
	f.products = append(
		f.products,
		product("GEX44", "Intel® Core™ i5-13500 14-Core", "64 GB DDR4 RAM", "2 x 1.92 TB NVMe SSD (Gen3)", "NVIDIA RTX™ 4000 SFF Ada Generation"),
		product("RX170", "Ampere® Altra® Q80-30 80 Cores", "128 GB DDR4 ECC RAM", "2 x 960 GB NVMe SSD"),
	)
	f.market = append(
		f.market, auction(283693, "SB110", "Intel Core i7 980x", "6x RAM 4096 MB DDR3", "2x HDD 1,5 TB SATA", "2x SSD 120 GB SATA", "RAID Controller 4-Port SATA PCI-E - Adaptec 5405"),
		auction(283694, "SB38", "Intel Core i7-8700", "2x RAM 32768 MB DDR4", "2x SSD M.2 NVMe 1 TB", "1x GPU - GeForce GTX 1080"),
	)
	f.serve(321, "server1", "EX44", "FSN1-DC14")
	f.serve(421, "server2", "Server Auction", "NBG1-DC1")
	return f
}

func prices(net, hourly, setup string, locations ...string) []object {
	all := []object{}
	for _, l := range locations {
		all = append(all, object{
			"location": l, "price": object{"net": net, "gross": net, "hourly_net": hourly, "hourly_gross": hourly}, "price_setup": object{"net": setup, "gross": setup},
		})
	}
	return all
}

func addons(locations ...string) []object {
	return []object{{"id": "primary_ipv4", "name": "Primary IPv4", "min": 0, "max": 1, "prices": prices("1.7000", "0.0027", "0.0000", locations...)}}
}

func product(id string, description ...string) object {
	return object{"product": object{
		"id": id, "name": "Dedicated Server " + id, "description": description, "traffic": "unlimited", "dist": []string{"Rescue system"}, "arch": []int{64}, "lang": []string{"en"},
		"location": []string{"FSN1", "HEL1"}, "prices": prices("39.0000", "0.0625", "39.0000", "FSN1", "HEL1"), "orderable_addons": addons("FSN1", "HEL1"),
	}}
}

func auction(id int, name string, description ...string) object {
	return object{"product": object{
		"id": id, "name": name, "description": description, "traffic": "unlimited", "dist": []string{"Rescue system"}, "arch": []int{64}, "lang": []string{"en"}, "cpu": description[0],
		"cpu_benchmark": 8944, "memory_size": 24, "hdd_size": 1536, "hdd_text": "ENT.HDD ECC INIC", "hdd_count": 2, "datacenter": "FSN1-DC5", "network_speed": "1 Gbit/s",
		"price": "91.60", "price_hourly": "0.1468", "price_setup": "0.00", "price_vat": "109.00", "price_hourly_vat": "0.1747", "price_setup_vat": "0.00", "fixed_price": false,
		"next_reduce": -10800, "next_reduce_date": "2018-05-01 12:22:00", "orderable_addons": addons("FSN1", "NBG1"),
	}}
}

// serve makes a server. The caller holds the lock, or nobody else has the fake yet.
func (f *fake) serve(number int, name, product, dc string) object {
	s := object{
		"server_ip": f.address, "server_ipv6_net": "2a01:4f8:111:4221::", "server_number": number, "server_name": name, "product": product, "dc": dc, "traffic": "unlimited",
		"status": "ready", "cancelled": false, "paid_until": "2026-12-02", "ip": []string{f.address}, "subnet": []object{{"ip": "2a01:4f8:111:4221::", "mask": "64"}},
	}
	f.servers = append(f.servers, object{"server": s})
	f.rescues[number] = &rescueOf{}
	return s
}

// place gives the first server, and those that are ordered from then on, an address.
func (f *fake) place(address string) {
	f.address = address
	f.servers[0]["server"].(object)["server_ip"] = address
}

// sold counts the orders that carry the operation's key and that have not ended with a cancellation.
func (f *fake) sold(operationID string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, o := range slices.Concat(slices.Collect(maps.Values(f.orders))...) {
		t := o["transaction"].(object)
		carries := slices.ContainsFunc(t["authorized_key"].([]object), func(k object) bool { return k["key"].(object)["name"] == operationID })
		s := f.server(fmt.Sprint(t["server_number"]))
		if carries && t["status"] != "cancelled" && (s == nil || s["cancelled"] == false) {
			n++
		}
	}
	return n
}

func (f *fake) server(number string) object {
	for _, s := range f.servers {
		if fmt.Sprint(s["server"].(object)["server_number"]) == number {
			return s["server"].(object)
		}
	}
	return nil
}

// booted gives what the server has booted since the last look.
func (f *fake) booted(number int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	what := f.boots[number]
	delete(f.boots, number)
	return what
}

// tell has Robot know the host key of the rescue system that has booted.
func (f *fake) tell(number int, fingerprint string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rescues[number].hostKeys = []object{
		{"key": object{"fingerprint": "c1:e4:08:73:dd:f7:e9:d1:94:ab:e9:0f:28:b2:d2:ed", "type": "DSA", "size": 1024}},
		{"key": object{"fingerprint": fingerprint, "type": "ED25519", "size": 256}},
	}
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func refusal(status int, code string, more ...string) string {
	e := object{"status": status, "code": code, "message": strings.ToLower(code)}
	if code == "INVALID_INPUT" {
		e["missing"], e["invalid"] = nil, more
	}
	text, _ := json.Marshal(object{"error": e})
	return string(text)
}

func refuse(w http.ResponseWriter, status int, code string, more ...string) {
	answer(w, status, json.RawMessage(refusal(status, code, more...)))
}

// ServeHTTP answers as Robot does.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name, password, _ := r.BasicAuth(); name != user || password != secret {
		f.wrong++
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED")
		return
	}
	if r.Method == http.MethodPost && r.Header.Get("Content-Type") != "application/x-www-form-urlencoded" || r.ParseForm() != nil {
		refuse(w, http.StatusBadRequest, "INVALID_INPUT")
		return
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case parts[0] == "key":
		f.key(w, r, parts)
	case parts[0] == "order" && len(parts) == 3:
		f.order(w, r, parts[1], parts[2])
	case parts[0] == "server" && len(parts) == 1:
		f.list(w, "SERVER_NOT_FOUND", f.servers)
	case len(parts) > 1 && f.server(parts[1]) == nil:
		refuse(w, http.StatusNotFound, "SERVER_NOT_FOUND")
	case parts[0] == "server":
		f.one(w, r, f.server(parts[1]), len(parts) == 3)
	case parts[0] == "boot" && len(parts) >= 3:
		f.boot(w, r, f.server(parts[1]), len(parts) == 4)
	case parts[0] == "reset" && r.Method == http.MethodPost && takes(r, "type"):
		f.reset(w, f.server(parts[1]))
	default:
		refuse(w, http.StatusNotFound, "NOT_FOUND")
	}
}

// takes reports whether the request has no parameters but these.
func takes(r *http.Request, names ...string) bool {
	for name := range r.Form {
		if !slices.Contains(names, name) {
			return false
		}
	}
	return true
}

func (f *fake) list(w http.ResponseWriter, none string, items []object) {
	if len(items) == 0 {
		refuse(w, http.StatusNotFound, none)
		return
	}
	answer(w, http.StatusOK, items)
}

func (f *fake) keyOf(fingerprint string) object {
	i := slices.IndexFunc(f.keys, func(k object) bool { return k["key"].(object)["fingerprint"] == fingerprint })
	if i < 0 {
		return nil
	}
	return f.keys[i]
}

func (f *fake) key(w http.ResponseWriter, r *http.Request, parts []string) {
	switch {
	case r.Method == http.MethodGet && len(parts) == 1:
		f.list(w, "NOT_FOUND", f.keys)
	case r.Method == http.MethodDelete && len(parts) == 2:
		if f.keyOf(parts[1]) == nil {
			refuse(w, http.StatusNotFound, "NOT_FOUND")
			return
		}
		f.keys = slices.DeleteFunc(f.keys, func(k object) bool { return k["key"].(object)["fingerprint"] == parts[1] })
	case r.Method == http.MethodPost && len(parts) == 1 && takes(r, "name", "data") && r.Form.Get("name") != "":
		print, err := legacyOf(r.Form.Get("data"))
		switch {
		case err != nil:
			refuse(w, http.StatusBadRequest, "INVALID_INPUT", "data")
		case f.keyOf(print) != nil:
			refuse(w, http.StatusConflict, "KEY_ALREADY_EXISTS")
		default:
			k := object{"key": object{"name": r.Form.Get("name"), "fingerprint": print, "type": "ED25519", "size": 256, "data": r.Form.Get("data"), "created_at": "2026-11-30 03:00:00"}}
			f.keys = append(f.keys, k)
			answer(w, http.StatusCreated, k)
		}
	default:
		refuse(w, http.StatusBadRequest, "INVALID_INPUT", "name")
	}
}

func (f *fake) order(w http.ResponseWriter, r *http.Request, kind, what string) {
	catalogue := map[string]*[]object{"server": &f.products, "server_market": &f.market}[kind]
	switch {
	case r.Method == http.MethodGet && what == "product":
		f.list(w, "NOT_FOUND", *catalogue)
	case r.Method == http.MethodGet:
		for _, o := range f.orders[kind] {
			f.look(o["transaction"].(object))
		}
		f.list(w, "NOT_FOUND", f.orders[kind])
	case !takes(r, "product_id", "authorized_key[]", "location", "addon[]") || kind == "server_market" && r.Form.Has("location"):
		refuse(w, http.StatusBadRequest, "INVALID_INPUT", "comment")
	default:
		f.sell(w, r, kind, catalogue)
	}
}

func (f *fake) sell(w http.ResponseWriter, r *http.Request, kind string, catalogue *[]object) {
	i := slices.IndexFunc(*catalogue, func(p object) bool { return fmt.Sprint(p["product"].(object)["id"]) == r.Form.Get("product_id") })
	if i < 0 {
		refuse(w, http.StatusBadRequest, "INVALID_INPUT", "product_id")
		return
	}
	keys := []object{}
	for _, print := range r.Form["authorized_key[]"] {
		if f.keyOf(print) == nil {
			refuse(w, http.StatusBadRequest, "INVALID_INPUT", "authorized_key")
			return
		}
		k := maps.Clone(f.keyOf(print)["key"].(object))
		delete(k, "data")
		keys = append(keys, object{"key": k})
	}
	p := maps.Clone((*catalogue)[i]["product"].(object))
	if l := r.Form.Get("location"); kind == "server" && !slices.Contains(p["location"].([]string), l) {
		refuse(w, http.StatusBadRequest, "INVALID_INPUT", "location")
		return
	}
	p["location"], p["dist"], p["arch"], p["lang"] = r.Form.Get("location"), "Rescue system", "64", "en"
	f.nextID++
	o := object{"transaction": object{
		"id": fmt.Sprintf("B20261130-%d", f.nextID), "date": "2026-11-30T04:00:00+01:00", "status": "in process", "server_number": nil, "server_ip": nil, "authorized_key": keys,
		"host_key": []object{}, "comment": nil, "product": p, "addons": append([]string{}, r.Form["addon[]"]...),
	}}
	f.orders[kind] = append(f.orders[kind], o)
	if kind == "server_market" {
		*catalogue = slices.Delete(*catalogue, i, i+1)
	}
	answer(w, http.StatusCreated, o)
}

// look is a look at an order, which is delivered after some.
func (f *fake) look(t object) {
	id := t["id"].(string)
	if f.looks[id]++; t["status"] != "in process" || f.looks[id] <= f.making {
		return
	}
	if f.cancelling {
		t["status"] = "cancelled"
		return
	}
	f.nextID++
	dc, _ := t["product"].(object)["datacenter"].(string)
	if dc == "" {
		dc = t["product"].(object)["location"].(string) + "-DC14"
	}
	f.serve(f.nextID, "", fmt.Sprint(t["product"].(object)["id"]), dc)
	t["status"], t["server_number"], t["server_ip"] = "ready", f.nextID, f.address
}

func (f *fake) one(w http.ResponseWriter, r *http.Request, s object, cancellation bool) {
	number := s["server_number"].(int)
	switch {
	case cancellation && r.Method == http.MethodPost && takes(r, "cancellation_date", "cancellation_reason", "reserve_location"):
		if s["cancelled"] == true {
			refuse(w, http.StatusConflict, "CONFLICT")
			return
		}
		s["cancelled"], f.cancelledFor[number] = true, maps.Clone(r.Form)
		fallthrough
	case cancellation && r.Method == http.MethodGet:
		answer(w, http.StatusOK, object{"cancellation": object{
			"server_ip": s["server_ip"], "server_ipv6_net": s["server_ipv6_net"], "server_number": number, "server_name": s["server_name"], "earliest_cancellation_date": f.earliest,
			"cancelled": s["cancelled"], "reservation_possible": true, "reserved": false, "cancellation_date": nil, "cancellation_reason": nil,
		}})
	case !cancellation && r.Method == http.MethodPost && takes(r, "server_name"):
		s["server_name"] = r.Form.Get("server_name")
		fallthrough
	case !cancellation && r.Method == http.MethodGet:
		detailed := maps.Clone(s)
		for _, flag := range []string{"reset", "rescue", "vnc", "windows", "plesk", "cpanel", "wol", "hot_swap"} {
			detailed[flag] = true
		}
		answer(w, http.StatusOK, object{"server": detailed})
	default:
		refuse(w, http.StatusBadRequest, "INVALID_INPUT")
	}
}

func (f *fake) boot(w http.ResponseWriter, r *http.Request, s object, last bool) {
	number := s["server_number"].(int)
	b := f.rescues[number]
	switch {
	case last && b.last == nil:
		refuse(w, http.StatusNotFound, "NOT_FOUND")
		return
	case r.Method == http.MethodPost && takes(r, "os", "authorized_key") && r.Form.Get("os") == "linux" && f.keyOf(r.Form.Get("authorized_key")) != nil:
		b.active, b.keys = true, r.Form["authorized_key"]
	case r.Method == http.MethodDelete:
		b.active, b.keys = false, nil
	case r.Method == http.MethodPost:
		refuse(w, http.StatusBadRequest, "INVALID_INPUT", "authorized_key")
		return
	}
	shown, active, hostKeys := b.keys, b.active, []object{}
	if last {
		shown, active, hostKeys = b.last, false, append(hostKeys, b.hostKeys...)
	}
	keys := []object{}
	for _, print := range shown {
		keys = append(keys, object{"key": object{"fingerprint": print, "name": "key", "size": 256, "type": "ED25519"}})
	}
	out := object{
		"server_ip": s["server_ip"], "server_ipv6_net": s["server_ipv6_net"], "server_number": number, "os": []string{"linux", "vkvm"}, "arch": []int{64, 32}, "active": active,
		"password": nil, "authorized_key": keys, "host_key": hostKeys,
	}
	if active || last {
		out["os"], out["arch"], out["password"] = "linux", 64, "jEt0dtUvomlyOwRr"
	}
	answer(w, http.StatusOK, object{"rescue": out})
}

func (f *fake) reset(w http.ResponseWriter, s object) {
	number := s["server_number"].(int)
	b := f.rescues[number]
	f.boots[number] = "disk"
	if b.active {
		f.boots[number] = "rescue"
		b.active, b.last, b.keys, b.hostKeys = false, b.keys, nil, nil
	}
	answer(w, http.StatusOK, object{"reset": object{"server_ip": s["server_ip"], "server_number": number, "type": "hw"}})
}

func number(n int) string { return strconv.Itoa(n) }
