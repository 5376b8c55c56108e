package providertest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"better/compute/provider"
)

// thief is a host that an account should not be able to send its secret to. It answers nothing and keeps what it gets.
type thief struct {
	address string
	mu      sync.Mutex
	got     []byte
}

func newThief(t *testing.T) *thief {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := &thief{address: ln.Addr().String()}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			group.Go(func() { h.rob(conn) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); group.Wait() })
	return h
}

func (h *thief) rob(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
	buffer := make([]byte, 4096)
	for {
		n, err := conn.Read(buffer)
		h.mu.Lock()
		h.got = append(h.got, buffer[:n]...)
		h.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// has reports whether it got the secret, as it is or in the form of a login by HTTP's Basic.
func (h *thief) has(secret string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if strings.Contains(string(h.got), secret) {
		return true
	}
	return slices.ContainsFunc(strings.Fields(string(h.got)), func(word string) bool {
		login, _ := base64.StdEncoding.DecodeString(word)
		return strings.Contains(string(login), secret)
	})
}

// spellings lead to the thief, or would for a sloppy reader.
func (h *thief) spellings(allowed []string) []string {
	all := []string{
		"http://" + h.address, "https://" + h.address, "http://" + h.address + "/v1", "HTTP://" + h.address, h.address, "//" + h.address, "http:/" + h.address,
		"http:\\\\" + h.address, "http://" + h.address + "/?", "http://" + h.address + "#", "http://user@" + h.address, " http://" + h.address, "http://" + h.address + "\t",
		"http://localhost:" + h.address[strings.LastIndexByte(h.address, ':')+1:],
	}
	for _, host := range allowed {
		host = host[strings.LastIndexByte(host, '/')+1:]
		all = append(
			all, "https://"+host+"@"+h.address, "http://"+host+"%40"+h.address, "http://"+h.address+"/"+host, "http://"+h.address+"?"+host, "http://"+h.address+"#@"+host,
			"http://"+h.address+"\\@"+host, "https://"+host+".evil.test", "https://"+host+":443@"+h.address, "http://"+h.address+"%2f@"+host,
		)
	}
	return all
}

// testEndpoints puts the thief's address into every place of a config that might be one, and calls whatever the registry and the driver take.
func testEndpoints(t *testing.T, c Config) {
	if c.Plain.Arrange == nil {
		t.Skip(c.Plain.Reason)
	}
	m := c.Driver.Manifest()
	registry, err := provider.NewRegistry(c.Driver)
	if err != nil {
		t.Fatal(err)
	}
	h := newThief(t)
	const secret = "canary-of-the-thief-9c1d"
	tries, taken := 0, 0
	for _, config := range c.Configs {
		for _, changed := range redirected(config, h.spellings(append(slices.Clone(m.Endpoints), "api.vendor.test"))) {
			tries++
			if len(registry.ValidateConfig(m.Name, changed)) > 0 {
				continue
			}
			taken++
			callAll(t, c.Driver, changed, secret)
		}
	}
	bytes := 0
	if h.has(secret) {
		bytes = len(secret)
		t.Error("the secret was sent")
	}
	verdict := map[bool]string{true: "PASS", false: "FAIL"}[bytes == 0]
	t.Logf("provider-endpoints provider=%s tries=%d taken=%d secretBytes=%d %s", m.Name, tries, taken, bytes, verdict)
}

// redirected are configs with the text in one more member, of the name of an address, or in the place of one of their own texts.
func redirected(config string, texts []string) []json.RawMessage {
	var own map[string]any
	if json.Unmarshal([]byte(config), &own) != nil {
		return nil
	}
	members := []string{"endpoint", "Endpoint", "end_point", "endpoints", "url", "baseUrl", "apiUrl", "authUrl", "host", "proxy"}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		if _, isText := own[name].(string); isText && !secretName.MatchString(name) {
			members = append(members, name)
		}
	}
	var all []json.RawMessage
	for _, text := range texts {
		for _, member := range members {
			changed := maps.Clone(own)
			changed[member] = text
			one, _ := json.Marshal(changed)
			all = append(all, one)
		}
	}
	return all
}

// callAll makes the calls that carry the secret. What comes of them does not matter.
func callAll(t *testing.T, d provider.Driver, config json.RawMessage, secret string) {
	t.Helper()
	client, err := d.Open(t.Context(), provider.Account{
		ID: "pacct_test", Config: config, Secret: func(context.Context, string) (string, error) { return secret, nil },
	})
	if err != nil {
		return
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_ = client.Check(ctx)
	_, _ = client.Offers(ctx)
	_, _ = client.Machines(ctx)
	if o, ok := client.(provider.Orderer); ok {
		_, _ = o.FindClaim(ctx, mutantOperation)
		_, _ = o.Order(ctx, provider.Order{OperationID: mutantOperation, OfferID: "a:b"})
	}
}
