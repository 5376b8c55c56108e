package identity

import (
	"context"
	"crypto"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	lru "github.com/hashicorp/golang-lru/v2"

	"better/compute/internal/problem"
)

const (
	fetchTimeout = 5 * time.Second
	maxAnswer    = 1 << 20
	maxKeys      = 100
	minRSABits   = 2048

	// However many tokens come, and whatever keys they name, the issuer is asked at most this often by one replica.
	fetchEvery = 5 * time.Second
	// A key that the issuer did not have, or that had not signed the token, is not asked for again for so long.
	missFor     = 30 * time.Second
	missedKeys  = 1_000
	refreshKeys = 5 * time.Minute // so that a key that was taken away does not count for long
	trustKeys   = time.Hour       // while the issuer is away
)

var errRedirect = errors.New("the issuer redirects elsewhere")

// keySet holds the public keys of the issuer.
type keySet struct {
	issuer string
	client *http.Client
	log    *slog.Logger
	now    func() time.Time

	mu       sync.Mutex
	url      string // of the keys, found by discovery
	keys     []*publicKey
	fetched  time.Time // when the issuer last answered
	tried    time.Time
	fetching chan struct{} // closed when the fetch under way ends; nil: none
	missed   *lru.Cache[string, time.Time]
}

// publicKey is one for as long as the issuer has it.
type publicKey struct {
	jose.JSONWebKey
	gone chan struct{} // closed when the issuer has taken it away
}

func newKeySet(issuer string, log *slog.Logger) *keySet {
	missed, err := lru.New[string, time.Time](missedKeys)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &keySet{issuer: issuer, client: client(), log: log, now: time.Now, missed: missed}
}

// current makes sure that there are keys to go by. Keys that are getting old are fetched while the caller goes on with them.
// UNAVAILABLE when there are none.
func (k *keySet) current(ctx context.Context) error {
	k.mu.Lock()
	age := k.age()
	var wait chan struct{}
	if age > refreshKeys {
		wait = k.fetch(ctx)
	}
	k.mu.Unlock()
	if age <= trustKeys {
		return nil
	}
	if err := await(ctx, wait); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.age() > trustKeys {
		return unavailable(nil)
	}
	return nil
}

// refresh fetches keys that are getting old, so that one that was taken away ends streams although nobody else comes with a token. Before the
// first token came, the issuer is not asked.
func (k *keySet) refresh(ctx context.Context) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.fetched.IsZero() && k.age() > refreshKeys {
		k.fetch(ctx)
	}
}

// age is that of the keys; they are older than anything before the first answer.
func (k *keySet) age() time.Duration {
	if k.fetched.IsZero() {
		return trustKeys + 1
	}
	return k.now().Sub(k.fetched)
}

// verify gives the payload of a token that one of the keys signed, and that key. BadSignature, UnknownKey or UNAVAILABLE. The issuer is asked
// for both of these once more, as some give a new key the name of the old one.
func (k *keySet) verify(ctx context.Context, signed *jose.JSONWebSignature, header jose.Header) ([]byte, *publicKey, error) {
	payload, key, err := k.try(signed, header)
	if err == nil {
		return payload, key, nil
	}
	wait := k.fetchFor(ctx, header.KeyID)
	if wait == nil {
		return nil, nil, err
	}
	if err := await(ctx, wait); err != nil {
		return nil, nil, err
	}
	payload, key, err = k.try(signed, header)
	if err != nil {
		k.missed.Add(header.KeyID, k.now())
	}
	return payload, key, err
}

// try goes through the keys that the header can mean. One that names no key can mean each, and a new one too.
func (k *keySet) try(signed *jose.JSONWebSignature, header jose.Header) ([]byte, *publicKey, error) {
	k.mu.Lock()
	keys := k.keys
	k.mu.Unlock()
	err := UnknownKey
	for _, key := range keys {
		if header.KeyID != "" && key.KeyID != header.KeyID {
			continue
		}
		if key.Algorithm == "" || key.Algorithm == header.Algorithm {
			if payload, wrong := signed.Verify(&key.JSONWebKey); wrong == nil {
				return payload, key, nil
			}
		}
		if header.KeyID != "" {
			err = BadSignature
		}
	}
	return nil, nil, err
}

