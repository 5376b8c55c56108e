package cloud_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"better/compute/internal/leaktest"
	"better/compute/provider/sim/cloud"
)

// TestMain lets the test binary stand in for two other programs: an agent, when a machine runs it with bcd's arguments, and a
// cloud server that can be killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "run" {
		runAgent()
	}
	if dir := os.Getenv("CLOUD_TEST_DIR"); dir != "" {
		serveUntilKilled(dir)
	}
	leaktest.Main(m)
}

// runAgent writes its process id and the machine's serial where a test finds them, and lives until it is killed.
func runAgent() {
	serial, err := os.ReadFile("sys/class/dmi/id/product_serial")
	if err != nil {
		fmt.Println("no serial:", err)
		os.Exit(1)
	}
	fmt.Println("agent of", strings.TrimSpace(string(serial)))
	if err := os.WriteFile("pid.tmp", []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		os.Exit(1)
	}
	_ = os.Rename("pid.tmp", "pid")
	select {}
}

func serveUntilKilled(dir string) {
	c, err := cloud.Open(options(dir))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		os.Exit(1)
	}
	fmt.Printf("http://%s\n", listener.Addr())
	_ = http.Serve(listener, c.Handler())
	os.Exit(1)
}

func options(dir string) cloud.Options {
	self, _ := os.Executable()
	return cloud.Options{Dir: dir, AgentBinary: self, ReadyDelay: time.Millisecond, InstallDelay: time.Millisecond}
}

// client calls one cloud as one project.
type client struct {
	t    *testing.T
	url  string
	test *http.Client
	as   string
}

func setup(t *testing.T, change ...func(*cloud.Options)) *client {
	t.Helper()
	c, _ := open(t, t.TempDir(), change...)
	return c
}

func open(t *testing.T, dir string, change ...func(*cloud.Options)) (*client, *cloud.Cloud) {
	t.Helper()
	o := options(dir)
	for _, f := range change {
		f(&o)
	}
	c, err := cloud.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(c.Handler())
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Errorf("closing the cloud: %v", err)
		}
		server.Close()
	})
	return newClient(t, server.URL), c
}

func newClient(t *testing.T, url string) *client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, url: url, as: "alice", test: &http.Client{Transport: transport, Timeout: patience}}
}

func (c *client) token(token string) *client {
	other := *c
	other.as = token
	return &other
}

// try makes a call and gives what came back, or the error of the transport.
func (c *client) try(method, path string, body any) (status int, header http.Header, answer []byte, err error) {
	var reader io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(body)
	default:
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, nil, err
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, reader)
	if err != nil {
		return 0, nil, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+c.as)
	request.Header.Set(cloud.AdminHeader, "test")
	response, err := c.test.Do(request)
	if err != nil {
		return 0, nil, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, response.Header, answer, err
}

// call makes a call that must end with the status, and decodes its answer.
func call[T any](c *client, status int, method, path string, body any) T {
	c.t.Helper()
	got, _, answer, err := c.try(method, path, body)
	if err != nil {
		c.t.Fatalf("%s %s: %v", method, path, err)
	}
	if got != status {
		c.t.Fatalf("%s %s: status %d, want %d: %s", method, path, got, status, answer)
	}
	var decoded T
	if len(answer) > 0 {
		if err := json.Unmarshal(answer, &decoded); err != nil {
			c.t.Fatalf("%s %s: %v in %s", method, path, err, answer)
		}
	}
	return decoded
}

type failure struct {
	Error     struct{ Code, Message string }
	RequestID string
}

// refused makes a call that must fail with the status and the code.
func (c *client) refused(status int, code, method, path string, body any) {
	c.t.Helper()
	f := call[failure](c, status, method, path, body)
	if f.Error.Code != code || f.Error.Message == "" || f.RequestID == "" {
		c.t.Fatalf("%s %s: got %+v, want code %s, a message and a request id", method, path, f, code)
	}
}

type object = map[string]any

func order(name string) object {
	return object{"offerId": "vps-small:fra1", "name": name, "labels": object{"operation": name}, "clientToken": name}
}

func (c *client) order(name string) cloud.Machine {
	c.t.Helper()
	return call[cloud.Machine](c, 201, "POST", "/v1/machines", order(name))
}

type machinePage struct {
	Machines []cloud.Machine
	NextPage *int
}

