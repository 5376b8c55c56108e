package ironic_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"better/compute/apitest/harness"
	"better/compute/provider"
	"better/compute/provider/providertest"
)

// server is an Ironic of Debian's with fake hardware, which does what a real node would but for being there.
type server struct {
	t        testing.TB
	url, dir string
}

const configuration = `
[DEFAULT]
auth_strategy = http_basic
http_basic_auth_user_file = %[1]s/users
rpc_transport = json-rpc
host = 127.0.0.1
my_ip = 127.0.0.1
state_path = %[1]s
default_log_levels = eventlet=WARN
enabled_hardware_types = fake-hardware
enabled_bios_interfaces = fake
enabled_boot_interfaces = fake
enabled_console_interfaces = fake
enabled_deploy_interfaces = fake
enabled_inspect_interfaces = fake
enabled_management_interfaces = fake
enabled_network_interfaces = noop
enabled_power_interfaces = fake
enabled_raid_interfaces = fake
enabled_rescue_interfaces = fake
enabled_storage_interfaces = noop
enabled_vendor_interfaces = fake
[api]
host_ip = 127.0.0.1
port = %[2]d
api_workers = 1
[conductor]
automated_clean = false
[database]
connection = sqlite:///%[1]s/ironic.db
[json_rpc]
auth_strategy = noauth
host_ip = 127.0.0.1
port = %[3]d
`

// startServer starts Ironic and ends it with the test. Where it is not installed the test is skipped, but not in CI.
func startServer(t *testing.T) *server {
	t.Helper()
	for _, program := range []string{"ironic-api", "ironic-conductor", "ironic-dbsync"} {
		if _, err := exec.LookPath(program); err != nil {
			why := "there is no " + program + " to try: make deps installs it where it may"
			if os.Getenv("CI") != "" {
				t.Fatal(why)
			}
			t.Skip(why)
		}
	}
	dir := t.TempDir()
	password, err := bcrypt.GenerateFromPassword([]byte(secret), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	port, rpc := freePort(t), freePort(t)
	write(t, dir+"/users", "compute:"+string(password)+"\n")
	write(t, dir+"/ironic.conf", fmt.Sprintf(configuration, dir, port, rpc))
	out, err := exec.CommandContext(t.Context(), "ironic-dbsync", "--config-file", dir+"/ironic.conf", "create_schema").CombinedOutput()
	if err != nil {
		t.Fatalf("making Ironic's tables: %v\n%s", err, out)
	}
	s := &server{t: t, url: fmt.Sprintf("http://127.0.0.1:%d", port), dir: dir}
	s.run(dir, "ironic-conductor")
	s.run(dir, "ironic-api")
	s.await("Ironic to answer", func() bool {
		var drivers struct{ Drivers []any }
		return s.try(http.MethodGet, "/v1/drivers", nil, &drivers) == nil && len(drivers.Drivers) == 1
	})
	return s
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	return int(netip.MustParseAddrPort(harness.FreeAddress(t, "127.0.0.1")).Port())
}

// run starts a daemon. Its log is shown when the test fails.
func (s *server) run(dir, program string) {
	s.t.Helper()
	path := filepath.Join(dir, program+".log")
	log, err := os.Create(path)
	if err != nil {
		s.t.Fatal(err)
	}
	command := exec.Command(program, "--config-file", dir+"/ironic.conf")
	command.Stdout, command.Stderr, command.Dir = log, log, dir
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(20*time.Second, func() { _ = command.Process.Kill() })
		_ = command.Wait()
		late.Stop()
		_ = log.Close()
		if text, err := os.ReadFile(path); err == nil && s.t.Failed() {
			s.t.Logf("%s:\n%s", program, text[max(0, len(text)-6_000):])
		}
	})
}

// try makes a call as Ironic's operator.
func (s *server) try(method, path string, body, into any) error {
	var text io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		text = bytes.NewReader(encoded)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, text)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-OpenStack-Ironic-API-Version", "1.65")
	request.SetBasicAuth("compute", secret)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	told, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %d %s (%w)", method, path, response.StatusCode, told, err)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(told, into)
}

// must makes a call, again while the node is locked.
func (s *server) must(method, path string, body, into any) {
	s.t.Helper()
	s.await(path, func() bool {
		err := s.try(method, path, body, into)
		if err != nil && !strings.Contains(err.Error(), "locked") {
			s.t.Fatal(err)
		}
		return err == nil
	})
}

