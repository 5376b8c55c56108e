package identity

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"better/compute/apitest/harness"
	"better/compute/internal/postgres/pgtest"
)

const (
	audience = "audience:compute"
	fixed    = "a-fixed-token"
)

// oidcAuth is for callers of the issuer, and one who is always known.
func oidcAuth(issuer string) map[string]any {
	return map[string]any{
		"oidc":              map[string]any{"issuer": issuer, "audience": "compute", "groupsClaim": "groups", "leeway": "1s"},
		"allowStaticTokens": true, "tokens": []map[string]any{{"token": fixed, "subject": "user:fixed"}},
	}
}

func bindings(all ...string) map[string]any {
	var list []map[string]any
	for _, b := range all {
		f := strings.Fields(b)
		list = append(list, map[string]any{"subject": f[0], "role": f[1], "object": f[2]})
	}
	return map[string]any{"bindings": list}
}

func TestCallersOfAnOpenIDConnectProvider(t *testing.T) {
	t.Parallel()
	address := harness.FreeAddress(t, "127.0.0.1")
	s, _ := serve(t, pgtest.URL(t), oidcAuth("http://"+address), bindings("group:ops tenant-admin compute-tenant/acme", "user:fixed provider-viewer compute-tenant/acme"))

	// The issuer is away: that is said, and nobody else is kept out.
	absent := segment(`{"alg":"RS256","kid":"k"}`) + "." + segment(`{"iss":"http://`+address+`","aud":"compute"}`) + ".c2ln"
	if got := s.graphql(t, absent, whoami, nil); got.code != "UNAVAILABLE" || got.status != http.StatusServiceUnavailable {
		t.Errorf("while the issuer is away: %d %s", got.status, got.body)
	}
	if got := s.viewer(t, fixed); got != "user:fixed" {
		t.Errorf("somebody else, while the issuer is away: %s", got)
	}
	p := provide(t, address)
	token := p.token(t, "ada", audience, "group:ops", "group:not/granted", "group:a")
	eventually(t, "when the issuer is there", "user:ada", func() string { return s.viewer(t, token) })
	if got := fmt.Sprint(s.graphql(t, token, whoami, nil).data["viewer"]); !strings.Contains(got, "group:ops") || !strings.Contains(got, "IAM_MANAGE") {
		t.Errorf("a member of the group: %s", got)
	}
	outsider := p.token(t, "bob", audience)
	if got := s.graphql(t, outsider, `{ pools(tenantId: "acme") { nodes { id } } }`, nil); got.code != "FORBIDDEN" {
		t.Errorf("somebody outside of the group: %s", got.body)
	}
	if status, _, body := do(t, http.MethodPost, s.url+"/api/compute/providerAccounts/list", token, map[string]string{"Content-Type": "application/json"},
		strings.NewReader(`{"tenantId":"acme"}`)); status != http.StatusOK {
		t.Errorf("over REST: %d %s", status, body)
	}
	s.refusesAlike(t, p)
	s.rotates(t, p, token)
	s.withstandsAStorm(t, p, token)
	if log := s.Log.Text(); strings.Contains(log, token[:40]) || strings.Contains(log, outsider[len(outsider)-40:]) || !strings.Contains(log, `"reason":"another audience"`) {
		t.Error("the log has a token, or lacks the reason of a refusal")
	}
	_, _, metrics := do(t, http.MethodGet, s.url+"/metrics", "", nil, nil)
	if !strings.Contains(metrics, `compute_authentications_total{kind="oidc",result="another audience"} 1`) {
		t.Error("the refusal is not counted")
	}
}

func segment(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }

// refusesAlike sends what is nobody's credential in many ways, and wants one answer.
func (p *process) refusesAlike(t *testing.T, provider *process) {
	t.Helper()
	good := strings.Split(provider.token(t, "ada", audience), ".")
	var first string
	for name, token := range map[string]string{
		"another audience":   provider.token(t, "ada", "audience:other"),
		"expired":            provider.token(t, "ada", audience, "expires:-10m"),
		"no signature":       good[0] + "." + good[1] + ".",
		"no algorithm":       segment(`{"alg":"none"}`) + "." + good[1] + ".",
		"other claims":       good[0] + "." + segment(`{"iss":"`+provider.url+`","aud":"compute","sub":"root","exp":9999999999}`) + "." + good[2],
		"encrypted":          "eyJhbGciOiJSU0EtT0FFUCIsImVuYyI6IkEyNTZHQ00ifQ.a.b.c.d",
		"huge":               good[0] + "." + strings.Repeat("A", 20<<10) + "." + good[2],
		"unknown":            "whatever",
		"an unknown API key": "bct_" + strings.Repeat("0", 56),
	} {
		got := p.graphql(t, token, whoami, nil)
		if got.code != "UNAUTHENTICATED" || got.status != http.StatusUnauthorized || !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s: %d %v %s", name, got.status, got.header, got.body)
		}
		body := strings.ReplaceAll(got.body, got.header.Get("X-Request-Id"), "<id>")
		if first == "" {
			first = body
		}
		if body != first {
			t.Errorf("%s is told apart: %s\nfrom %s", name, body, first)
		}
	}
}