func (c *client) named(name string) []cloud.Machine {
	c.t.Helper()
	return call[machinePage](c, 200, "GET", "/v1/machines?name="+name, nil).Machines
}

// patience bounds every wait for what happens by itself, on a machine that is busy. Success waits for nothing.
const patience = 3 * time.Minute

func (c *client) await(what string, done func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if done() {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (c *client) awaitStatus(id, status string) {
	c.t.Helper()
	c.await("status "+status, func() bool {
		return call[cloud.Machine](c, 200, "GET", "/v1/machines/"+id, nil).Status == status
	})
}

var installBody = object{
	"files": []object{{"path": "/etc/bcd/config", "mode": "0600", "content": []byte("x")}},
	"exec":  []string{"bcd", "run", "--config", "etc/bcd/config"},
}

func (c *client) install(id string, body object) string {
	c.t.Helper()
	c.awaitStatus(id, cloud.StatusReady)
	return call[struct{ InstallID string }](c, 202, "POST", "/v1/machines/"+id+"/install", body).InstallID
}

type installStatus struct {
	State    string
	ExitCode *int
	Log      []string
}

func (c *client) awaitInstall(id, install string) installStatus {
	c.t.Helper()
	var status installStatus
	c.await("the end of the install", func() bool {
		status = call[installStatus](c, 200, "GET", "/v1/machines/"+id+"/install/"+install, nil)
		return status.State != cloud.InstallRunning
	})
	return status
}

func (c *client) fault(rule object) {
	c.t.Helper()
	call[any](c, 204, "POST", "/v1/_faults", []object{rule})
}

// agentPID waits for the agent of a machine and gives its process id.
func (c *client) agentPID(dir, id string) int {
	c.t.Helper()
	var pid int
	c.await("the agent of "+id, func() bool {
		data, err := os.ReadFile(filepath.Join(dir, "machines", id, "root", "pid"))
		if err == nil {
			pid, err = strconv.Atoi(string(data))
		}
		return err == nil
	})
	return pid
}

// alive does not count a process that is dead and waits for its parent to ask.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func count(t *testing.T, dir, kind string) int {
	t.Helper()
	entries, err := cloud.ReadLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func TestTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _ := open(t, dir)
	c.token("invalid").refused(401, "unauthorized", "GET", "/v1/offers", nil)
	c.token("").refused(401, "unauthorized", "GET", "/v1/offers", nil)
	c.refused(404, "not_found", "GET", "/v2/offers", nil)

	m := c.order("mine")
	bob := c.token("bob")
	bob.refused(404, "not_found", "GET", "/v1/machines/"+m.ID, nil)
	bob.refused(404, "not_found", "DELETE", "/v1/machines/"+m.ID, nil)
	bob.refused(404, "not_found", "POST", "/v1/machines/"+m.ID+"/install", installBody)
	if got := bob.named("mine"); len(got) != 0 {
		t.Errorf("another project sees %v", got)
	}
	if other := bob.order("mine"); other.ID == m.ID {
		t.Error("two projects share a machine")
	}
	ledger, err := os.ReadFile(filepath.Join(dir, "ledger.jsonl"))
	if err != nil || bytes.Contains(ledger, []byte("alice")) {
		t.Errorf("the ledger has the API token in it (or %v)", err)
	}
}

func TestNewProjectHasMachines(t *testing.T) {
	t.Parallel()
	c := setup(t)
	machines := call[machinePage](c, 200, "GET", "/v1/machines", nil).Machines
	kinds := map[string]string{}
	for _, m := range machines {
		kinds[m.Category] = m.Status
	}
	if diff := cmp.Diff(map[string]string{"vps": "ready", "bare_metal": "ready"}, kinds); diff != "" {
		t.Errorf("first machines (-want +got):\n%s", diff)
	}
	others := call[machinePage](c.token("bob"), 200, "GET", "/v1/machines", nil).Machines
	if len(others) != 2 || others[0].ID == machines[0].ID || others[0].Serial == machines[0].Serial {
		t.Errorf("projects share machines: %v and %v", machines, others)
	}
}

func TestOffersPageByPage(t *testing.T) {
	t.Parallel()
	c := setup(t, func(o *cloud.Options) { o.PageSize = 4 })
	type offerPage struct {
		Offers   []cloud.Offer
		NextPage *int
		Total    int
	}
	var got []cloud.Offer
	pages := 0
	for next := new(1); next != nil; pages++ {
		page := call[offerPage](c, 200, "GET", "/v1/offers?page="+strconv.Itoa(*next), nil)
		got, next = append(got, page.Offers...), page.NextPage
	}
	if diff := cmp.Diff(cloud.Catalogue(), got); diff != "" || pages != 4 {
		t.Errorf("%d pages, offers (-want +got):\n%s", pages, diff)
	}
	for _, bad := range []string{"page=0", "page=x", "per_page=-1"} {
		c.refused(422, "invalid_input", "GET", "/v1/offers?"+bad, nil)
	}
	if page := call[offerPage](c, 200, "GET", "/v1/offers?page=1000", nil); len(page.Offers) != 0 || page.NextPage != nil {
		t.Errorf("a page past the end: %+v", page)
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _ := open(t, dir)
	m := c.order("one")
	if again := c.order("one"); again.ID != m.ID {
		t.Errorf("the same client token bought %s and %s", m.ID, again.ID)
	}
	other := order("one")
	other["offerId"] = "vps-small:hel1"
	c.refused(409, "client_token_mismatch", "POST", "/v1/machines", other)
	c.refused(409, "uniqueness_error", "POST", "/v1/machines", object{"offerId": "vps-small:fra1", "name": "one"})
	c.refused(409, "out_of_stock", "POST", "/v1/machines", object{"offerId": "vps-large:nyc-2", "name": "two"})
	c.refused(404, "offer_not_found", "POST", "/v1/machines", object{"offerId": "nothing", "name": "two"})
	for _, bad := range []any{
		"{", `{"name":"a"} {}`, `{"name":"a","surprise":1}`,
		object{"name": "Upper"},
		object{"name": ""},
		object{"name": "a", "labels": object{"a b": "c"}},
		object{"name": "a", "clientToken": strings.Repeat("x", 65)},
	} {
		c.refused(422, "invalid_input", "POST", "/v1/machines", bad)
	}
	c.awaitStatus(m.ID, cloud.StatusReady)
	if got := call[machinePage](c, 200, "GET", "/v1/machines?label=operation=one", nil).Machines; len(got) != 1 || got[0].ID != m.ID {
		t.Errorf("by label: %v", got)
	}

	call[any](c, 204, "DELETE", "/v1/machines/"+m.ID, nil)
	c.refused(404, "not_found", "DELETE", "/v1/machines/"+m.ID, nil)
	c.refused(404, "not_found", "GET", "/v1/machines/"+m.ID, nil)
	c.refused(409, "client_token_spent", "POST", "/v1/machines", order("one"))
	c.order("two")
	if orders, releases := count(t, dir, cloud.EntryOrder), count(t, dir, cloud.EntryRelease); orders != 2 || releases != 1 {
		t.Errorf("the ledger has %d orders and %d releases", orders, releases)
	}
}

func TestConcurrentOrders(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _ := open(t, dir)
	ids := sync.Map{}
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			status, _, answer, err := c.try("POST", "/v1/machines", order("same"))
			var m cloud.Machine
			if err = errors.Join(err, json.Unmarshal(answer, &m)); err != nil || status != 201 {
				t.Errorf("status %d, %v", status, err)
			}
			ids.Store(m.ID, true)
		})
	}
	group.Wait()
	n := 0
	ids.Range(func(any, any) bool { n++; return true })
	if orders := count(t, dir, cloud.EntryOrder); n != 1 || orders != 1 {
		t.Errorf("%d machines, %d orders", n, orders)
	}
}