func (s *server) await(what string, done func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (s *server) reaches(id, state string) {
	s.t.Helper()
	s.await("node "+id+" to be "+state, func() bool {
		var n struct {
			ProvisionState string `json:"provision_state"`
			LastError      string `json:"last_error"`
		}
		s.must(http.MethodGet, "/v1/nodes/"+id, nil, &n)
		if n.LastError != "" {
			s.t.Fatalf("node %s: %s", id, n.LastError)
		}
		return n.ProvisionState == state
	})
}

func (s *server) drive(id, target, state string, more object) {
	s.t.Helper()
	body := object{"target": target}
	maps.Copy(body, more)
	s.must(http.MethodPut, "/v1/nodes/"+id+"/states/provision", body, nil)
	s.reaches(id, state)
}

// enroll makes a node that can be had.
func (s *server) enroll(class string, number int) (id string) {
	s.t.Helper()
	var n struct{ UUID string }
	s.must(http.MethodPost, "/v1/nodes", object{
		"driver": "fake-hardware", "name": fmt.Sprintf("node-%d", number), "resource_class": class, "extra": object{"serial": fmt.Sprintf("SN%03d", number)},
		"properties": object{"cpus": 96, "memory_mb": 2097152, "cpu_arch": "x86_64", "local_gb": 7680, "capabilities": "gpu_model:H100-SXM,gpu_count:8"},
	}, &n)
	s.drive(n.UUID, "manage", "manageable", nil)
	// Ironic gives no node out whose power state it has not seen.
	s.must(http.MethodPut, "/v1/nodes/"+n.UUID+"/states/power", object{"target": "power off"}, nil)
	s.await("the power state", func() bool {
		var n2 struct {
			PowerState string `json:"power_state"`
		}
		s.must(http.MethodGet, "/v1/nodes/"+n.UUID, nil, &n2)
		return n2.PowerState == "power off"
	})
	s.drive(n.UUID, "provide", "available", nil)
	return n.UUID
}

func (s *server) sold(operationID string) int {
	var list struct {
		Allocations []struct{ Name, State string }
	}
	s.must(http.MethodGet, "/v1/allocations", nil, &list)
	n := 0
	for _, a := range list.Allocations {
		if a.Name == operationID && a.State != "error" {
			n++
		}
	}
	return n
}

const realTests = "It is arranged on the fake."

// TestServer asks of a real Ironic what the fake is asked while nothing goes wrong, and then takes a node through its whole life.
func TestServer(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	for number := range 6 {
		s.enroll(class, number)
	}
	mine := s.enroll("metal.mine", 6)
	s.must(http.MethodPatch, "/v1/nodes/"+mine, []object{{"op": "add", "path": "/instance_info/image_source", "value": "http://images.test/debian.raw"}}, nil)
	s.drive(mine, "active", "active", nil)
	account := func(t *testing.T) *providertest.Account {
		t.Helper()
		return &providertest.Account{
			Client: rig.Open(s.url, options{}), Secret: secret, OfferID: class + ":default", MachineID: mine, Sold: s.sold, Payload: providertest.Payload,
		}
	}
	t.Run("conformance", func(t *testing.T) {
		elsewhere := providertest.None(realTests)
		providertest.Run(t, providertest.Config{
			Driver: rig.Driver("http://127.0.0.1:1", 0), Configs: []string{plain, open}, Plain: providertest.Situation{Arrange: account},
			ThreePages: elsewhere, EmptyLastPage: elsewhere, RepeatedPage: elsewhere, ExtraFields: elsewhere, MissingPrice: elsewhere, UnknownGPU: elsewhere, OddIDs: elsewhere,
			AnswerLost: elsewhere, OrderFails: elsewhere, HalfAnswer: elsewhere, Spoilt: providertest.SpoiltOrder{Reason: realTests}, OutOfStock: elsewhere, OfferGone: elsewhere, Quota: elsewhere, Payment: elsewhere,
			OutOfStockLater: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
				t.Helper()
				a := account(t)
				a.OfferID = "metal.mine:default" // the only node is in use
				return a
			}},
			Locked: elsewhere, Forbidden: elsewhere, RateLimited: elsewhere, RateLimitedFor: elsewhere, Down: elsewhere, Hangs: elsewhere, Garbage: elsewhere, InstallFails: elsewhere,
			Unauthorized: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
				t.Helper()
				a := account(t)
				a.Client = rig.Open(s.url, options{Config: strings.Replace(plain, `"compute"`, `"nobody"`, 1)})
				return a
			}},
		})
	})
	t.Run("a node's life", func(t *testing.T) { s.testLife(t, account(t)) })
}

// testLife orders a node, deploys, has it in rescue, deploys again, and gives it back.
func (s *server) testLife(t *testing.T, a *providertest.Account) {
	t.Helper()
	defer func() { _ = a.Client.Close() }()
	b := a.Client.(interface {
		provider.Bootstrapper
		provider.Orderer
	})
	const operation = "bcd-of-a-life"
	if _, err := b.Order(t.Context(), provider.Order{OperationID: operation, OfferID: a.OfferID}); err != nil {
		t.Fatal(err)
	}
	var id string
	s.await("the node", func() bool {
		claim, err := b.FindClaim(t.Context(), operation)
		if err != nil {
			t.Fatal(err)
		}
		id = claim.MachineID
		return claim.State == provider.ClaimReady
	})
	for generation := range 2 {
		s.await("a node that is ready", func() bool {
			p, err := b.Prepare(t.Context(), id)
			if err != nil && provider.ClassOf(err) != provider.Conflict {
				t.Fatal(err)
			}
			return err == nil && p.Ready
		})
		s.await("the delivery", func() bool {
			_, err := b.Install(t.Context(), id, providertest.Payload(generation))
			if err != nil && provider.ClassOf(err) != provider.Conflict {
				t.Fatal(err)
			}
			return err == nil
		})
		s.reaches(id, "active")
		if generation == 0 {
			s.drive(id, "rescue", "rescue", object{"rescue_password": "of no use"})
		}
	}
	s.await("the release", func() bool {
		err := b.Release(t.Context(), operation, id)
		if err != nil && provider.ClassOf(err) != provider.Conflict {
			t.Fatal(err)
		}
		return err == nil
	})
	s.reaches(id, "available")
	if claim, err := b.FindClaim(t.Context(), operation); claim != nil || err != nil {
		t.Errorf("after the release: %+v, %v", claim, err)
	}
}
