package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"better/compute/apitest/harness"
	"better/compute/apitest/netns"
)

func TestMachinesBecomeHosts(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 2)
	s := startServer(t, hosts[0].Gateway, nil)
	alice := s.alice().newSite("home", hosts...)
	offer := alice.onlyOffer("AVAILABLE")
	watchers := alice.watchTenant(webSocket, events, webSocket, events)

	// The agent of the first cannot reach the server yet, so that its token can be looked at.
	block(hosts[0], s.agentAddress)
	ids := []string{alice.bootstrap("machineId", "m1", "first"), alice.bootstrap("offerId", offer, "second")}
	narrow := make([][]*watcher, len(ids))
	for i, id := range ids {
		for _, transport := range []string{webSocket, events} {
			narrow[i] = append(narrow[i], alice.watch(transport, map[string]any{"bootstrapId": id}))
		}
	}
	for i, transport := range []string{events, webSocket} { // each goes on over the other transport
		watchers[i].awaitCount(ids[1], 2)
		watchers[i] = watchers[i].resume(transport)
	}
	alice.awaitRun(ids[0], "INSTALLED")
	s.secrets = append(s.secrets, checkTokenIsOnlyInItsFile(t, hosts[0]))
	alice.checkInUse("bootstrapping", hosts[0], "m1")
	unblock(hosts[0], s.agentAddress)

	var runs []run
	for i, way := range [][]string{byMachine, byOffer} {
		r := alice.awaitRun(ids[i], "JOINED")
		runs = append(runs, r)
		checkWay(t, r, way)
		if want := machineName(i); r.MachineID != want {
			t.Errorf("the run has the machine %q, want %s", r.MachineID, want)
		}
		for _, w := range narrow[i] {
			checkSawTheRest(t, w, r)
		}
		alice.awaitHeartbeat(r.HostID)
		checkJoined(t, hosts[i])
		alice.checkInUse("joined-"+r.MachineID, hosts[i], r.MachineID)
	}

	runs = append(runs, alice.replaceHost(runs[1], hosts[1], offer))
	for _, w := range watchers {
		for _, r := range slices.Backward(runs) { // once the last is there, so is whatever came twice of the others
			checkSaw(t, w, r)
		}
	}
}

// replaceHost removes the host that a run made. Its agent is not trusted any more and ends, and the machine is on offer again: a new run
// makes another host of it.
func (s site) replaceHost(made run, machine *netns.Host, offer string) run {
	s.t.Helper()
	s.onlyOffer("OUT_OF_STOCK")
	certificate := machine.Run("cat /var/lib/bcd/cert.pem")
	s.removeHost(made.HostID)
	s.checkRefused(certificate, machine.Run("cat /var/lib/bcd/key.pem"))
	harness.Await(s.t, "the agent of the removed host gives up", func() bool {
		code, _ := machine.Try("cat /run/bcd.exit")
		return code == "4\n"
	})
	if n := agents(machine); n != 0 {
		s.t.Errorf("%d agents run on the removed host", n)
	}
	s.onlyOffer("AVAILABLE")
	r := s.awaitRun(s.bootstrap("offerId", offer, "again"), "JOINED")
	checkWay(s.t, r, byOffer)
	s.awaitHeartbeat(r.HostID)
	checkJoined(s.t, machine)
	if r.HostID == made.HostID || machine.Run("cat /var/lib/bcd/cert.pem") == certificate {
		s.t.Error("the machine joined again as the host that it was")
	}
	return r
}

// onlyOffer is the offer that both machines make together, which must be so available.
func (s site) onlyOffer(availability string) string {
	s.t.Helper()
	offers := must[struct {
		Offers []struct{ ID, Availability string }
	}](s.caller, `query($t: ID!, $a: ID!) { offers(tenantId: $t, accountId: $a, query: {kind: METAL, minVcpu: 2}) { id availability } }`,
		map[string]any{"t": s.tenant, "a": s.account}).Offers
	if len(offers) != 1 || offers[0].Availability != availability {
		s.t.Fatalf("the offers are %+v, want one that is %s", offers, availability)
	}
	return offers[0].ID
}

// watchTenant starts watchers of the whole tenant, and returns when each of them is following. A stream says nothing of its beginning,
// so that is told by runs that it sees.
func (s site) watchTenant(transports ...string) []*watcher {
	s.t.Helper()
	watchers := make([]*watcher, len(transports))
	for i, transport := range transports {
		watchers[i] = s.watch(transport, map[string]any{})
	}
	nowhere := site{s.caller, s.createAccount("nowhere", map[string]any{"machines": []map[string]any{{
		"id": "nowhere", "address": s.at.String(), "port": 1, "kind": "vps", "privateKey": "secret://none",
		"hostFingerprint": "SHA256:" + strings.Repeat("A", 43),
	}}}), s.pool}
	probes := 0
	harness.Await(s.t, "all watchers follow the tenant", func() bool {
		probes++
		nowhere.awaitRun(nowhere.bootstrap("machineId", "nowhere", fmt.Sprint("probe-", probes)), "FAILED") // its secret is not there
		return !slices.ContainsFunc(watchers, func(w *watcher) bool {
			w.mustLive()
			return len(w.all()) == 0
		})
	})
	return watchers
}