// Where an order has no client token a second one is a second machine, unless names are unique.
func TestWaysOfOrdering(t *testing.T) {
	t.Parallel()
	for way, refused := range map[string]object{
		cloud.ByName: {"clientToken": "one"}, cloud.ByLabel: {"clientToken": "one"}, cloud.ByNone: {"labels": object{"operation": "one"}},
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c, _ := open(t, dir, func(o *cloud.Options) { o.ListLag = 50 * time.Millisecond })
			c.url += "/" + way
			plain := object{"offerId": "vps-small:fra1", "name": "one"}
			maps.Copy(refused, plain)
			c.refused(422, "invalid_input", "POST", "/v1/machines", refused)
			first := call[cloud.Machine](c, 201, "POST", "/v1/machines", plain)
			if way == cloud.ByName {
				c.refused(409, "uniqueness_error", "POST", "/v1/machines", plain)
				call[any](c, 204, "DELETE", "/v1/machines/"+first.ID, nil)
			}
			second := call[cloud.Machine](c, 201, "POST", "/v1/machines", plain)
			if n := count(t, dir, cloud.EntryOrder); n != 2 || first.ID == second.ID {
				t.Errorf("%d orders, machines %s and %s", n, first.ID, second.ID)
			}
			c.await("the second machine in the list", func() bool {
				list := call[machinePage](c, 200, "GET", "/v1/machines?name=one&per_page=50", nil).Machines
				if way == cloud.ByNone { // looks for nothing
					return len(list) == 4
				}
				return slices.ContainsFunc(list, func(m cloud.Machine) bool { return m.ID == second.ID })
			})
		})
	}
}

