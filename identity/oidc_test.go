package identity

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"better/compute/authz"
	"better/compute/internal/leaktest"
	"better/compute/internal/postgres/pgtest"
	"better/compute/internal/problem"
)

func TestMain(m *testing.M) { leaktest.Main(m, pgtest.IgnoreServer()) }

const audience = "compute"

// issuer is an OpenID Connect issuer as far as who verifies its tokens sees of it. Beside it, apitest/identity has a whole one.
type issuer struct {
	*httptest.Server
	keysAsked atomic.Int32
	answer    atomic.Pointer[http.HandlerFunc] // instead of its own, for the keys

	mu        sync.Mutex
	keys      []jose.JSONWebKey
	discovery map[string]any // over what it says by itself
}

func newIssuer(t *testing.T, keys ...jose.JSONWebKey) *issuer {
	t.Helper()
	i := &issuer{keys: keys}
	i.Server = httptest.NewServer(i)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/.well-known/openid-configuration":
		found := map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"}
		maps.Copy(found, i.discovery)
		_ = json.NewEncoder(w).Encode(found)
	case "/keys":
		i.keysAsked.Add(1)
		if other := i.answer.Load(); other != nil {
			(*other)(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: i.keys})
	default:
		http.NotFound(w, r)
	}
}

func (i *issuer) publish(keys ...jose.JSONWebKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.keys = keys
}

// pair is a private key and what an issuer publishes of it.
type pair struct {
	private crypto.Signer
	public  jose.JSONWebKey
	alg     jose.SignatureAlgorithm
}

func newPair(t *testing.T, kid string, alg jose.SignatureAlgorithm) pair {
	t.Helper()
	var private crypto.Signer
	var err error
	switch alg[:2] {
	case "RS", "PS":
		private, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ES":
		private, err = ecdsa.GenerateKey(map[jose.SignatureAlgorithm]elliptic.Curve{
			jose.ES256: elliptic.P256(), jose.ES384: elliptic.P384(), jose.ES512: elliptic.P521(),
		}[alg], rand.Reader)
	default:
		_, private, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	return pair{private, jose.JSONWebKey{Key: private.Public(), KeyID: kid, Algorithm: string(alg), Use: "sig"}, alg}
}

// sign makes a token of the claims.
func (p pair) sign(t *testing.T, claims any, header map[jose.HeaderKey]any) string {
	t.Helper()
	options := &jose.SignerOptions{ExtraHeaders: map[jose.HeaderKey]any{}}
	if p.public.KeyID != "" {
		options.ExtraHeaders["kid"] = p.public.KeyID
	}
	maps.Copy(options.ExtraHeaders, header)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: p.alg, Key: p.private}, options)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

type claimSet = map[string]any

// claims are good ones, but for the changes; nil takes one away.
func (i *issuer) claims(changes claimSet) claimSet {
	c := claimSet{"iss": i.URL, "aud": audience, "sub": "ada", "exp": start.Add(time.Hour).Unix(), "iat": start.Unix()}
	for name, value := range changes {
		if c[name] = value; value == nil {
			delete(c, name)
		}
	}
	return c
}

var start = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

// verifier has a clock that the test moves.
type verifier struct {
	*OIDC
	clock atomic.Int64
}

func newVerifier(t *testing.T, issuerURL string) *verifier {
	t.Helper()
	v := &verifier{OIDC: NewOIDC(Options{Issuer: issuerURL, Audience: audience, GroupsClaim: "groups", Log: slog.New(slog.DiscardHandler)})}
	v.clock.Store(start.UnixNano())
	v.now = func() time.Time { return time.Unix(0, v.clock.Load()) }
	v.keys.now = v.now
	t.Cleanup(v.keys.client.CloseIdleConnections)
	return v
}

func (v *verifier) pass(d time.Duration) { v.clock.Add(int64(d)) }

func (v *verifier) want(t *testing.T, what, token string, want error) authz.Actor {
	t.Helper()
	actor, err := v.Authenticate(t.Context(), token)
	if want == errUnavailable {
		if !problem.Is(err, problem.Unavailable) {
			t.Errorf("%s: %v, want UNAVAILABLE", what, err)
		}
	} else if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
	if err != nil && actor.Subject != "" {
		t.Errorf("%s: refused and yet %+v", what, actor)
	}
	return actor
}

