// Package console owns the web console as it is served: the files that `make console` builds, embedded, and the headers that keep a
// browser to them.
//
// It refuses to know the API: the console is a client of GraphQL like any other. The invariant: a page of the console runs only what
// this binary holds, and talks to this server and the configured issuer only.
package console

import (
	"bytes"
	"crypto/rand"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"

	"better/compute/internal/problem"
	"better/compute/internal/refusal"
)

//go:embed all:dist
var built embed.FS

// Options says how people sign in.
type Options struct {
	// Issuer and ClientID are those of OpenID Connect; without either people sign in with a token.
	Issuer, ClientID string
}

// console serves the built files.
type console struct {
	files    fs.FS
	index    []byte
	settings []byte // console.json
	connect  string // what pages may talk to
}

// New gives the console's handler; nil when the binary was built without it.
func New(o Options) (http.Handler, error) {
	files, err := fs.Sub(built, "dist")
	if err != nil {
		return nil, fmt.Errorf("opening the console: %w", err)
	}
	return newConsole(files, o)
}

func newConsole(files fs.FS, o Options) (http.Handler, error) {
	index, err := fs.ReadFile(files, "index.html")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // there is none, which is no error
	}
	if err != nil {
		return nil, fmt.Errorf("opening the console: %w", err)
	}
	c := &console{files: files, index: index, connect: "'self'"}
	settings := map[string]any{"oidc": nil}
	if o.Issuer != "" && o.ClientID != "" {
		issuer, err := url.Parse(o.Issuer)
		if err != nil {
			return nil, fmt.Errorf("reading the issuer's URL: %w", err)
		}
		settings["oidc"] = map[string]string{"issuer": o.Issuer, "clientId": o.ClientID}
		c.connect += " " + issuer.Scheme + "://" + issuer.Host
	}
	if c.settings, err = json.Marshal(settings); err != nil {
		return nil, fmt.Errorf("writing the console's settings: %w", err)
	}
	return c, nil
}

// ServeHTTP answers the console's own paths, and NOT_FOUND at any other.
func (c *console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		refusal.WriteStatus(w, http.StatusMethodNotAllowed, problem.New(problem.InvalidInput, "This path does not take this method."))
		return
	}
	name := strings.TrimPrefix(path.Clean(r.URL.Path), "/")
	switch {
	case isPage(name):
		c.servePage(w)
	case name == "console.json":
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = w.Write(c.settings) // the client is gone
	case name == "favicon.svg" || name == "licences.txt" || strings.HasPrefix(name, "assets/"):
		c.serveFile(w, r, name)
	default:
		refusal.Write(w, problem.New(problem.NotFound, "There is nothing at this path."))
	}
}

// isPage reports whether the console shows a page at this path, which its own router then tells apart.
func isPage(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return name == "" || first == "sign-in" || first == "t"
}

// servePage gives the one document that every page starts as. The component kit writes style elements, which the nonce lets through;
// it is new for each answer, so the answer is not to be kept.
func (c *console) servePage(w http.ResponseWriter) {
	nonce := rand.Text()
	w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self' 'nonce-"+nonce+"'; img-src 'self' data:; "+
		"font-src 'self'; connect-src "+c.connect+"; form-action 'none'; base-uri 'none'; frame-ancestors 'none'")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write(bytes.ReplaceAll(c.index, []byte("{{nonce}}"), []byte(nonce))) // the client is gone
}

// serveFile answers a file in the smallest form that the client takes. A hash of its content is in the name of an asset, so that it
// can be kept for ever.
func (c *console) serveFile(w http.ResponseWriter, r *http.Request, name string) {
	h := w.Header()
	h.Set("Vary", "Accept-Encoding")
	body, encoding, err := c.smallest(name, r.Header.Get("Accept-Encoding"))
	if err != nil {
		refusal.Write(w, problem.New(problem.NotFound, "There is nothing at this path."))
		return
	}
	if encoding != "" {
		h.Set("Content-Encoding", encoding)
	}
	h.Set("Content-Type", mime.TypeByExtension(path.Ext(name)))
	h.Set("Cache-Control", "public, max-age=3600")
	if strings.HasPrefix(name, "assets/") {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(body) // the client is gone
}

func (c *console) smallest(name, accepted string) (body []byte, encoding string, err error) {
	for _, e := range []struct{ encoding, suffix string }{{"br", ".br"}, {"gzip", ".gz"}} {
		if !accepts(accepted, e.encoding) {
			continue
		}
		if body, err = fs.ReadFile(c.files, name+e.suffix); err == nil {
			return body, e.encoding, nil
		}
	}
	body, err = fs.ReadFile(c.files, name)
	return body, "", err
}

// accepts reports whether an Accept-Encoding names the encoding and does not rule it out.
func accepts(header, encoding string) bool {
	for part := range strings.SplitSeq(header, ",") {
		name, weight, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(name), encoding) {
			return strings.ReplaceAll(weight, " ", "") != "q=0"
		}
	}
	return false
}