func TestQuota(t *testing.T) {
	t.Parallel()
	c := setup(t, func(o *cloud.Options) { o.Quota = 3 })
	m := c.order("third")
	c.refused(403, "quota_exceeded", "POST", "/v1/machines", order("fourth"))
	call[any](c, 204, "DELETE", "/v1/machines/"+m.ID, nil)
	c.order("fourth")
}

func TestInstallRunsTheAgent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _ := open(t, dir)
	m := c.order("one")
	body := object{"files": installBody["files"], "exec": installBody["exec"], "clientToken": "generation-1"}
	install := c.install(m.ID, body)
	if again := call[struct{ InstallID string }](c, 202, "POST", "/v1/machines/"+m.ID+"/install", body).InstallID; again != install {
		t.Errorf("the same client token installed as %s and %s", install, again)
	}
	if status := c.awaitInstall(m.ID, install); status.State != cloud.InstallSucceeded || *status.ExitCode != 0 {
		t.Fatalf("install: %+v", status)
	}
	c.awaitStatus(m.ID, cloud.StatusRunning)
	pid := c.agentPID(dir, m.ID)
	root := filepath.Join(dir, "machines", m.ID, "root")
	for path, want := range map[string]string{
		"etc/machine-id": m.OSMachineID + "\n", "sys/class/dmi/id/product_serial": m.Serial + "\n", "etc/bcd/config": "x",
	} {
		if got, err := os.ReadFile(filepath.Join(root, path)); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(root, "etc/bcd/config")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file: %v, %v", info, err)
	}
	c.await("the console", func() bool {
		log := call[struct{ Log []string }](c, 200, "GET", "/v1/machines/"+m.ID+"/console", nil).Log
		return len(log) == 1 && log[0] == "agent of "+m.Serial
	})

	second := c.installAgain(m.ID)
	if status := c.awaitInstall(m.ID, second); status.State != cloud.InstallSucceeded || alive(pid) {
		t.Errorf("second install: %+v, the first agent lives: %v", status, alive(pid))
	}
	pid = c.agentPID(dir, m.ID)
	for range 2 {
		call[any](c, 204, "DELETE", "/v1/machines/"+m.ID+"/install", nil)
	}
	c.awaitStatus(m.ID, cloud.StatusReady)
	if alive(pid) {
		t.Error("the agent outlived its install")
	}

	c.awaitInstall(m.ID, c.installAgain(m.ID))
	pid = c.agentPID(dir, m.ID)
	call[any](c, 204, "DELETE", "/v1/machines/"+m.ID, nil)
	if alive(pid) {
		t.Error("the agent outlived its machine")
	}
	if _, err := os.Stat(filepath.Join(dir, "machines", m.ID)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the machine's files are still there: %v", err)
	}
}

func (c *client) installAgain(id string) string {
	c.t.Helper()
	return call[struct{ InstallID string }](c, 202, "POST", "/v1/machines/"+id+"/install", installBody).InstallID
}