var errUnavailable = errors.New("UNAVAILABLE")

func TestTokensOfEveryAlgorithmAreTaken(t *testing.T) {
	t.Parallel()
	var keys []jose.JSONWebKey
	var pairs []pair
	for n, alg := range Algorithms() {
		p := newPair(t, fmt.Sprint("k", n), alg)
		pairs, keys = append(pairs, p), append(keys, p.public)
	}
	i := newIssuer(t, keys...)
	v := newVerifier(t, i.URL)
	for _, p := range pairs {
		actor := v.want(t, string(p.alg), p.sign(t, i.claims(nil), nil), nil)
		if actor.Subject != "user:ada" || actor.Groups != nil || actor.Credential != "" || !actor.Expires.Equal(start.Add(time.Hour+defaultLeeway)) {
			t.Errorf("%s: %+v", p.alg, actor)
		}
	}
	if n := i.keysAsked.Load(); n != 1 {
		t.Errorf("the keys were asked for %d times", n)
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	key := newPair(t, "k", jose.ES256)
	i := newIssuer(t, key.public)
	at := func(d time.Duration) int64 { return start.Add(d).Unix() }
	for name, c := range map[string]struct {
		change claimSet
		want   error
	}{
		"all is well":                   {nil, nil},
		"one of several audiences":      {claimSet{"aud": []string{"other", audience}}, nil},
		"an end with a fraction":        {claimSet{"exp": float64(at(time.Hour)) + 0.5}, nil},
		"a beginning in the past":       {claimSet{"nbf": at(-time.Hour)}, nil},
		"an end within the leeway":      {claimSet{"exp": at(-29 * time.Second)}, nil},
		"a beginning within the leeway": {claimSet{"nbf": at(29 * time.Second)}, nil},
		"an end before the leeway":      {claimSet{"exp": at(-31 * time.Second)}, Expired},
		"a beginning after the leeway":  {claimSet{"nbf": at(31 * time.Second)}, NotYet},
		"no end":                        {claimSet{"exp": nil}, Malformed},
		"an end that is no number":      {claimSet{"exp": "4102444800"}, Malformed},
		"an end that is null":           {claimSet{"exp": json.RawMessage("null")}, Malformed},
		"an end that is no date":        {claimSet{"exp": 1e300}, Malformed},
		"a beginning that is none":      {claimSet{"nbf": "soon"}, Malformed},
		"another issuer":                {claimSet{"iss": "https://other.example"}, OtherIssuer},
		"the issuer with a slash":       {claimSet{"iss": i.URL + "/"}, OtherIssuer},
		"no issuer":                     {claimSet{"iss": nil}, OtherIssuer},
		"an issuer in other letters":    {claimSet{"iss": nil, "ISS": i.URL}, OtherIssuer},
		"another audience":              {claimSet{"aud": "other"}, OtherAudience},
		"an audience that contains it":  {claimSet{"aud": "compute-two"}, OtherAudience},
		"no audience":                   {claimSet{"aud": nil}, OtherAudience},
		"an empty list of audiences":    {claimSet{"aud": []string{}}, OtherAudience},
		"no subject":                    {claimSet{"sub": nil}, BadSubject},
		"an empty subject":              {claimSet{"sub": ""}, BadSubject},
		"a subject with a space":        {claimSet{"sub": "ada lovelace"}, BadSubject},
		"a subject with a new line":     {claimSet{"sub": "ada\n"}, BadSubject},
		"a subject that looks like ada": {claimSet{"sub": "аda"}, BadSubject},
		"a long subject":                {claimSet{"sub": strings.Repeat("a", 257)}, BadSubject},
		"a subject that is a number":    {claimSet{"sub": 7}, BadSubject},
	} {
		v := newVerifier(t, i.URL)
		v.want(t, name, key.sign(t, i.claims(c.change), nil), c.want)
	}
	v := newVerifier(t, i.URL)
	if actor := v.want(t, "a subject with a prefix", key.sign(t, i.claims(claimSet{"sub": "service:acme/ci"}), nil), nil); actor.Subject != "user:service:acme/ci" {
		t.Errorf("%+v", actor)
	}
}

func TestGroups(t *testing.T) {
	t.Parallel()
	key := newPair(t, "k", jose.ES256)
	i := newIssuer(t, key.public)
	many := make([]string, maxGroups+1)
	for n := range many {
		many[n] = fmt.Sprint("g", n)
	}
	for name, c := range map[string]struct {
		path  string
		claim claimSet
		want  []string
		err   error
	}{
		"a list":                 {"groups", claimSet{"groups": []string{"b", "a", "a"}}, []string{"group:a", "group:b"}, nil},
		"one":                    {"groups", claimSet{"groups": "a"}, []string{"group:a"}, nil},
		"none":                   {"groups", nil, nil, nil},
		"null":                   {"groups", claimSet{"groups": json.RawMessage("null")}, nil, nil},
		"nested":                 {"realm_access.roles", claimSet{"realm_access": claimSet{"roles": []string{"a"}}}, []string{"group:a"}, nil},
		"nested in what is none": {"realm_access.roles", claimSet{"realm_access": "x"}, nil, BadGroups},
		"nested in null":         {"realm_access.roles", claimSet{"realm_access": json.RawMessage("null")}, nil, nil},
		"nested and not there":   {"realm_access.roles", claimSet{"realm_access": claimSet{"a": 1}}, nil, nil},
		"a name with dots":       {"https://a.example/groups", claimSet{"https://a.example/groups": []string{"a"}}, []string{"group:a"}, nil},
		"no claim is configured": {"", claimSet{"groups": []string{"a"}}, nil, nil},
		"what cannot be a group": {"groups", claimSet{"groups": []any{"with space", "", "ä", strings.Repeat("x", 257), "a"}}, []string{"group:a"}, nil},
		"a list with a number":   {"groups", claimSet{"groups": []any{"a", 7}}, nil, BadGroups},
		"a list with null":       {"groups", claimSet{"groups": []any{"a", nil}}, nil, BadGroups},
		"a list of lists":        {"groups", claimSet{"groups": [][]string{{"a"}}}, nil, BadGroups},
		"a list of objects":      {"groups", claimSet{"groups": []claimSet{{"name": "a"}}}, nil, BadGroups},
		"an empty list":          {"groups", claimSet{"groups": []string{}}, nil, nil},
		"to be had elsewhere": {"groups", claimSet{
			"_claim_names": claimSet{"groups": "src1"}, "_claim_sources": claimSet{"src1": claimSet{"endpoint": "https://graph.example/groups"}},
		}, nil, BadGroups},
		"elsewhere, and nested":          {"realm_access.roles", claimSet{"_claim_names": claimSet{"realm_access": "src1"}}, nil, BadGroups},
		"some here, more elsewhere":      {"groups", claimSet{"groups": []string{"a"}, "_claim_names": claimSet{"groups": "src1"}}, nil, BadGroups},
		"something else elsewhere":       {"groups", claimSet{"groups": []string{"a"}, "_claim_names": claimSet{"address": "src1"}}, []string{"group:a"}, nil},
		"elsewhere, in no known form":    {"groups", claimSet{"_claim_names": "groups"}, nil, BadGroups},
		"left out, with a flag":          {"groups", claimSet{"hasgroups": true}, nil, BadGroups},
		"a flag that says no":            {"groups", claimSet{"hasgroups": false}, nil, nil},
		"left out, and nobody wants any": {"", claimSet{"_claim_names": claimSet{"groups": "src1"}}, nil, nil},
		"what looks like a prefix":       {"groups", claimSet{"groups": []string{"group:a", "user:root"}}, []string{"group:group:a", "group:user:root"}, nil},
		"a number":                       {"groups", claimSet{"groups": 7}, nil, BadGroups},
		"an object":                      {"groups", claimSet{"groups": claimSet{"a": true}}, nil, BadGroups},
		"as many as may be":              {"groups", claimSet{"groups": many[1:]}, nil, nil},
		"more than that":                 {"groups", claimSet{"groups": many}, nil, BadGroups},
	} {
		v := newVerifier(t, i.URL)
		v.options.GroupsClaim = c.path
		actor := v.want(t, name, key.sign(t, i.claims(c.claim), nil), c.err)
		if name == "as many as may be" {
			if len(actor.Groups) != maxGroups {
				t.Errorf("%s: %d", name, len(actor.Groups))
			}
		} else if !slices.Equal(actor.Groups, c.want) {
			t.Errorf("%s: %q, want %q", name, actor.Groups, c.want)
		}
	}
}

func segment(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// What an attacker can make without the issuer's private key is nobody's.
func TestForgeries(t *testing.T) {
	t.Parallel()
	key, foreign := newPair(t, "k", jose.RS256), newPair(t, "k", jose.RS256)
	i := newIssuer(t, key.public)
	v := newVerifier(t, i.URL)
	good := key.sign(t, i.claims(nil), nil)
	parts := strings.Split(good, ".")
	claims := segment(i.claims(claimSet{"sub": "root"}))
	der, err := x509.MarshalPKIXPublicKey(key.private.Public())
	if err != nil {
		t.Fatal(err)
	}
	public := map[string][]byte{
		"its PEM": pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), "its DER": der,
		"its modulus": key.private.Public().(*rsa.PublicKey).N.Bytes(), "nothing": {}, //nolint:forcetypeassert // made above
	}
	jwk, err := json.Marshal(foreign.public)
	if err != nil {
		t.Fatal(err)
	}
	embedded := foreign.sign(t, i.claims(nil), map[jose.HeaderKey]any{"jwk": json.RawMessage(jwk)})
	cases := map[string]struct {
		token string
		want  error
	}{
		"none":                        {segment(claimSet{"alg": "none", "kid": "k"}) + "." + claims + ".", Malformed},
		"None":                        {segment(claimSet{"alg": "None", "kid": "k"}) + "." + claims + ".", Malformed},
		"none with a signature":       {segment(claimSet{"alg": "none", "kid": "k"}) + "." + claims + "." + parts[2], Malformed},
		"no algorithm":                {segment(claimSet{"kid": "k"}) + "." + claims + "." + parts[2], Malformed},
		"no signature":                {parts[0] + "." + parts[1] + ".", BadSignature},
		"other claims":                {parts[0] + "." + claims + "." + parts[2], BadSignature},
		"another algorithm":           {segment(claimSet{"alg": "PS256", "kid": "k"}) + "." + parts[1] + "." + parts[2], BadSignature},
		"an elliptic one":             {segment(claimSet{"alg": "ES256", "kid": "k"}) + "." + parts[1] + "." + parts[2], BadSignature},
		"another key of that name":    {foreign.sign(t, i.claims(nil), nil), BadSignature},
		"another key, embedded":       {embedded, BadHeader},
		"another key, without a name": {pair{foreign.private, jose.JSONWebKey{}, jose.RS256}.sign(t, i.claims(nil), nil), UnknownKey},
		"a key from elsewhere":        {foreign.sign(t, i.claims(nil), map[jose.HeaderKey]any{"jku": i.URL + "/evil", "x5u": i.URL + "/evil"}), BadSignature},
		"a name that is a path":       {foreign.sign(t, i.claims(nil), map[jose.HeaderKey]any{"kid": "../../../../dev/null"}), UnknownKey},
		"a name that is SQL":          {foreign.sign(t, i.claims(nil), map[jose.HeaderKey]any{"kid": "k' OR '1'='1"}), UnknownKey},
		"a name that is long":         {foreign.sign(t, i.claims(nil), map[jose.HeaderKey]any{"kid": strings.Repeat("k", 300)}), BadHeader},
		"a name that is none":         {segment(claimSet{"alg": "RS256", "kid": 7}) + "." + claims + "." + parts[2], Malformed},
		"a rule that must be known":   {key.sign(t, i.claims(nil), map[jose.HeaderKey]any{"crit": []string{"exp"}, "exp": 1}), BadHeader},
		"a logout":                    {key.sign(t, i.claims(nil), map[jose.HeaderKey]any{"typ": "logout+jwt"}), BadHeader},
		"a security event":            {key.sign(t, i.claims(nil), map[jose.HeaderKey]any{"typ": "application/secevent+jwt"}), BadHeader},
		"an access token":             {key.sign(t, i.claims(nil), map[jose.HeaderKey]any{"typ": "at+jwt"}), nil},
		"too large":                   {key.sign(t, i.claims(claimSet{"fill": strings.Repeat("x", maxToken)}), nil), TooLarge},
		"dots":                        {"..", Malformed},
		"an object for claims":        {parts[0] + "." + segment([]string{"a"}) + "." + parts[2], Malformed},
		"null for claims":             {parts[0] + "." + segment(nil) + "." + parts[2], Malformed},
		"text for a header":           {"x." + parts[1] + "." + parts[2], Malformed},
		"the form with JSON":          {`{"protected":"` + parts[0] + `","payload":"` + parts[1] + `","signature":"` + parts[2] + `"}..`, Malformed},
		"the token itself":            {good, nil},
	}
	for name, secret := range public {
		for _, alg := range []jose.SignatureAlgorithm{jose.HS256, jose.HS384, jose.HS512} {
			if len(secret) > 0 {
				cases[string(alg)+" with "+name] = struct {
					token string
					want  error
				}{hmacToken(t, alg, secret, i.claims(nil)), Malformed}
			}
		}
	}
	for name, c := range cases {
		v.want(t, name, c.token, c.want)
	}
}

func hmacToken(t *testing.T, alg jose.SignatureAlgorithm, secret []byte, claims claimSet) string {
	t.Helper()
	padded := append(slices.Clone(secret), make([]byte, 64)...) // the library wants long keys
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: padded}, &jose.SignerOptions{ExtraHeaders: map[jose.HeaderKey]any{"kid": "k"}})
	if err != nil {
		t.Fatal(err)
	}
	payload, _ := json.Marshal(claims)
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// Keys that an issuer publishes for something else, or that anybody could know, verify nothing.
func TestKeysThatDoNotCount(t *testing.T) {
	t.Parallel()
	small, err := rsa.GenerateKey(rand.Reader, 1024) // which is the point
	if err != nil {
		t.Fatal(err)
	}
	secret := []byte(strings.Repeat("s", 64))
	encryption, good := newPair(t, "enc", jose.RS256), newPair(t, "good", jose.RS256)
	encryption.public.Use = "enc"
	i := newIssuer(t,
		jose.JSONWebKey{Key: &small.PublicKey, KeyID: "small"}, jose.JSONWebKey{Key: secret, KeyID: "k"},
		encryption.public, good.public,
	)
	v := newVerifier(t, i.URL)
	v.want(t, "a good one among them", good.sign(t, i.claims(nil), nil), nil)
	v.want(t, "for encryption", encryption.sign(t, i.claims(nil), nil), UnknownKey)
	v.want(t, "too small", pair{small, jose.JSONWebKey{KeyID: "small"}, jose.RS256}.sign(t, i.claims(nil), nil), UnknownKey)
	v.want(t, "symmetric", hmacToken(t, jose.HS256, secret, i.claims(nil)), Malformed)
	if len(v.keys.keys) != 1 {
		t.Errorf("%d keys count", len(v.keys.keys))
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	old, new := newPair(t, "old", jose.ES256), newPair(t, "new", jose.ES256)
	i := newIssuer(t, old.public)
	v := newVerifier(t, i.URL)
	oldToken, newToken := old.sign(t, i.claims(nil), nil), new.sign(t, i.claims(nil), nil)
	v.want(t, "the old key", oldToken, nil)
	v.pass(fetchEvery)
	i.publish(old.public, new.public)
	v.want(t, "the new key", newToken, nil)
	v.want(t, "the old one beside it", oldToken, nil)
	// The old key is taken away. The tokens that it signed end with the next look at the keys, those that are remembered too.
	i.publish(new.public)
	v.pass(refreshKeys + time.Second)
	v.want(t, "while the keys are looked at again", newToken, nil)
	v.settle(t)
	v.want(t, "the old key, taken away", oldToken, UnknownKey)
	v.want(t, "the new one", newToken, nil)
}

// Some issuers give a new key the name of the old one. The first token that it signed makes the server look, and ends the old one; forgeries of
// that name make it look no more often than an unknown name does.
func TestRotationUnderOneName(t *testing.T) {
	t.Parallel()
	old, new, forger := newPair(t, "k", jose.ES256), newPair(t, "k", jose.ES256), newPair(t, "k", jose.ES256)
	i := newIssuer(t, old.public)
	v := newVerifier(t, i.URL)
	oldToken := old.sign(t, i.claims(nil), nil)
	v.want(t, "the old key", oldToken, nil)
	v.pass(fetchEvery)
	i.publish(new.public)
	v.want(t, "the new key", new.sign(t, i.claims(nil), nil), nil)
	v.want(t, "the old one", oldToken, BadSignature)
	before := i.keysAsked.Load()
	for range 6 {
		v.pass(fetchEvery)
		v.want(t, "a forgery", forger.sign(t, i.claims(nil), nil), BadSignature)
	}
	if n := i.keysAsked.Load() - before; n != 1 {
		t.Errorf("the keys were asked for %d times in 30 seconds because of forgeries", n)
	}
}

// Who came with a token is told that its key is gone, also when nobody else comes, and also after the key was taken for the same for a while.
func TestACallerHearsThatTheirKeyIsGone(t *testing.T) {
	t.Parallel()
	old, new := newPair(t, "old", jose.ES256), newPair(t, "new", jose.ES256)
	i := newIssuer(t, old.public)
	v := newVerifier(t, i.URL)
	v.keys.refresh(t.Context())
	v.settle(t)
	if n := i.keysAsked.Load(); n != 0 {
		t.Errorf("before anybody came the keys were asked for %d times", n)
	}
	caller := v.want(t, "the old key", old.sign(t, i.claims(nil), nil), nil)
	look := func(keys ...jose.JSONWebKey) {
		i.publish(keys...)
		v.pass(refreshKeys + time.Second)
		v.keys.refresh(t.Context())
		v.settle(t)
	}
	described := old.public
	described.Use = ""
	look(described, new.public)
	other := v.want(t, "the new key", new.sign(t, i.claims(nil), nil), nil)
	if caller.Ended(v.now()) || other.Ended(v.now()) {
		t.Error("while both keys are there, somebody has ended")
	}
	look(new.public)
	select {
	case <-caller.Withdrawn:
	default:
		t.Error("the key is gone, and nobody is told")
	}
	if !caller.Ended(v.now()) || other.Ended(v.now()) {
		t.Errorf("ended: who came with the old key %v, with the new one %v", caller.Ended(v.now()), other.Ended(v.now()))
	}
	look(old.public, new.public)
	if !caller.Ended(v.now()) {
		t.Error("a key that is back brings back who had to come again")
	}
	v.want(t, "the old key, back", old.sign(t, i.claims(nil), nil), nil)
}

// An issuer that lists a key twice has one key, which comes and goes as any other.
func TestAKeyThatIsListedTwice(t *testing.T) {
	t.Parallel()
	twice, other := newPair(t, "twice", jose.ES256), newPair(t, "other", jose.ES256)
	i := newIssuer(t, twice.public, twice.public)
	v := newVerifier(t, i.URL)
	caller := v.want(t, "the key", twice.sign(t, i.claims(nil), nil), nil)
	for range 2 {
		v.pass(refreshKeys + time.Second)
		v.keys.refresh(t.Context())
		v.settle(t)
	}
	if caller.Ended(v.now()) {
		t.Error("while the key is there, its caller has ended")
	}
	i.publish(other.public)
	v.pass(refreshKeys + time.Second)
	v.keys.refresh(t.Context())
	v.settle(t)
	if !caller.Ended(v.now()) {
		t.Error("the key is gone, and its caller is not")
	}
}

// settle waits for a fetch that goes on by itself.
func (v *verifier) settle(t *testing.T) {
	t.Helper()
	v.keys.mu.Lock()
	fetching := v.keys.fetching
	v.keys.mu.Unlock()
	if fetching != nil {
		<-fetching
	}
	v.keys.mu.Lock() // the fetch ends with the lock held
	defer v.keys.mu.Unlock()
}

// However many tokens name keys that there are not, the issuer is hardly asked.
func TestAStormOfUnknownKeysDoesNotReachTheIssuer(t *testing.T) {
	t.Parallel()
	key, foreign := newPair(t, "k", jose.ES256), newPair(t, "", jose.ES256)
	i := newIssuer(t, key.public)
	v := newVerifier(t, i.URL)
	v.want(t, "before", key.sign(t, i.claims(nil), nil), nil)
	var wg sync.WaitGroup
	for round := range 4 {
		v.pass(fetchEvery)
		for n := range 50 {
			token := foreign.sign(t, i.claims(nil), map[jose.HeaderKey]any{"kid": fmt.Sprint(round, "-", n)})
			wg.Go(func() { v.want(t, "an unknown key", token, UnknownKey) })
		}
		wg.Wait()
	}
	if n := i.keysAsked.Load(); n > 5 {
		t.Errorf("the keys were asked for %d times in 20 seconds", n)
	}
	// One and the same key that is not there is not asked for each time that it might be.
	same := foreign.sign(t, i.claims(nil), map[jose.HeaderKey]any{"kid": "same"})
	before := i.keysAsked.Load()
	for range 6 {
		v.pass(fetchEvery)
		v.want(t, "an unknown key", same, UnknownKey)
	}
	if n := i.keysAsked.Load() - before; n != 1 {
		t.Errorf("the keys were asked for %d times in 30 seconds because of one", n)
	}
	if n := v.keys.missed.Len(); n > missedKeys {
		t.Errorf("%d are remembered", n)
	}
	v.want(t, "after", key.sign(t, i.claims(nil), nil), nil)
}

// Tokens that are not meant for this server cost the issuer nothing.
func TestForeignTokensAreRefusedBeforeAKeyIsLookedFor(t *testing.T) {
	t.Parallel()
	key := newPair(t, "k", jose.ES256)
	i := newIssuer(t, key.public)
	v := newVerifier(t, i.URL)
	v.want(t, "before", key.sign(t, i.claims(nil), nil), nil)
	v.pass(fetchEvery)
	v.want(t, "of another issuer", newPair(t, "x", jose.ES256).sign(t, i.claims(claimSet{"iss": "https://other.example"}), nil), OtherIssuer)
	if n := i.keysAsked.Load(); n != 1 {
		t.Errorf("the keys were asked for %d times", n)
	}
}

func TestTheIssuerIsAway(t *testing.T) {
	t.Parallel()
	key := newPair(t, "k", jose.ES256)
	i := newIssuer(t, key.public)
	v := newVerifier(t, i.URL)
	token := key.sign(t, i.claims(claimSet{"exp": start.Add(4 * time.Hour).Unix()}), nil)
	away := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	i.answer.Store(&away)
	for range 20 {
		v.want(t, "at the start", token, errUnavailable)
	}
	if n := i.keysAsked.Load(); n != 1 {
		t.Errorf("the issuer was asked %d times at once", n)
	}
	i.answer.Store(nil)
	v.pass(fetchEvery)
	v.want(t, "when it is back", token, nil)
	i.answer.Store(&away)
	for range 5 {
		v.pass(10 * time.Minute)
		v.want(t, "away for less than an hour", token, nil)
		v.settle(t)
	}
	v.pass(11 * time.Minute)
	v.want(t, "away for longer", token, errUnavailable)
	i.answer.Store(nil)
	v.pass(fetchEvery)
	v.want(t, "when it is back again", token, nil)
}

// A caller who gives up does not take the answer from the others who wait for it.
func TestAFetchIsNobodysAlone(t *testing.T) {
	t.Parallel()
	key := newPair(t, "k", jose.ES256)
	i := newIssuer(t, key.public)
	v := newVerifier(t, i.URL)
	asked, release := make(chan struct{}), make(chan struct{})
	slow := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-release
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.public}})
	})
	i.answer.Store(&slow)
	ctx, cancel := context.WithCancel(t.Context())
	token := key.sign(t, i.claims(nil), nil)
	gaveUp := make(chan error, 1)
	go func() { _, err := v.Authenticate(ctx, token); gaveUp <- err }()
	<-asked
	cancel()
	if err := <-gaveUp; !problem.Is(err, problem.Unavailable) {
		t.Errorf("who gave up: %v", err)
	}
	close(release)
	v.want(t, "who waits", token, nil)
}

