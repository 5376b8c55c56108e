package guard_test

import (
	"compress/gzip"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"better/compute/internal/guard"
	"better/compute/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0",
		"172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
		"2a01:4f8::1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101", "2001:4860:4860::8888",
	} {
		if why := guard.Networks(nil).Refuses(netip.MustParseAddr(text)); why != "" {
			t.Errorf("%s is refused: it %s", text, why)
		}
	}
	if why := guard.Networks(nil).Refuses(netip.Addr{}); why == "" {
		t.Error("no address is one that may be connected to")
	}
}

func TestAllowedNetworks(t *testing.T) {
	t.Parallel()
	n := guard.Networks{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")}
	for text, allowed := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::a01:203": true, "fd00:1::5": true, "1.1.1.1": true,
		"10.2.0.1": false, "127.0.0.1": false, "fd00:2::5": false, "169.254.169.254": false,
	} {
		if why := n.Refuses(netip.MustParseAddr(text)); (why == "") != allowed {
			t.Errorf("%s: refused because it %q", text, why)
		}
	}
}

func TestAllows(t *testing.T) {
	t.Parallel()
	for given, allowed := range map[string]bool{
		"https://api.vendor.test": true, "https://API.vendor.test/v1?x": true, "http://api.vendor.test": false, "https://api.vendor.test:8443": false,
		"https://api.vendor.test.": false, "https://api.vendor.test.evil.test": false, "https://evil.test/api.vendor.test": false,
		"https://api.vendor.te\u017ft": false, "ftp://api.vendor.test": false, "https://xapi.vendor.test": false,
		"http://localhost:1234/x": true, "https://localhost:1234": false,
	} {
		u, err := url.Parse(given)
		if err != nil {
			t.Fatal(err)
		}
		if got := guard.Allows("api.vendor.test", u) || guard.Allows("http://localhost:1234", u); got != allowed {
			t.Errorf("%s: %v", given, got)
		}
	}
}

// local is a server that may be reached, and a client that may reach it.
func local(t *testing.T, o guard.Options, h http.HandlerFunc) (*http.Client, string) {
	t.Helper()
	server := httptest.NewServer(h)
	o.Origins = append(o.Origins, server.URL)
	o.Networks = guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}
	client := guard.NewClient(o)
	t.Cleanup(func() { client.CloseIdleConnections(); server.Close() })
	return client, server.URL
}

func TestAnswersAreBounded(t *testing.T) {
	t.Parallel()
	o := guard.Options{AnswerBytes: 1000}
	client, url := local(t, o, func(w http.ResponseWriter, r *http.Request) {
		var out io.Writer = w
		if strings.Contains(r.URL.Path, "zipped") {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer func() { _ = z.Close() }()
			out = z
		}
		size := 1000
		if strings.Contains(r.URL.Path, "large") {
			size = 10 << 20
		}
		_, _ = io.WriteString(out, strings.Repeat("x", size))
	})
	for path, want := range map[string]error{"/": nil, "/zipped": nil, "/large": guard.ErrTooLarge, "/zipped/large": guard.ErrTooLarge} {
		response, err := client.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if !errors.Is(err, want) || len(body) != 1000 {
			t.Errorf("%s: %d bytes, %v", path, len(body), err)
		}
	}
}

func TestTimeIsBounded(t *testing.T) {
	t.Parallel()
	client, url := local(t, guard.Options{Timeout: 100 * time.Millisecond}, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" { // a byte now and then keeps no exchange alive
			for r.Context().Err() == nil {
				_, _ = io.WriteString(w, "x")
				_ = http.NewResponseController(w).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
		}
		<-r.Context().Done()
	})
	for _, path := range []string{"/slow", "/never"} {
		response, err := client.Get(url + path)
		if err == nil {
			_, err = io.ReadAll(response.Body)
			_ = response.Body.Close()
		}
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestOnlyTheOriginsAreAsked holds what keeps a secret at home: to any other origin nothing is sent, not even a connection made.
func TestOnlyTheOriginsAreAsked(t *testing.T) {
	t.Parallel()
	elsewhere := listen(t, "tcp", "127.0.0.1:0")
	client, _ := local(t, guard.Options{}, func(http.ResponseWriter, *http.Request) {})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1:"+strconv.Itoa(elsewhere.port), strings.NewReader("secret"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer secret")
	response, err := client.Do(request)
	if err == nil {
		_ = response.Body.Close()
	}
	if _, ok := errors.AsType[*guard.RefusedError](err); !ok || elsewhere.count.Load() != 0 {
		t.Errorf("%v, %d connections", err, elsewhere.count.Load())
	}
}

// TestNoProxy would fail if the client asked the environment for one; such a one would see every secret.
func TestNoProxy(t *testing.T) {
	proxy := listen(t, "tcp", "127.0.0.1:0")
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:"+strconv.Itoa(proxy.port))
	t.Setenv("ALL_PROXY", "http://127.0.0.1:"+strconv.Itoa(proxy.port))
	if err := get(t, guard.Options{Networks: guard.Networks{netip.MustParsePrefix("127.0.0.0/8")}}, "http://127.0.0.2:1/"); err == nil || proxy.count.Load() != 0 {
		t.Errorf("%v, %d connections", err, proxy.count.Load())
	}
}