func TestInstallRefusals(t *testing.T) {
	t.Parallel()
	c := setup(t)
	m := c.order("one")
	c.awaitStatus(m.ID, cloud.StatusReady)
	path := "/v1/machines/" + m.ID + "/install"
	file := func(path, mode string) object {
		return object{"files": []object{{"path": path, "mode": mode, "content": ""}}, "exec": installBody["exec"]}
	}
	for _, bad := range []object{
		file("../outside", "0600"), file("/etc/../../outside", "0600"), file("", "0600"), file("a", "x"), file("a", "4755"),
		file("etc/machine-id/below-a-file", "0600"),
		{"exec": []string{"sh", "-c", "true"}},
		{"exec": []string{"bcd", "run", "--config", "/etc/passwd"}},
		{"exec": []string{}},
	} {
		c.refused(422, "invalid_input", "POST", path, bad)
	}
	c.refused(404, "not_found", "GET", path+"/i-none", nil)

	bare := setup(t, func(o *cloud.Options) { o.AgentBinary = "" })
	m = bare.order("one")
	if status := bare.awaitInstall(m.ID, bare.install(m.ID, installBody)); status.State != "failed" || *status.ExitCode != 127 {
		t.Errorf("without an agent: %+v", status)
	}
}

func TestAgentIsStartedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, _ := open(t, dir)
	m := c.order("one")
	c.awaitInstall(m.ID, c.install(m.ID, installBody))
	pid := c.agentPID(dir, m.ID)
	if err := os.Remove(filepath.Join(dir, "machines", m.ID, "root", "pid")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if again := c.agentPID(dir, m.ID); again == pid {
		t.Errorf("still process %d", pid)
	}
}

func TestExitCodesThatAreFinal(t *testing.T) {
	t.Parallel()
	for code, final := range map[int]bool{0: true, 1: false, 2: true, 3: true, 4: true, 127: false} {
		err := exec.CommandContext(t.Context(), "sh", "-c", fmt.Sprint("exit ", code)).Run()
		if got := cloud.Final(err); got != final {
			t.Errorf("exit code %d: final is %v", code, got)
		}
	}
	if cloud.Final(exec.CommandContext(t.Context(), "/nonexistent").Run()) {
		t.Error("a command that cannot be started is final")
	}
}

func TestConsoleIsBounded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "console.log")
	log := cloud.NewConsoleLog(path)
	line := []byte(strings.Repeat("x", 1023) + "\n")
	for range 2048 {
		if _, err := log.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	log.Close()
	for _, p := range []string{path, path + ".old"} {
		if info, err := os.Stat(p); err != nil || info.Size() > 257<<10 {
			t.Errorf("%s: %v, %v", p, info, err)
		}
	}
}

func TestReopen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, first := open(t, dir)
	if _, err := cloud.Open(options(dir)); err == nil {
		t.Fatal("two clouds on one directory")
	}
	kept, gone := c.order("kept"), c.order("gone")
	call[any](c, 204, "DELETE", "/v1/machines/"+gone.ID, nil)
	existing := c.named("existing-vps")[0]
	c.awaitInstall(existing.ID, c.install(existing.ID, installBody))
	pid := c.agentPID(dir, existing.ID)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if alive(pid) {
		t.Error("the agent outlived the cloud")
	}
	if err := os.Remove(filepath.Join(dir, "machines", existing.ID, "root", "pid")); err != nil {
		t.Fatal(err)
	}
	ledger := filepath.Join(dir, "ledger.jsonl")
	file, err := os.OpenFile(ledger, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"kind":"order","machineId":"m-torn`); err != nil {
		t.Fatal(err)
	}
	_ = file.Close()

	c, _ = open(t, dir)
	if again := c.order("kept"); again.ID != kept.ID || again.Serial != kept.Serial {
		t.Errorf("after the restart the client token bought %+v, not %+v", again, kept)
	}
	c.refused(404, "not_found", "GET", "/v1/machines/"+gone.ID, nil)
	c.awaitStatus(existing.ID, cloud.StatusRunning)
	c.agentPID(dir, existing.ID)
	c.order("new")
	if n := count(t, dir, cloud.EntryOrder); n != 3 {
		t.Errorf("the ledger has %d orders", n)
	}
}

func TestBrokenLedgerStopsTheStart(t *testing.T) {
	t.Parallel()
	for name, ledger := range map[string]string{
		"not json":        "{\n{}\n",
		"no id":           `{"kind":"order"}` + "\n",
		"unknown machine": `{"kind":"cloud","cloudId":"a"}` + "\n" + `{"kind":"release","machineId":"m-1"}` + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "ledger.jsonl"), []byte(ledger), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := cloud.Open(options(dir)); err == nil {
				t.Error("it started")
			}
		})
	}
}