// What the issuer answers can neither fill the memory, nor send us elsewhere, nor be something else than keys.
func TestAnIssuerThatMisbehaves(t *testing.T) {
	t.Parallel()
	key := newPair(t, "k", jose.ES256)
	elsewhere := newIssuer(t, key.public)
	for name, c := range map[string]struct {
		answer    http.HandlerFunc
		discovery claimSet
	}{
		"endless": {answer: func(w http.ResponseWriter, _ *http.Request) { endless(w) }},
		"a redirect": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL+"/keys", http.StatusFound)
		}},
		"text":    {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }},
		"no keys": {answer: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }},
		"too many keys": {answer: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"keys":[` + strings.Repeat("{},", 200) + `{}]}`))
		}},
		"another issuer":  {discovery: claimSet{"issuer": "https://other.example"}},
		"keys in clear":   {discovery: claimSet{"jwks_uri": "http://keys.example/keys"}},
		"keys in a file":  {discovery: claimSet{"jwks_uri": "file:///etc/passwd"}},
		"keys of someone": {discovery: claimSet{"jwks_uri": "https://user:password@keys.example/"}},
		"keys nowhere":    {discovery: claimSet{"jwks_uri": ""}},
	} {
		i := newIssuer(t, key.public)
		i.discovery = c.discovery
		if c.answer != nil {
			i.answer.Store(&c.answer)
		}
		v := newVerifier(t, i.URL)
		v.want(t, name, key.sign(t, i.claims(nil), nil), errUnavailable)
		if len(v.keys.keys) != 0 {
			t.Errorf("%s: there are keys", name)
		}
	}
}

// endless stops at ten times what anybody may read.
func endless(w http.ResponseWriter) {
	_, _ = w.Write([]byte(`{"keys":[`))
	for range 10 * maxAnswer / 1000 {
		if _, err := w.Write([]byte(strings.Repeat(" ", 1000))); err != nil {
			return
		}
	}
	_, _ = w.Write([]byte(`]}`))
}

// A token that was verified is not verified again, and does not outlive its end.
func TestWhatIsRememberedEndsToo(t *testing.T) {
	t.Parallel()
	key := newPair(t, "k", jose.ES256)
	i := newIssuer(t, key.public)
	v := newVerifier(t, i.URL)
	token := key.sign(t, i.claims(claimSet{"exp": start.Add(time.Minute).Unix()}), nil)
	v.want(t, "first", token, nil)
	v.want(t, "again", token, nil)
	if v.cached.Len() != 1 {
		t.Errorf("%d tokens are remembered", v.cached.Len())
	}
	v.pass(time.Minute + defaultLeeway - time.Millisecond)
	v.want(t, "at its end", token, nil)
	v.pass(time.Millisecond)
	v.want(t, "after its end", token, Expired)
	v.want(t, "a wrong one", token[:len(token)-4]+"AAAA", BadSignature)
	if v.cached.Len() != 1 {
		t.Errorf("%d tokens are remembered: what is refused must not be", v.cached.Len())
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for address, ok := range map[string]bool{
		"https://issuer.example": true, "https://issuer.example/realms/a": true, "http://127.0.0.1:1/": true, "http://localhost:1": true, "http://[::1]:1": true,
		"": false, "issuer.example": false, "http://issuer.example": false, "http://10.0.0.1": false, "ftp://issuer.example": false, "https://": false,
		"https://u:p@issuer.example": false, "https://issuer.example?x": false, "https://issuer.example#x": false, "http://localhost.example": false,
	} {
		if err := CheckURL(address); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
}