// rotates has the provider sign with a new key, the old one staying good.
func (p *process) rotates(t *testing.T, provider *process, old string) {
	t.Helper()
	do(t, http.MethodPost, provider.url+"/test/rotate?keep=1", "", nil, nil)
	renewed := provider.token(t, "eve", audience)
	eventually(t, "signed with the new key", "user:eve", func() string { return p.viewer(t, renewed) })
	if got := p.viewer(t, old); got != "user:ada" {
		t.Errorf("signed with the old key: %s", got)
	}
}

// withstandsAStorm sends tokens with unknown keys and counts what of that the provider sees.
func (p *process) withstandsAStorm(t *testing.T, provider *process, good string) {
	t.Helper()
	const tokens = 400
	claims := strings.Split(good, ".")[1]
	before := provider.fetches(t)
	work := make(chan string)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for token := range work {
				if got := p.viewer(t, token); got != "UNAUTHENTICATED" {
					t.Errorf("an unknown key: %s", got)
				}
			}
		})
	}
	for range tokens {
		work <- segment(`{"alg":"RS256","kid":"`+rand.Text()+`"}`) + "." + claims + "." + segment(rand.Text())
	}
	close(work)
	wg.Wait()
	fetched := provider.fetches(t) - before
	t.Logf("identity-unknown-keys figure=%d fetches for %d tokens", fetched, tokens)
	if fetched > tokens/10 {
		t.Errorf("%d tokens with unknown keys made %d fetches", tokens, fetched)
	}
	if got := p.viewer(t, good); got != "user:ada" {
		t.Errorf("after the storm: %s", got)
	}
}

func (p *process) fetches(t testing.TB) int {
	t.Helper()
	_, _, text := do(t, http.MethodGet, p.url+"/test/fetches", "", nil, nil)
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A stream ends with the credential that opened it.
func TestStreamsEndWithTheirOpenIDConnectToken(t *testing.T) {
	t.Parallel()
	p := provide(t, "127.0.0.1:0")
	s, _ := serve(t, pgtest.URL(t), oidcAuth(p.url), bindings("user:ada provider-viewer compute-tenant/acme"))
	if got := s.viewer(t, p.token(t, "ada", audience)); got != "user:ada" {
		t.Fatal(got)
	}
	open := func(life time.Duration) (token string, socket, events stream) {
		token = p.token(t, "ada", audience, "expires:"+life.String())
		return token, s.socket(t, token), s.sse(t, token)
	}
	token, socket, events := open(shortLife(func() { open(time.Hour) }))
	if got := socket.wait(t, "the WebSocket"); got != "4403" {
		t.Errorf("the WebSocket ended with %s", got)
	}
	if got := events.wait(t, "the event stream"); got != "UNAUTHENTICATED" {
		t.Errorf("the event stream ended with %q", got)
	}
	if got := s.viewer(t, token); got != "UNAUTHENTICATED" {
		t.Errorf("after its end: %s", got)
	}
}

// They end as well with the key that signed it, however long the token would be good: the issuer withdraws a key that was stolen.
func TestStreamsEndWithTheKeyOfTheirToken(t *testing.T) {
	t.Parallel()
	p := provide(t, "127.0.0.1:0")
	s, _ := serve(t, pgtest.URL(t), oidcAuth(p.url), bindings("user:ada provider-viewer compute-tenant/acme"))
	token := p.token(t, "ada", audience, "expires:10000h")
	idle, socket, events := s.dial(t, token), s.socket(t, token), s.sse(t, token)
	s.running(t, 2, 1)
	do(t, http.MethodPost, p.url+"/test/rotate", "", nil, nil)
	eventually(t, "signed with the new key", "user:eve", func() string { return s.viewer(t, p.token(t, "eve", audience)) })
	if got := idle.wait(t, "the idle WebSocket"); got != "4403" {
		t.Errorf("the idle WebSocket ended with %s", got)
	}
	if got := socket.wait(t, "the WebSocket"); got != "4403" {
		t.Errorf("the WebSocket ended with %s", got)
	}
	if got := events.wait(t, "the event stream"); got != "UNAUTHENTICATED" {
		t.Errorf("the event stream ended with %q", got)
	}
	if got := s.viewer(t, token); got != "UNAUTHENTICATED" {
		t.Errorf("after its end: %s", got)
	}
}
