//go:build nightly

package openstack_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/apitest/netns"
	"better/compute/apitest/site"
	"better/compute/provider"
	"better/compute/provider/openstack"
	"better/compute/provider/providertest"
)

// cloud is an OpenStack of Debian's, as its operator sees it. Its servers are there for Nova alone.
type cloud struct {
	t                           testing.TB
	address                     string
	admin, member, image, small string
	projects                    atomic.Int32
}

// startPatience is for a dozen daemons that make their tables first.
const startPatience = 30 * time.Minute

// runPatience is for runs, each of whose steps takes several daemons some calls.
const runPatience = 15 * time.Minute

const inCloud = "It is arranged on the fake."

// flavors are two pages, so that Nova says of both that another comes.
var flavors = []object{
	{"name": "vps.1", "vcpus": 1, "ram": 512, "disk": 1},
	{"name": "8 cores/16 (new)", "vcpus": 1, "ram": 512, "disk": 1},
	{"name": "huge", "vcpus": 1, "ram": 512, "disk": 10_000_000},
	{"name": "gpu", "vcpus": 1, "ram": 512, "disk": 1, "specs": object{"pci_passthrough:alias": "gpu-frobnicator9:2"}},
	{"name": "h100", "vcpus": 1, "ram": 512, "disk": 1, "specs": object{"pci_passthrough:alias": "h100:8"}},
	{"name": "e", "vcpus": 1, "ram": 512, "disk": 1},
	{"name": "f", "vcpus": 1, "ram": 512, "disk": 1},
	{"name": "g", "vcpus": 1, "ram": 512, "disk": 1},
	{"name": "h", "vcpus": 1, "ram": 512, "disk": 1},
	{"name": "i", "vcpus": 1, "ram": 512, "disk": 1},
}

// startCloud starts it, and ends it with the test.
func startCloud(t *testing.T) *cloud {
	t.Helper()
	dir, err := os.MkdirTemp("", "openstack") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &cloud{t: t, address: fmt.Sprintf("127.%d.%d.1", 1+rand.IntN(250), rand.IntN(250))}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "../../scripts/openstack", dir, c.address)
	var log harness.Log
	process := harness.Start(t, cmd, &log)
	t.Cleanup(func() {
		process.Kill() // and all that it has started
		if t.Failed() {
			showLogs(t, dir+"/log")
		}
	})
	began := time.Now()
	harness.AwaitFor(t, startPatience, "OpenStack", func() bool {
		if process.Dead() {
			t.Fatalf("OpenStack has ended: %v\n%s", process.Err(), log.Text())
		}
		return strings.HasSuffix(log.Text(), "ready\n")
	})
	password, err := os.ReadFile(dir + "/password")
	if err != nil {
		t.Fatal(err)
	}
	c.admin = c.login("admin", strings.TrimSpace(string(password)), object{"name": "admin", "domain": object{"id": "default"}})
	c.furnish(t)
	t.Logf("OpenStack was ready after %v", time.Since(began).Round(time.Second))
	return c
}

func showLogs(t *testing.T, dir string) {
	t.Helper()
	logs, _ := os.ReadDir(dir)
	for _, l := range logs {
		text, _ := os.ReadFile(dir + "/" + l.Name())
		t.Logf("%s:\n%s", l.Name(), text[max(0, len(text)-3000):])
	}
}

// The services are at these ports.
const (
	keystone = ":5000/v3"
	nova     = ":8774/v2.1"
	glance   = ":9292/v2"
	neutron  = ":9696/v2.0"
)

