package console

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func files() fstest.MapFS {
	return fstest.MapFS{
		"index.html":         {Data: []byte(`<meta name="csp-nonce" content="{{nonce}}">`)},
		"favicon.svg":        {Data: []byte("<svg/>")},
		"assets/a-1.js":      {Data: []byte("plain")},
		"assets/a-1.js.gz":   {Data: []byte("gzipped")},
		"assets/a-1.js.br":   {Data: []byte("brotli")},
		"placeholder.txt":    {Data: []byte("nobody's")},
		"licences.txt":       {Data: []byte("theirs")},
		"assets/b-2.woff2":   {Data: []byte("font")},
		"t/not-a-file.txt":   {Data: []byte("shadowed")},
		"assets/dir/c-3.css": {Data: []byte("css")},
	}
}

func get(t *testing.T, h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestPages(t *testing.T) {
	t.Parallel()
	h, err := newConsole(files(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for path, status := range map[string]int{
		"/": 200, "/sign-in": 200, "/sign-in/callback": 200, "/t/demo/accounts/new": 200, "/t/not-a-file.txt": 200, "/licences.txt": 200,
		"/nowhere": 404, "/placeholder.txt": 404, "/index.html": 404, "/assets/none.js": 404, "/assets/../index.html": 404, "/assets": 404,
		"/assets/dir": 404, "/tt": 404,
	} {
		w := get(t, h, path)
		if w.Code != status || (status == 404) != strings.Contains(w.Body.String(), `"code":"NOT_FOUND"`) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	one, other := get(t, h, "/"), get(t, h, "/")
	nonce := strings.TrimSuffix(strings.TrimPrefix(one.Body.String(), `<meta name="csp-nonce" content="`), `">`)
	policy := one.Header().Get("Content-Security-Policy")
	if len(nonce) < 20 || !strings.Contains(policy, "style-src 'self' 'nonce-"+nonce+"';") || one.Body.String() == other.Body.String() {
		t.Errorf("nonce %q in %s", nonce, policy)
	}
	if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "connect-src 'self';") {
		t.Errorf("policy %s", policy)
	}
	post := httptest.NewRecorder()
	h.ServeHTTP(post, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("{}")))
	if post.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", post.Code)
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	h, err := newConsole(files(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for accepted, want := range map[string]string{
		"": "plain", "identity": "plain", "gzip": "gzipped", "gzip, br": "brotli", "br;q=0, gzip;q=0.5": "gzipped", "deflate": "plain", "brr": "plain",
	} {
		w := get(t, h, "/assets/a-1.js", "Accept-Encoding", accepted)
		if w.Body.String() != want || !strings.Contains(w.Header().Get("Content-Type"), "javascript") || !strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
			t.Errorf("%q: %s %v", accepted, w.Body, w.Header())
		}
	}
	if w := get(t, h, "/favicon.svg", "Accept-Encoding", "br"); w.Body.String() != "<svg/>" || strings.Contains(w.Header().Get("Cache-Control"), "immutable") {
		t.Errorf("%s %v", w.Body, w.Header())
	}
}

func TestSignInSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options         Options
		settings, allow string
	}{
		{Options{}, `{"oidc":null}`, "connect-src 'self';"},
		{Options{Issuer: "https://login.example"}, `{"oidc":null}`, "connect-src 'self';"},
		{
			Options{Issuer: "https://login.example/realms/a", ClientID: "console"},
			`{"oidc":{"clientId":"console","issuer":"https://login.example/realms/a"}}`,
			"connect-src 'self' https://login.example;",
		},
	} {
		h, err := newConsole(files(), c.options)
		if err != nil {
			t.Fatal(err)
		}
		if got := get(t, h, "/console.json").Body.String(); got != c.settings {
			t.Errorf("settings %s, want %s", got, c.settings)
		}
		if policy := get(t, h, "/").Header().Get("Content-Security-Policy"); !strings.Contains(policy, c.allow) {
			t.Errorf("policy %s, want %s", policy, c.allow)
		}
	}
}

// TestWithoutABuild: the server then shows its own front page.
func TestWithoutABuild(t *testing.T) {
	t.Parallel()
	if h, err := newConsole(fstest.MapFS{"placeholder.txt": {}}, Options{}); h != nil || err != nil {
		t.Errorf("%v, %v", h, err)
	}
}

// TestBuilt judges the build that is embedded, as one is in CI: what its page names is there, compressed, and is all its own.
func TestBuilt(t *testing.T) {
	t.Parallel()
	h, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if h == nil {
		if os.Getenv("CI") != "" {
			t.Fatal("the console is not built: make build builds it where npm is")
		}
		t.Skip("the console is not built")
	}
	page := get(t, h, "/").Body.String()
	for quoted := range strings.SplitSeq(page, `"`) {
		if !strings.HasPrefix(quoted, "/assets/") {
			continue
		}
		w := get(t, h, quoted, "Accept-Encoding", "gzip")
		zipped, err := gzip.NewReader(w.Body)
		if w.Code != 200 || err != nil {
			t.Fatalf("%s: %d %v", quoted, w.Code, err)
		}
		if n, err := io.Copy(io.Discard, zipped); n == 0 || err != nil {
			t.Errorf("%s: %d bytes, %v", quoted, n, err)
		}
	}
	if strings.Contains(page, "http://") || strings.Contains(page, "https://") || strings.Contains(page, "<script>") {
		t.Errorf("page %s", page)
	}
}