// TestKill kills a cloud in the middle of orders, again and again, and asks it afterwards for everything it had answered.
func TestKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	answered := map[string]string{} // name -> machine id
	installed, pid := "", 0
	for round := range 5 {
		c, kill := startServer(t, dir)
		for name, id := range answered {
			if again := c.order(name); again.ID != id {
				t.Fatalf("round %d: %s is %s and was %s", round, name, again.ID, id)
			}
		}
		if installed == "" {
			installed = c.order("host").ID
			answered["host"] = installed
			c.awaitInstall(installed, c.install(installed, installBody))
		}
		pid = c.agentPID(dir, installed)
		if !alive(pid) {
			t.Fatalf("round %d: the agent does not run", round)
		}
		if err := os.Remove(filepath.Join(dir, "machines", installed, "root", "pid")); err != nil {
			t.Fatal(err)
		}
		buying := make(chan map[string]string)
		go func() {
			bought := map[string]string{}
			for i := 0; ; i++ {
				name := fmt.Sprintf("r%d-%d", round, i)
				status, _, answer, err := c.try("POST", "/v1/machines", order(name))
				var m cloud.Machine
				if err != nil || status != 201 || json.Unmarshal(answer, &m) != nil {
					buying <- bought
					return
				}
				if bought[name] = m.ID; len(bought) == 20 {
					go kill()
				}
			}
		}()
		maps.Copy(answered, <-buying)
		c.await("the end of the agent", func() bool { return !alive(pid) })
	}
	entries, err := cloud.ReadLedger(dir)
	if err != nil {
		t.Fatal(err)
	}
	sold := map[string]string{}
	for _, e := range entries {
		if e.Kind != cloud.EntryOrder {
			continue
		}
		if sold[e.ClientToken] != "" {
			t.Errorf("%s was sold twice", e.ClientToken)
		}
		sold[e.ClientToken] = e.MachineID
	}
	for name, id := range answered {
		if sold[name] != id {
			t.Errorf("%s: answered %s, ledger %q", name, id, sold[name])
		}
	}
}

// startServer runs a cloud as a process of its own. The kill is a SIGKILL, and waits until it is gone.
func startServer(t *testing.T, dir string) (c *client, kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), "CLOUD_TEST_DIR="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	t.Cleanup(kill)
	line := make([]byte, 256)
	n, err := out.Read(line)
	if err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	return newClient(t, strings.TrimSpace(string(line[:n]))), kill
}

// TestServe stops a server that has a hanging request.
func TestServe(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	logged := addresses{found: make(chan string, 1)}
	o := options(t.TempDir())
	o.Log = slog.New(logged)
	served := make(chan error, 1)
	go func() { served <- cloud.Serve(ctx, "127.0.0.1:0", o) }()
	c := newClient(t, "http://"+<-logged.found)
	m := c.order("one")
	c.awaitInstall(m.ID, c.install(m.ID, installBody))
	pid := c.agentPID(o.Dir, m.ID)
	c.fault(object{"kind": cloud.FaultHang})
	hung := make(chan error, 1)
	go func() {
		// A POST, since the client sends a GET once more by itself when its connection breaks.
		_, _, _, err := c.try("POST", "/v1/machines", object{})
		hung <- err
	}()
	c.await("the fault", func() bool { return count(t, o.Dir, cloud.EntryFault) == 1 })
	cancel()
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	if err := <-hung; err == nil {
		t.Error("the hanging request was answered")
	}
	if alive(pid) {
		t.Error("the agent outlived the cloud")
	}
	if err := cloud.Serve(t.Context(), "256.0.0.1:0", options(t.TempDir())); err == nil {
		t.Error("it served on an impossible address")
	}
}

// addresses hears where a server listens.
type addresses struct{ found chan string }

func (addresses) Enabled(context.Context, slog.Level) bool { return true }

func (a addresses) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(attr slog.Attr) bool {
		if attr.Key == "address" {
			a.found <- attr.Value.String()
		}
		return true
	})
	return nil
}

func (a addresses) WithAttrs([]slog.Attr) slog.Handler { return a }
func (a addresses) WithGroup(string) slog.Handler      { return a }