// furnish makes what every project uses, and waits until Nova has a hypervisor.
func (c *cloud) furnish(t *testing.T) {
	t.Helper()
	var made struct {
		Service, Image, Network, Flavor struct{ ID string }
		Roles                           []struct{ ID string }
	}
	c.must(http.MethodPost, keystone+"/services", object{"service": object{"type": "compute", "name": "nova"}}, &made)
	c.must(http.MethodPost, keystone+"/endpoints", object{"endpoint": object{
		"service_id": made.Service.ID, "interface": "public", "region_id": "RegionOne", "url": "http://" + c.address + nova,
	}}, nil)
	c.must(http.MethodGet, keystone+"/roles?name=member", nil, &made)
	c.member = made.Roles[0].ID
	var image struct{ ID string }
	c.must(http.MethodPost, glance+"/images", object{"name": "debian", "disk_format": "raw", "container_format": "bare", "visibility": "public"}, &image)
	c.must(http.MethodPut, glance+"/images/"+image.ID+"/file", []byte("an image"), nil)
	c.image = image.ID
	c.must(http.MethodPost, neutron+"/networks", object{"network": object{"name": "machines", "shared": true}}, &made)
	c.must(http.MethodPost, neutron+"/subnets", object{"subnet": object{"network_id": made.Network.ID, "ip_version": 4, "cidr": "192.0.2.0/24", "enable_dhcp": false}}, nil)
	for _, f := range flavors {
		specs := f["specs"]
		delete(f, "specs")
		c.must(http.MethodPost, nova+"/flavors", object{"flavor": f}, &made)
		if specs != nil {
			c.must(http.MethodPost, nova+"/flavors/"+made.Flavor.ID+"/os-extra_specs", object{"extra_specs": specs}, nil)
		}
		if f["name"] == "vps.1" {
			c.small = made.Flavor.ID
		}
	}
	harness.Await(t, "a hypervisor", func() bool {
		var list struct{ Hypervisors []any }
		return c.try(c.admin, http.MethodGet, nova+"/os-hypervisors", nil, &list) == nil && len(list.Hypervisors) > 0
	})
}

// login gives a token for the project.
func (c *cloud) login(user, password string, project object) string {
	c.t.Helper()
	header, err := c.send("", http.MethodPost, keystone+"/auth/tokens", object{"auth": object{
		"identity": object{"methods": []string{"password"}, "password": object{"user": object{"name": user, "domain": object{"id": "default"}, "password": password}}},
		"scope":    object{"project": project},
	}}, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return header.Get("X-Subject-Token")
}

// send makes a call. A body in bytes goes as it is.
func (c *cloud) send(token, method, path string, body, into any) (http.Header, error) {
	kind := "application/json"
	text, raw := body.([]byte)
	if raw {
		kind = "application/octet-stream"
	} else if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, "http://"+c.address+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", kind)
	request.Header.Set("X-Auth-Token", token)
	request.Header.Set("OpenStack-API-Version", "compute 2.61")
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	told, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		return nil, fmt.Errorf("%s %s: %d %s (%w)", method, path, response.StatusCode, told, err)
	}
	if into == nil {
		return response.Header, nil
	}
	return response.Header, json.Unmarshal(told, into)
}

func (c *cloud) try(token, method, path string, body, into any) error {
	_, err := c.send(token, method, path, body, into)
	return err
}

// must makes a call as the cloud's operator.
func (c *cloud) must(method, path string, body, into any) {
	c.t.Helper()
	if err := c.try(c.admin, method, path, body, into); err != nil {
		c.t.Fatal(err)
	}
}

// project is a tenant of the cloud, with an application credential.
type project struct {
	*cloud
	t                         *testing.T
	id, token, config, secret string
}

// newProject makes one with a user of its own, who has the role member.
func (c *cloud) newProject(t *testing.T) *project {
	t.Helper()
	name := fmt.Sprintf("project-%d", c.projects.Add(1))
	var made struct {
		Project, User struct{ ID string }
		Credential    struct{ ID, Secret string } `json:"application_credential"`
	}
	c.must(http.MethodPost, keystone+"/projects", object{"project": object{"name": name}}, &made)
	c.must(http.MethodPost, keystone+"/users", object{"user": object{"name": name, "password": secret}}, &made)
	c.must(http.MethodPut, keystone+"/projects/"+made.Project.ID+"/users/"+made.User.ID+"/roles/"+c.member, nil, nil)
	p := &project{cloud: c, t: t, id: made.Project.ID, token: c.login(name, secret, object{"id": made.Project.ID})}
	p.call(http.MethodPost, keystone+"/users/"+made.User.ID+"/application_credentials", object{"application_credential": object{
		"name": "compute", "roles": []object{{"id": c.member}}, // without the roles that it implies, which Keystone may not have seen yet
	}}, &made)
	p.secret = made.Credential.Secret
	p.config = fmt.Sprintf(`{"applicationCredentialId":%q,"applicationCredentialSecret":"secret://openstack","region":"RegionOne","imageId":%q,`+
		`"prices":[{"flavor":"vps.1","currency":"EUR","hourly":"0.05"}]}`, made.Credential.ID, c.image)
	return p
}