// fetchFor begins a fetch because of a key that is not known, or is another now, or joins the one that is under way; nil when it is too early for that.
func (k *keySet) fetchFor(ctx context.Context, keyID string) chan struct{} {
	if at, missed := k.missed.Get(keyID); missed && k.now().Sub(at) < missFor {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fetch(ctx)
}

// fetch begins to fetch the keys, unless that is under way, or was tried just now: then it gives nil. The fetch is nobody's alone, so it
// goes on when the one who began it is gone. Called with the lock held.
func (k *keySet) fetch(ctx context.Context) chan struct{} {
	if k.fetching != nil {
		return k.fetching
	}
	if !k.tried.IsZero() && k.now().Sub(k.tried) < fetchEvery {
		return nil
	}
	k.tried = k.now()
	done := make(chan struct{})
	k.fetching = done
	known := k.url
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	go func() {
		defer cancel()
		defer close(done)
		at, keys, err := k.ask(ctx, known)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.fetching = nil
		if err != nil {
			k.url = "" // it may have moved
			k.log.WarnContext(ctx, "the keys of the OIDC issuer cannot be fetched", "error", err)
			return
		}
		k.take(at, keys)
	}()
	return done
}

// take puts the keys that the issuer has now in the place of those that it had. One that it still has stays the same.
func (k *keySet) take(at string, found []jose.JSONWebKey) {
	keys := make([]*publicKey, len(found))
	for i := range found {
		keys[i] = &publicKey{found[i], make(chan struct{})}
		if same := slices.IndexFunc(k.keys, func(old *publicKey) bool { return sameKey(&old.JSONWebKey, &found[i]) }); same >= 0 {
			keys[i] = k.keys[same]
		}
	}
	for _, old := range k.keys {
		if !slices.Contains(keys, old) {
			close(old.gone)
		}
	}
	k.url, k.keys, k.fetched = at, keys, k.now()
}

// sameKey reports whether the two verify the same tokens. What else an issuer says of a key, its certificates say, may change.
func sameKey(a, b *jose.JSONWebKey) bool {
	key, ok := a.Key.(interface {
		Equal(other crypto.PublicKey) bool
	})
	return ok && a.KeyID == b.KeyID && a.Algorithm == b.Algorithm && key.Equal(b.Key)
}

// ask gets the keys from the issuer, after finding out where they are unless that is known.
func (k *keySet) ask(ctx context.Context, known string) (at string, keys []jose.JSONWebKey, err error) {
	if at = known; at == "" {
		if at, err = k.discover(ctx); err != nil {
			return "", nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return "", nil, fmt.Errorf("asking for the keys: %w", err)
	}
	resp, err := k.client.Do(req)
	if err != nil {
		return "", nil, fmt.Errorf("asking for the keys: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", nil, fmt.Errorf("reading the keys: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", nil, fmt.Errorf("asking for the keys: %s", resp.Status)
	}
	keys, err = readKeys(body)
	return at, keys, err
}

func (k *keySet) discover(ctx context.Context) (string, error) {
	p, err := oidc.NewProvider(oidc.ClientContext(ctx, k.client), k.issuer)
	if err != nil {
		return "", fmt.Errorf("discovering the issuer: %s", firstOf(err.Error())) // it holds what the issuer answered
	}
	var found struct {
		Keys string `json:"jwks_uri"`
	}
	if err := p.Claims(&found); err != nil {
		return "", fmt.Errorf("discovering the issuer: %w", err)
	}
	if err := CheckURL(found.Keys); err != nil {
		return "", fmt.Errorf("discovering the issuer: its jwks_uri %w", err)
	}
	return found.Keys, nil
}

func firstOf(s string) string {
	const enough = 200
	return s[:min(len(s), enough)]
}

// readKeys takes the keys that can verify signatures, each once, and passes over what it does not know: an issuer may be ahead of us.
func readKeys(body []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil || set.Keys == nil {
		return nil, errors.New("reading the keys: they are no JSON Web Key Set")
	}
	if len(set.Keys) > maxKeys {
		return nil, fmt.Errorf("reading the keys: there are %d of them", len(set.Keys))
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(raw, &key) != nil || !verifies(&key) {
			continue
		}
		listed := slices.ContainsFunc(keys, func(other jose.JSONWebKey) bool { return sameKey(&other, &key) })
		if !listed {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

func verifies(key *jose.JSONWebKey) bool {
	if !key.Valid() || !key.IsPublic() || (key.Use != "" && key.Use != "sig") {
		return false
	}
	r, isRSA := key.Key.(*rsa.PublicKey)
	return !isRSA || r.N.BitLen() >= minRSABits
}

// await waits for a fetch; nil stands for one that may not be made yet.
func await(ctx context.Context, fetched chan struct{}) error {
	if fetched == nil {
		return nil
	}
	select {
	case <-fetched:
		return nil
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
}

func unavailable(cause error) error {
	return problem.New(problem.Unavailable, "Whose credential this is cannot be told right now; try again.").Because(cause)
}

// CheckURL says what is wrong with the address of an issuer: it must be https, or http to this machine itself, without anything
// that is no address.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.RawQuery != "" {
		return errors.New("must be an https URL without credentials, query and fragment")
	}
	if u.Scheme == "https" || (u.Scheme == "http" && isLoopback(u.Hostname())) {
		return nil
	}
	return errors.New("must be https, or http to a loopback address")
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || (ip != nil && ip.IsLoopback())
}
