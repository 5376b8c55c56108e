package identity

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"better/compute/apitest/harness"
)

// process is a server or a provider that runs until the end of the test.
type process struct {
	*harness.Process
	url string
}

// serve starts a replica with the settings on the database.
func serve(t testing.TB, database string, auth, authorization map[string]any) (p *process, config string) {
	t.Helper()
	config = harness.Config(t, map[string]any{
		"listen": "127.0.0.1:0", "stateDir": t.TempDir(), "database": map[string]any{"url": database, "maxConns": 8},
		"auth": auth, "authz": authorization, "providers": []map[string]any{{"name": "ssh"}}, "limits": map[string]any{"drainNotice": "1ms"},
	})
	p = &process{Process: harness.Serve(t, servers.Program(t, "compute-api"), config, new(harness.Log))}
	p.StopWith(t)
	p.url = p.Ready(t)
	return p, config
}

// provide starts the OpenID Connect provider.
func provide(t testing.TB, listen string) *process {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), providers.Program(t, "provider"), "-listen", listen) // killed with the test
	p := &process{Process: harness.Start(t, cmd, new(harness.Log))}
	t.Cleanup(p.Kill)
	p.AwaitLine(t, func(line []byte) (ready bool) {
		p.url, ready = strings.CutPrefix(string(line), "ready issuer=")
		return ready
	})
	return p
}

// client keeps no connections, so that a leak of ours is none of its.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: harness.Patience}

func do(t testing.TB, method, address, token string, header map[string]string, body io.Reader) (int, http.Header, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, address, body)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

// token asks the provider for one, as the client of that name.
func (p *process) token(t testing.TB, name string, scopes ...string) string {
	t.Helper()
	form := url.Values{"grant_type": {"client_credentials"}, "scope": {strings.Join(scopes, " ")}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth(name, "secret")
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Token string `json:"access_token"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Token == "" {
		t.Fatalf("%s: no token: %v", resp.Status, err)
	}
	return answer.Token
}

// answer is what GraphQL says: the data, and the code of the first error.
type answer struct {
	status int
	header http.Header
	body   string
	data   map[string]any
	code   string
}

func (p *process) graphql(t testing.TB, token, document string, variables map[string]any) answer {
	t.Helper()
	body, err := json.Marshal(map[string]any{"query": document, "variables": variables})
	if err != nil {
		t.Fatal(err)
	}
	a := answer{}
	a.status, a.header, a.body = do(t, http.MethodPost, p.url+"/graphql", token, map[string]string{"Content-Type": "application/json"}, bytes.NewReader(body))
	var read struct {
		Data   map[string]any
		Errors []struct{ Extensions struct{ Code string } }
	}
	if err := json.Unmarshal([]byte(a.body), &read); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	if a.data = read.Data; len(read.Errors) > 0 {
		a.code = read.Errors[0].Extensions.Code
	}
	return a
}

const whoami = `{ viewer { subject groups permissions(tenantId: "acme") } }`

// viewer is who the server takes the caller for; the code of the error instead when it takes it for nobody.
func (p *process) viewer(t testing.TB, token string) string {
	t.Helper()
	a := p.graphql(t, token, whoami, nil)
	if a.code != "" {
		return a.code
	}
	return fmt.Sprint(a.data["viewer"].(map[string]any)["subject"])
}

// eventually asks until the answer comes.
func eventually(t testing.TB, what, want string, ask func() string) {
	t.Helper()
	var got string
	for deadline := time.Now().Add(harness.Patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = ask(); got == want {
			return
		}
	}
	t.Errorf("%s: %q, want %q", what, got, want)
}

const follow = `subscription { bootstrapStatusChanged(tenantId: "acme") { to } }`

// stream is a subscription that runs. Its end says how it ended.
type stream struct {
	end <-chan string
}

// sse opens one over Server-Sent Events. Its end is the code of the last message.
func (p *process) sse(t testing.TB, token string) stream {
	t.Helper()
	body, _ := json.Marshal(map[string]string{"query": follow})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/graphql", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Transport.RoundTrip(req) // without the client's time-out
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v, %v", resp, err)
	}
	end := make(chan string, 1)
	go func() {
		defer func() { _ = resp.Body.Close() }()
		code := ""
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data:"); ok && strings.Contains(data, "code") {
				_, after, _ := strings.Cut(data, `"code":"`)
				code, _, _ = strings.Cut(after, `"`)
			}
		}
		end <- code
	}()
	return stream{end}
}

// socket opens one over WebSocket. Its end is the close code of the connection, or the code of the subscription's error.
func (p *process) socket(t testing.TB, token string) stream {
	t.Helper()
	return p.dial(t, token, `{"id":"1","type":"subscribe","payload":{"query":`+fmt.Sprintf("%q", follow)+`}}`)
}

// dial opens a WebSocket and sends it messages once it is acknowledged.
func (p *process) dial(t testing.TB, token string, messages ...string) stream {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), p.url+"/graphql", &websocket.DialOptions{Subprotocols: []string{"graphql-transport-ws"}, HTTPClient: client})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.CloseNow() })
	send := func(text string) {
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	send(`{"type":"connection_init","payload":{"authorization":"Bearer ` + token + `"}}`)
	if _, ack, err := conn.Read(t.Context()); err != nil || !strings.Contains(string(ack), "connection_ack") {
		t.Fatalf("%s, %v", ack, err)
	}
	for _, m := range messages {
		send(m)
	}
	end := make(chan string, 1)
	go func() {
		for {
			_, message, err := conn.Read(t.Context())
			if err != nil {
				end <- fmt.Sprint(int(websocket.CloseStatus(err)))
				return
			}
			if _, after, found := strings.Cut(string(message), `"code":"`); found {
				code, _, _ := strings.Cut(after, `"`)
				end <- code
				return
			}
		}
	}()
	return stream{end}
}

// running waits until the server counts that many subscriptions, so that what comes next meets them.
func (p *process) running(t testing.TB, sockets, events int) {
	t.Helper()
	want := fmt.Sprint(sockets, " ", events)
	eventually(t, "open WebSockets and event streams", want, func() string {
		_, _, text := do(t, http.MethodGet, p.url+"/metrics", "", nil, nil)
		return metric(text, "compute_websockets_open") + " " + metric(text, "compute_sse_streams_open")
	})
}

func metric(text, name string) string {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func (s stream) wait(t testing.TB, what string) string {
	t.Helper()
	select {
	case how := <-s.end:
		return how
	case <-time.After(harness.Patience):
		t.Errorf("%s does not end", what)
		return ""
	}
}