// call makes a call as the project's user.
func (p *project) call(method, path string, body, into any) {
	p.t.Helper()
	if err := p.try(p.token, method, path, body, into); err != nil {
		p.t.Fatal(err)
	}
}

// existing makes a server that nobody ordered here.
func (p *project) existing() (id string) {
	p.t.Helper()
	var made struct {
		Server struct{ ID, Status string }
	}
	p.call(http.MethodPost, nova+"/servers", object{"server": object{"name": "existing", "flavorRef": p.small, "imageRef": p.image, "networks": "auto"}}, &made)
	harness.Await(p.t, "a server", func() bool {
		p.call(http.MethodGet, nova+"/servers/"+made.Server.ID, nil, &made)
		if made.Server.Status == "ERROR" {
			var why any
			p.call(http.MethodGet, nova+"/servers/"+made.Server.ID, nil, &why)
			p.t.Fatalf("the server is %v", why)
		}
		return made.Server.Status == "ACTIVE"
	})
	return made.Server.ID
}

// sold asks Nova for the operation's servers, except for those that it found no place for.
func (p *project) sold(operationID string) int {
	var list struct {
		Servers []struct{ Name, Status string }
	}
	p.call(http.MethodGet, nova+"/servers/detail?name="+operationID, nil, &list)
	n := 0
	for _, s := range list.Servers {
		if s.Name == operationID && s.Status != "ERROR" {
			n++
		}
	}
	return n
}

func (c *cloud) driver() *openstack.Driver {
	return openstack.New(openstack.Options{Endpoint: "http://" + c.address + keystone, Networks: providertest.Loopback(), Timeout: harness.Patience})
}

func (p *project) open(config string) provider.Client {
	p.t.Helper()
	client, err := p.driver().Open(p.t.Context(), provider.Account{
		ID: "pacct_test", Config: json.RawMessage(config), Secret: func(context.Context, string) (string, error) { return p.secret, nil },
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return client
}

func (p *project) account(flavor string) *providertest.Account {
	p.t.Helper()
	return &providertest.Account{
		Client: p.open(p.config), Secret: p.secret, OfferID: provider.OfferID(flavor, "RegionOne"), MachineID: p.existing(), Sold: p.sold, Payload: providertest.Payload,
	}
}

// TestNova asks of a real Nova what the fake is asked while nothing goes wrong, and makes hosts of its servers.
func TestNova(t *testing.T) {
	c := startCloud(t)
	t.Run("conformance", c.testConformance)
	t.Run("pages", c.testPages)
	t.Run("bootstraps", c.testBootstraps)
}

func (c *cloud) testConformance(t *testing.T) {
	ordering := func(flavor string) providertest.Situation {
		return providertest.Situation{Arrange: func(t *testing.T) *providertest.Account { t.Helper(); return c.newProject(t).account(flavor) }}
	}
	elsewhere := providertest.None(inCloud)
	paged := providertest.None("All lists here are in pages.")
	providertest.Run(t, providertest.Config{
		Driver: c.driver(), Configs: []string{plain, full}, Plain: ordering("vps.1"),
		ThreePages: paged, EmptyLastPage: paged, RepeatedPage: elsewhere, ExtraFields: elsewhere,
		MissingPrice: ordering("vps.1"), UnknownGPU: ordering("gpu"), OddIDs: ordering("8 cores/16 (new)"),
		AnswerLost: elsewhere, OrderFails: elsewhere, HalfAnswer: elsewhere, OutOfStock: elsewhere, OutOfStockLater: ordering("huge"), OfferGone: ordering("gone"),
		Quota: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			p := c.newProject(t)
			a := p.account("vps.1")
			c.must(http.MethodPut, nova+"/os-quota-sets/"+p.id, object{"quota_set": object{"instances": 1}}, nil)
			return a
		}},
		Payment: elsewhere, Locked: elsewhere, Forbidden: elsewhere, RateLimited: elsewhere, RateLimitedFor: elsewhere, Down: elsewhere, Hangs: elsewhere,
		Garbage: elsewhere, InstallFails: elsewhere,
		Unauthorized: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			p := c.newProject(t)
			p.secret = "another"
			return &providertest.Account{Client: p.open(p.config), Secret: p.secret, OfferID: "vps.1:RegionOne", Sold: p.sold}
		}},
	})
}

