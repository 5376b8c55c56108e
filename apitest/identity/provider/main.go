// Command provider is an OpenID Connect provider, for tests: a library that others use in production, with keys that can be rotated
// while it runs.
//
// It owns what its clients ask for with scopes: a token of any client, for the audience `audience:<name>`, in the groups
// `group:<name>`, that ends after `expires:<duration>`. The client `console` has no secret: people sign in through it, as one of the
// library's example users, with a code and its proof. It is a module of its own, so that the server's does not depend on the library.
package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"flag"
	"fmt"
	"html"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

const secret = "secret"

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to listen")
	console := flag.String("console", "", "where the client `console` sends people back to")
	life := flag.Duration("life", 5*time.Minute, "how long a token counts that asks for no time")
	flag.Parse()
	if err := run(*listen, *console, *life); err != nil {
		fmt.Fprintln(os.Stderr, "provider:", err)
		os.Exit(1)
	}
}

func run(listen, console string, life time.Duration) error {
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	issuer := "http://" + ln.Addr().String()
	s := &store{Storage: storage.NewStorage(storage.NewUserStore(issuer)), console: console, life: life}
	if err := s.rotate(false); err != nil {
		return err
	}
	provider, err := op.NewProvider(&op.Config{CryptoKey: [32]byte{1}, CodeMethodS256: true}, s, op.StaticIssuer(issuer),
		op.WithAllowInsecure(), op.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	if err != nil {
		return err
	}
	fmt.Println("ready issuer=" + issuer)
	return http.Serve(ln, s.control(provider)) //nolint:gosec // for tests
}

// store is the library's own storage in memory, with other keys and clients.
type store struct {
	*storage.Storage
	console string
	life    time.Duration
	fetches atomic.Int64

	mu   sync.Mutex
	keys []*key // the last one signs
}

// control adds what tests steer the provider with.
func (s *store) control(provider *op.Provider) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /login/username", askWho)
	mux.HandleFunc("POST /login/username", op.NewIssuerInterceptor(provider.IssuerFromRequest).HandlerFunc(s.login(op.AuthCallbackURL(provider))))
	mux.Handle("/", provider)
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, r *http.Request) {
		s.fetches.Add(1)
		provider.ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /test/fetches", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprint(w, s.fetches.Load())
	})
	mux.HandleFunc("POST /test/rotate", func(w http.ResponseWriter, r *http.Request) {
		if err := s.rotate(r.URL.Query().Get("keep") != ""); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return mux
}

// askWho is the page where people sign in.
func askWho(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	_, _ = fmt.Fprintf(w, `<title>Sign in</title><form method="post"><input type="hidden" name="id" value="%s"><label>Name <input name="name"></label>`+
		`<label>Password <input name="password" type="password"></label><button>Go on</button></form>`, html.EscapeString(r.FormValue("authRequestID")))
}

// login sends who knows the password back to the client.
func (s *store) login(callback func(context.Context, string) string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		id := r.FormValue("id")
		if err := s.CheckUsernamePassword(r.FormValue("name"), r.FormValue("password"), id); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		http.Redirect(w, r, callback(r.Context(), id), http.StatusFound)
	}
}

func (s *store) GetClientByClientID(ctx context.Context, clientID string) (op.Client, error) {
	if clientID != "console" || s.console == "" {
		return s.Storage.GetClientByClientID(ctx, clientID)
	}
	return browser{storage.NativeClient(clientID, s.console), s.life}, nil
}

// rotate signs with a new key from now on, and goes on publishing the old ones or not.
func (s *store) rotate(keep bool) error {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !keep {
		s.keys = nil
	}
	s.keys = append(s.keys, &key{rand.Text(), private})
	return nil
}

func (s *store) SigningKey(context.Context) (op.SigningKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keys[len(s.keys)-1], nil
}

func (s *store) KeySet(context.Context) ([]op.Key, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	published := make([]op.Key, len(s.keys))
	for i, k := range s.keys {
		published[i] = public{k}
	}
	return published, nil
}

func (s *store) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}

func (s *store) ClientCredentials(_ context.Context, clientID, clientSecret string) (op.Client, error) {
	if clientSecret != secret {
		return nil, oidc.ErrInvalidClient()
	}
	return client{storage.WebClient(clientID, secret)}, nil
}

func (s *store) ClientCredentialsTokenRequest(_ context.Context, clientID string, scopes []string) (op.TokenRequest, error) {
	return &oidc.JWTTokenRequest{Subject: clientID, Audience: values(scopes, "audience:"), Scopes: scopes}, nil
}

func (s *store) CreateAccessToken(_ context.Context, r op.TokenRequest) (id string, ends time.Time, err error) {
	life := s.life
	for _, text := range values(r.GetScopes(), "expires:") {
		if life, err = time.ParseDuration(text); err != nil {
			return "", time.Time{}, oidc.ErrInvalidScope().WithParent(err)
		}
	}
	return rand.Text(), time.Now().Add(life), nil
}

func (s *store) GetPrivateClaimsFromScopes(_ context.Context, _, _ string, scopes []string) (map[string]any, error) {
	return map[string]any{"groups": values(scopes, "group:")}, nil
}

// values are what scopes with the prefix say.
func values(scopes []string, prefix string) []string {
	found := []string{}
	for _, s := range scopes {
		if v, ok := strings.CutPrefix(s, prefix); ok {
			found = append(found, v)
		}
	}
	return found
}

// client gets its tokens as JSON Web Tokens, without a user.
type client struct{ *storage.Client }

func (client) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }

func (client) GrantTypes() []oidc.GrantType { return []oidc.GrantType{oidc.GrantTypeClientCredentials} }

// browser is a client without a secret, whose tokens are JSON Web Tokens.
type browser struct {
	*storage.Client
	life time.Duration
}

func (browser) AccessTokenType() op.AccessTokenType { return op.AccessTokenTypeJWT }

func (b browser) IDTokenLifetime() time.Duration { return b.life }

type key struct {
	id      string
	private *rsa.PrivateKey
}

func (k *key) ID() string                                  { return k.id }
func (k *key) SignatureAlgorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (k *key) Key() any                                    { return k.private }

type public struct{ *key }

func (p public) Algorithm() jose.SignatureAlgorithm { return jose.RS256 }
func (p public) Use() string                        { return "sig" }
func (p public) Key() any                           { return &p.private.PublicKey }
