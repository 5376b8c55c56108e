package identity

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	lru "github.com/hashicorp/golang-lru/v2"

	"better/compute/authz"
)

const (
	defaultLeeway = 30 * time.Second
	cachedTokens  = 10_000
	maxKeyID      = 256
	lookEvery     = time.Minute
)

// Algorithms are those of the signatures that are taken. All are asymmetric: with any other, whoever knows the issuer's public keys
// could sign.
func Algorithms() []jose.SignatureAlgorithm {
	return []jose.SignatureAlgorithm{
		jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512, jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
	}
}

// Options say whose tokens are taken.
type Options struct {
	Issuer      string
	Audience    string
	GroupsClaim string        // the claim with the names of groups, or the path to it with dots; empty: no groups
	Leeway      time.Duration // how far the issuer's clock may be from ours; 0: 30 s
	Log         *slog.Logger
}

// OIDC recognises the tokens of one OpenID Connect issuer: JSON Web Tokens that it signed for our audience. Nothing is asked of
// the issuer before the first token comes. Safe for concurrent use.
type OIDC struct {
	options Options
	keys    *keySet
	now     func() time.Time
	cached  *lru.Cache[[sha256.Size]byte, authz.Actor]
}

// NewOIDC makes an OIDC. CheckURL says what the issuer must be like.
func NewOIDC(o Options) *OIDC {
	if o.Leeway == 0 {
		o.Leeway = defaultLeeway
	}
	cached, err := lru.New[[sha256.Size]byte, authz.Actor](cachedTokens)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	return &OIDC{options: o, keys: newKeySet(o.Issuer, o.Log), now: time.Now, cached: cached}
}

// Run looks at the issuer's keys again while nobody comes with a token, until ctx ends. Call it once.
func (o *OIDC) Run(ctx context.Context) {
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-looks.C:
			o.keys.refresh(ctx)
		}
	}
}

// Authenticate tells who comes with the token: `user:` and its subject, with its groups, until it expires or the key that signed it is
// withdrawn. A Reason, or UNAVAILABLE when the issuer's keys are not known.
func (o *OIDC) Authenticate(ctx context.Context, token string) (authz.Actor, error) {
	if len(token) > maxToken {
		return authz.Actor{}, TooLarge
	}
	if err := o.keys.current(ctx); err != nil {
		return authz.Actor{}, err
	}
	sum := sha256.Sum256([]byte(token))
	if actor, ok := o.cached.Get(sum); ok {
		if !o.now().Before(actor.Expires) {
			return authz.Actor{}, Expired
		}
		if !actor.Ended(o.now()) {
			return actor, nil
		}
	}
	actor, err := o.verify(ctx, token)
	if err != nil {
		return authz.Actor{}, err
	}
	o.cached.Add(sum, actor)
	return actor, nil
}

func (o *OIDC) verify(ctx context.Context, token string) (authz.Actor, error) {
	signed, err := jose.ParseSignedCompact(token, Algorithms())
	if err != nil || len(signed.Signatures) != 1 {
		return authz.Actor{}, Malformed
	}
	header := signed.Signatures[0].Protected
	if err := checkHeader(header); err != nil {
		return authz.Actor{}, err
	}
	// Before any key is asked for, so that tokens that are not meant for us at all cost the issuer nothing.
	if err := o.checkAddressees(signed.UnsafePayloadWithoutVerification()); err != nil {
		return authz.Actor{}, err
	}
	payload, key, err := o.keys.verify(ctx, signed, header)
	if err != nil {
		return authz.Actor{}, err
	}
	actor, err := o.actor(payload)
	if err != nil {
		return authz.Actor{}, err
	}
	actor.Withdrawn = key.gone
	return actor, nil
}

// checkHeader refuses headers by which a token brings its own key, asks for rules that we do not know, or says that it is something
// else than a credential. That it names where its key can be fetched (jku, x5u) is not looked at.
func checkHeader(h jose.Header) error {
	if h.JSONWebKey != nil || len(h.KeyID) > maxKeyID {
		return BadHeader
	}
	for _, name := range []jose.HeaderKey{"crit", "b64", "zip", "enc"} {
		if _, has := h.ExtraHeaders[name]; has {
			return BadHeader
		}
	}
	typ, _ := h.ExtraHeaders[jose.HeaderType].(string)
	switch strings.TrimPrefix(strings.ToLower(typ), "application/") {
	case "", "jwt", "at+jwt":
		return nil
	default:
		return BadHeader
	}
}

// client bounds what the issuer can do to us: in time, in size, and in where it sends us.
func client() *http.Client {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, TLSHandshakeTimeout: fetchTimeout, MaxIdleConns: 2, IdleConnTimeout: time.Minute,
	}
	return &http.Client{
		Transport: bounded{transport},
		Timeout:   fetchTimeout,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			first := via[0].URL
			if len(via) > 3 || req.URL.Host != first.Host || req.URL.Scheme != first.Scheme {
				return errRedirect
			}
			return nil
		},
	}
}

// bounded cuts answers off.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}