// testPages reads lists of which Nova gives five items at a time.
func (c *cloud) testPages(t *testing.T) {
	p := c.newProject(t)
	client := p.open(p.config)
	defer func() { _ = client.Close() }()
	offers, err := client.Offers(t.Context())
	if err != nil || len(offers) != len(flavors) {
		t.Errorf("%d offers of %d flavors, %v", len(offers), len(flavors), err)
	}
	o := client.(provider.Claimant)
	for i := range 6 {
		if _, err := o.Order(t.Context(), provider.Order{OperationID: fmt.Sprintf("bcd-%052d", i), OfferID: "vps.1:RegionOne"}); err != nil {
			t.Fatal(err)
		}
	}
	harness.Await(t, "the servers", func() bool {
		claim, err := o.FindClaim(t.Context(), fmt.Sprintf("bcd-%052d", 0)) // on the last page: the newest is on the first
		if err != nil || claim == nil {
			t.Fatalf("claim %+v, %v", claim, err)
		}
		return claim.State == provider.ClaimReady
	})
	claims, err := o.Claims(t.Context())
	if err != nil || len(claims) != 6 {
		t.Errorf("%d claims of 6, %v", len(claims), err)
	}
}

// testBootstraps makes hosts of a server that was there and of one that is ordered, twice with one key. The machines are in network namespaces, and
// run the user data that Nova has for the server.
func (c *cloud) testBootstraps(t *testing.T) {
	t.Run("a server that was there", func(t *testing.T) {
		p := c.newProject(t)
		id := p.existing()
		host := netns.HostsWith(t, 1, netns.Options{Serials: []string{id}})[0]
		run := p.site(host, p.config).Bootstrap("machineId", id)
		if run.Status != "JOINED" || run.HostID == "" || run.MachineID != id {
			t.Errorf("%+v, %+v", run, run.Failure)
		}
	})
	t.Run("a server that is ordered", func(t *testing.T) {
		p := c.newProject(t)
		host := netns.Hosts(t, 1)[0]
		// Its UUID is not known before, so the machine has another serial number.
		s := p.site(host, strings.Replace(p.config, `{`, `{"serial":"none",`, 1))
		for range 2 {
			run := s.Bootstrap("offerId", "vps.1:RegionOne")
			if run.Status != "JOINED" || run.HostID == "" {
				t.Errorf("%+v, %+v", run, run.Failure)
			}
		}
		if servers := p.servers(); len(servers) != 1 {
			t.Errorf("%d servers for one key", len(servers))
		}
	})
}

type server struct {
	ID, Status string
	Task       string `json:"OS-EXT-STS:task_state"`
	UserData   string `json:"OS-EXT-SRV-ATTR:user_data"`
}

// servers are the project's as the cloud's operator sees them, with their user data.
func (p *project) servers() []server {
	var list struct{ Servers []server }
	if err := p.try(p.admin, http.MethodGet, nova+"/servers/detail?all_tenants=1&project_id="+p.id, nil, &list); err != nil {
		p.t.Error(err)
	}
	return list.Servers
}

// site starts a server whose tenant has an account for the project, and has the machine boot as the project's server does.
func (p *project) site(host *netns.Host, config string) *site.Site {
	p.t.Helper()
	var boots sync.WaitGroup
	ctx, cancel := context.WithCancel(p.t.Context())
	boots.Go(func() { p.boot(ctx, host) })
	p.t.Cleanup(func() { cancel(); boots.Wait() })
	var settings map[string]any
	if err := json.Unmarshal([]byte(config), &settings); err != nil {
		p.t.Fatal(err)
	}
	return site.Start(p.t, site.Options{
		At:       host.Gateway,
		Provider: map[string]any{"name": "openstack", "endpoint": "http://" + p.address + keystone, "allowNetworks": []string{"127.0.0.0/8"}},
		Config:   settings, Secrets: map[string]string{"openstack": p.secret}, Class: "VPS_HOST", Patience: runPatience,
	})
}

// boot waits until a server has been rebuilt with user data, and runs that.
func (p *project) boot(ctx context.Context, host *netns.Host) {
	for ; ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
		for _, s := range p.servers() {
			if s.UserData == "" || s.Task != "" || s.Status != "ACTIVE" {
				continue
			}
			script, err := base64.StdEncoding.DecodeString(s.UserData)
			if err != nil {
				p.t.Error(err)
			}
			if out, err := host.Try(string(script)); err != nil {
				p.t.Errorf("the first boot of server %s: %v\n%s", s.ID, err, out)
			}
			return
		}
	}
}