// block keeps the machine from connecting to the address, as a firewall would.
func block(h *netns.Host, address string)   { firewall(h, "add", address) }
func unblock(h *netns.Host, address string) { firewall(h, "delete", address) }

func firewall(h *netns.Host, what, address string) {
	ip, port, _ := strings.Cut(address, ":")
	h.Run("ip rule " + what + " to " + ip + " ipproto tcp dport " + port + " prohibit")
}

// checkTokenIsOnlyInItsFile looks at a machine whose agent is installed and has not joined, and returns the token.
func checkTokenIsOnlyInItsFile(t testing.TB, h *netns.Host) string {
	t.Helper()
	if agents(h) != 1 {
		t.Fatal("no agent is waiting to join")
	}
	modes := strings.Fields(h.Run("stat -c %a:%U /etc/bcd/join-token /etc/bcd/config.json /var/lib/bcd /var/lib/bcd/key.pem"))
	if diff := cmp.Diff([]string{"600:root", "600:root", "700:root", "600:root"}, modes); diff != "" {
		t.Errorf("modes of the token, the configuration, the state and the key (-want +got):\n%s", diff)
	}
	token := strings.TrimSpace(h.Run("cat /etc/bcd/join-token"))
	if joinToken.FindString(token) != token {
		t.Fatal("the token file holds something else than a token")
	}
	for where, script := range map[string]string{
		"arguments and environments": "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ",
		"logs":                       "cat /var/log/bcd*",
		"other files of the agent":   "find /etc/bcd /var/lib/bcd /etc/init.d/bcd -type f ! -name join-token -exec cat {} +",
	} {
		out, _ := h.Try(script) // a process may end while we look
		if len(out) == 0 {
			t.Errorf("there are no %s", where)
		}
		if strings.Contains(out, token) {
			t.Errorf("the token is in %s", where)
		}
	}
	return token
}

// agents counts the agents that run on the machine.
func agents(h *netns.Host) int {
	out := h.Run("readlink /proc/[0-9]*/exe | grep -c '^/usr/local/bin/bcd' || true")
	var n int
	_, _ = fmt.Sscan(out, &n)
	return n
}

func checkJoined(t testing.TB, h *netns.Host) {
	t.Helper()
	if out, err := h.Try("ls /etc/bcd/join-token"); err == nil {
		t.Errorf("the token is still there after the join: %s", out)
	}
	if mode := h.Run("stat -c %a /var/lib/bcd/key.pem"); mode != "600\n" {
		t.Errorf("the key has the mode %q", mode)
	}
	if n := agents(h); n != 1 {
		t.Errorf("%d agents run on %s", n, h.Name)
	}
	if out, _ := h.Try("cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ /var/log/bcd*"); joinToken.MatchString(out) {
		t.Error("a token is in an argument, an environment or a log of the machine")
	}
}

// checkInUse makes sure that the machine cannot be bootstrapped once more: by its owner, through another account, or by another
// tenant, who learns nothing of who has it. The name makes this call's accounts and keys its own.
func (s site) checkInUse(name string, h *netns.Host, machineID string) {
	s.t.Helper()
	twin := s
	twin.account = s.createAccount("twin-"+name, s.inventory(h))
	stranger := s.server.other().newSite("theirs-"+name, h)
	for _, attempt := range []struct {
		who string
		site
		machine string
	}{{"the owner", s, machineID}, {"another account", twin, "m1"}, {"another tenant", stranger, "m1"}} {
		_, refused := attempt.tryBootstrap("machineId", attempt.machine, name)
		if refused == nil || refused.Extensions.Code != "CONFLICT" {
			s.t.Errorf("%s bootstraps a machine that is in use: %+v", attempt.who, refused)
			continue
		}
		for _, hidden := range []string{s.account, s.tenant, "boot_", "host_", "pool_"} {
			if strings.Contains(refused.text, hidden) {
				s.t.Errorf("%s is told of %q: %s", attempt.who, hidden, refused.text)
			}
		}
	}
}

func (c caller) removeHost(id string) {
	c.t.Helper()
	mustChange[struct{}](c, "removeHost", "RemoveHostInput", "{ host { id } }", map[string]any{"hostId": id})
	if c.host(id).RemovedAt == "" {
		c.t.Error("the host does not say that it was removed")
	}
}

// checkRefused speaks to the agent listener as the host that has the certificate.
func (s *server) checkRefused(certificate, key string) {
	s.t.Helper()
	pair, err := tls.X509KeyPair([]byte(certificate), []byte(key))
	if err != nil {
		s.t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13,
	}}}
	resp, err := client.Post("https://"+s.agentAddress+"/v1/heartbeat", "application/json", bytes.NewReader([]byte(`{"agentVersion":"x"}`)))
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusForbidden || !bytes.Contains(text, []byte(`"HOST_REMOVED"`)) {
		s.t.Errorf("the removed host is answered %s %s (%v), want 403 and HOST_REMOVED", resp.Status, text, err)
	}
}
