package lambda_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

const secret = "canary-3a77c4"

type object = map[string]any

// fake is an account at Lambda.
type fake struct {
	mu    sync.Mutex
	types map[string]object
	// booting is how many looks at an instance it takes until it is up.
	booting int
	// limit is the number of instances that the account may have; 0 is none.
	limit int
	// soldOut are types that are listed and cannot be had.
	soldOut []string
	// address is where all instances are.
	address   string
	instances []object
	looks     map[string]int
	userData  map[string]string
	made      int
}

func newFake() *fake {
	f := &fake{types: map[string]object{}, address: "203.0.113.7", looks: map[string]int{}, userData: map[string]string{}}
	f.add("gpu_1x_h100_sxm5", "H100 (80 GB SXM5)", 1, 329, "us-east-1", "us-west-2")
	f.add("gpu_8x_a100", "A100 (40 GB SXM4)", 8, 1032, "us-west-1")
	f.add("gpu_1x_gh200", "GH200 (96 GB)", 1, 149, "us-east-3")
	f.add("gpu_1x_rtx6000", "RTX 6000 (24 GB)", 1, 50, "us-east-1")
	f.add("cpu_4x_general", "N/A", 0, 20, "us-east-1")
	f.add("gpu_8x_b200_sxm6", "B200 (180 GB SXM6)", 8, 3992)
	f.create("existing", "gpu_1x_h100_sxm5", "us-east-1", nil)
	return f
}

func (f *fake) add(name, gpu string, gpus, cents int, regions ...string) {
	with := []object{}
	for _, r := range regions {
		with = append(with, object{"name": r, "description": "Somewhere"})
	}
	f.types[name] = object{
		"instance_type": object{
			"name": name, "description": fmt.Sprintf("%dx %s", gpus, gpu), "gpu_description": gpu, "price_cents_per_hour": cents,
			"specs": object{"vcpus": 26, "memory_gib": 225, "storage_gib": 2816, "gpus": gpus},
		},
		"regions_with_capacity_available": with,
	}
}

// typeOf is what is told of a type.
func (f *fake) typeOf(name string) object { return f.types[name]["instance_type"].(object) }

func id(n int) string { return fmt.Sprintf("0920582c7ff041399e34823a%08x", n) }

// create makes an instance. The caller holds the lock, or nobody else has the fake yet.
func (f *fake) create(name, typeName, region string, tags []object) object {
	f.made++
	action := object{"available": true}
	i := object{
		"id": id(f.made), "name": name, "ip": f.address, "private_ip": "10.19.60.24", "status": "active", "ssh_key_names": []string{"compute"}, "file_system_names": []string{},
		"region": object{"name": region, "description": "Somewhere"}, "instance_type": f.types[typeName]["instance_type"], "tags": append([]object{}, tags...),
		"actions": object{"migrate": action, "rebuild": action, "restart": action, "cold_reboot": action, "terminate": action},
	}
	f.instances = append(f.instances, i)
	return i
}

func (f *fake) sold(operationID string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, i := range f.instances {
		if i["status"] != "terminated" && slices.ContainsFunc(i["tags"].([]object), func(t object) bool { return t["value"] == operationID }) {
			n++
		}
	}
	return n
}

func (f *fake) find(id string) object {
	for _, i := range f.instances {
		if i["id"] == id {
			return i
		}
	}
	return nil
}

// ServeHTTP is the API.
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+secret {
		refuse(w, http.StatusUnauthorized, "global/invalid-api-key", "API key was invalid, expired, or deleted.")
		return
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/instance-types", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, object{"data": f.types}) })
	mux.HandleFunc("GET /api/v1/instances", func(w http.ResponseWriter, _ *http.Request) {
		for _, i := range f.instances {
			f.look(i)
		}
		answer(w, http.StatusOK, object{"data": append([]object{}, f.instances...)})
	})
	mux.HandleFunc("GET /api/v1/instances/{id}", func(w http.ResponseWriter, r *http.Request) {
		if i := f.find(r.PathValue("id")); i != nil {
			f.look(i)
			answer(w, http.StatusOK, object{"data": i})
			return
		}
		notFound(w)
	})
	mux.HandleFunc("POST /api/v1/instance-operations/launch", f.launch)
	mux.HandleFunc("POST /api/v1/instance-operations/terminate", f.terminate)
	mux.ServeHTTP(w, r)
}

func answer(w http.ResponseWriter, status int, body object) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func notFound(w http.ResponseWriter) {
	refuse(w, http.StatusNotFound, "global/object-does-not-exist", "Specified instance does not exist.")
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	answer(w, status, object{"error": object{"code": code, "message": message, "suggestion": "Try something else."}})
}

func refusal(code, message string) string {
	return fmt.Sprintf(`{"error":{"code":%q,"message":%q,"suggestion":"Try something else."}}`, code, message)
}

func (f *fake) look(i object) {
	id := i["id"].(string)
	if i["status"] != "booting" {
		return
	}
	if f.looks[id]++; f.looks[id] > f.booting {
		i["status"], i["ip"] = "active", f.address
	}
}

func (f *fake) launch(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Region   string   `json:"region_name"`
		Type     string   `json:"instance_type_name"`
		Keys     []string `json:"ssh_key_names"`
		Name     string
		Tags     []object
		UserData string `json:"user_data"`
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	t := f.types[in.Type]
	if t == nil {
		refuse(w, http.StatusBadRequest, "global/invalid-parameters", "Invalid request data: unknown instance type.")
		return
	}
	capacity := slices.ContainsFunc(t["regions_with_capacity_available"].([]object), func(r object) bool { return r["name"] == in.Region })
	switch {
	case !capacity, slices.Contains(f.soldOut, in.Type):
		refuse(w, http.StatusBadRequest, "instance-operations/launch/insufficient-capacity", "Not enough capacity to fulfill launch request.")
	case !slices.Equal(in.Keys, []string{"compute"}):
		refuse(w, http.StatusNotFound, "global/object-does-not-exist", "Specified SSH key does not exist.")
	case f.limit > 0 && len(f.instances) >= f.limit:
		refuse(w, http.StatusBadRequest, "global/quota-exceeded", "Quota exceeded.")
	default:
		i := f.create(in.Name, in.Type, in.Region, in.Tags)
		f.userData[i["id"].(string)] = in.UserData
		i["status"] = "booting"
		delete(i, "ip")
		answer(w, http.StatusOK, object{"data": object{"instance_ids": []string{i["id"].(string)}}})
	}
}

// terminate keeps showing what was terminated.
func (f *fake) terminate(w http.ResponseWriter, r *http.Request) {
	var in struct {
		IDs []string `json:"instance_ids"`
	}
	_ = json.NewDecoder(r.Body).Decode(&in)
	i := f.find(strings.Join(in.IDs, ","))
	if i == nil {
		notFound(w)
		return
	}
	i["status"] = "terminated"
	answer(w, http.StatusOK, object{"data": object{"terminated_instances": []object{i}}})
}
