package guard_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"better/compute/internal/guard"
)

// forbidden are addresses that no tenant gets this server to connect to.
func forbidden() []netip.Addr {
	var all []netip.Addr
	for _, text := range []string{
		"127.0.0.1", "127.0.0.53", "127.1.2.3", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200",
		"100.127.255.255", "169.254.169.254", "169.254.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255", "192.0.0.192", "192.0.2.1",
		"192.88.99.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
		"168.63.129.16",
		"::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "fd20:ce::254", "ff02::1", "ff0e::1", "100::1", "64:ff9b:1::a00:1", "2001::1",
		"2001:db8::1", "2002:7f00:1::", "3fff::1", "4000::1", "::7f00:1",
	} {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// own are the addresses of this machine, at which the test's listener could be reached.
func own(t *testing.T) []netip.Addr {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var own []netip.Addr
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && guard.Networks(nil).Refuses(p.Addr()) != "" {
			own = append(own, p.Addr())
		}
	}
	return own
}

// spellings are ways to write the address as the host of a URL, those too that only sloppy parsers and resolvers read.
func spellings(ip netip.Addr) []string {
	if ip.Is6() {
		full := ip.StringExpanded()
		return []string{
			"[" + ip.String() + "]", "[" + strings.ToUpper(ip.String()) + "]", "[" + full + "]", "[" + strings.ToUpper(full) + "]",
			"[" + ip.String() + "%25lo]", "[" + ip.String() + "%251]",
		}
	}
	b := ip.As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	wide := strings.Map(func(r rune) rune {
		if r == '.' {
			return '\u3002'
		}
		return r - '0' + '\uff10'
	}, ip.String())
	return []string{
		ip.String(), ip.String() + ".", fmt.Sprint(n), fmt.Sprintf("%#x", n), fmt.Sprintf("%#o", n), fmt.Sprintf("0%#o", n), fmt.Sprintf("%#X", n),
		fmt.Sprintf("%d.%d", b[0], n&0xffffff), fmt.Sprintf("%d.%d.%d", b[0], b[1], n&0xffff), fmt.Sprintf("%#x.%#x.%#x.%#x", b[0], b[1], b[2], b[3]),
		fmt.Sprintf("%#o.%#o.%#o.%#o", b[0], b[1], b[2], b[3]), fmt.Sprintf("%03d.%03d.%03d.%03d", b[0], b[1], b[2], b[3]),
		fmt.Sprintf("0x%08x", n), fmt.Sprintf("%d.%#x.%d.%#o", b[0], b[1], b[2], b[3]), wide,
		fmt.Sprintf("[::ffff:%s]", ip), fmt.Sprintf("[::ffff:%x:%x]", n>>16, n&0xffff), fmt.Sprintf("[0:0:0:0:0:ffff:%s]", ip), fmt.Sprintf("[::FFFF:%s]", ip),
		fmt.Sprintf("[::%s]", ip), fmt.Sprintf("[64:ff9b::%s]", ip), fmt.Sprintf("[64:ff9b::%x:%x]", n>>16, n&0xffff), fmt.Sprintf("[64:ff9b:1::%s]", ip),
		fmt.Sprintf("[2002:%x:%x::1]", n>>16, n&0xffff), fmt.Sprintf("[::ffff:%s%%25lo]", ip), fmt.Sprintf("[2001:0:%x:%x::]", n>>16, n&0xffff),
		fmt.Sprintf("%s.nip.test", ip), fmt.Sprintf("%d-%d-%d-%d.nip.test", b[0], b[1], b[2], b[3]),
	}
}

// counter is a listener at every address of this machine. It counts who comes, and answers.
type counter struct {
	port  int
	count atomic.Int64
}

func listen(t *testing.T, network, address string) *counter {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{port: ln.Addr().(*net.TCPAddr).Port}
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Connection", "close")
			if to := r.URL.Query().Get("to"); to != "" {
				http.Redirect(w, r, to, http.StatusFound)
			}
		}),
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				c.count.Add(1)
			}
		},
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	return c
}

// answers is a DNS server whose answer to a name's queries the test gives.
func answers(t *testing.T, answer func(name string) []netip.Addr) *net.Resolver {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		reply := new(dns.Msg).SetReply(q)
		for _, ip := range answer(q.Question[0].Name) {
			header := dns.RR_Header{Name: q.Question[0].Name, Rrtype: q.Question[0].Qtype, Class: dns.ClassINET} // and no time to live
			switch {
			case ip.Is4() && header.Rrtype == dns.TypeA:
				reply.Answer = append(reply.Answer, &dns.A{Hdr: header, A: ip.AsSlice()})
			case ip.Is6() && header.Rrtype == dns.TypeAAAA:
				reply.Answer = append(reply.Answer, &dns.AAAA{Hdr: header, AAAA: ip.AsSlice()})
			}
		}
		_ = w.WriteMsg(reply)
	})}
	go func() { _ = server.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = server.Shutdown() })
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", packets.LocalAddr().String())
	}}
}

// get asks as a client that was given the URL's own origin to go to, so that nothing but the address is judged.
func get(t *testing.T, o guard.Options, address string) error {
	t.Helper()
	scheme, rest, _ := strings.Cut(address, "://")
	host, _, _ := strings.Cut(rest, "/")
	o.Origins = append(slices.Clone(o.Origins), scheme+"://"+host)
	o.Timeout = 20 * time.Second
	client := guard.NewClient(o)
	defer client.CloseIdleConnections()
	response, err := client.Get(address)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, response.Body)
	return response.Body.Close()
}

// TestSpellings asks for what no tenant may reach in every spelling: in the URL itself, behind a redirect, and as what a name resolves to.
func TestSpellings(t *testing.T) {
	t.Parallel()
	bad := listen(t, "tcp", ":0")
	good := listen(t, "tcp", "127.0.0.2:0")
	addresses := append(forbidden(), own(t)...)
	var resolved sync.Map
	// Whatever is not an address to Go is a name, and every name is the server's own machine, unless the test says otherwise.
	resolver := answers(t, func(name string) []netip.Addr {
		if ip, ok := resolved.Load(name); ok {
			return []netip.Addr{ip.(netip.Addr)}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}
	})
	o := guard.Options{Resolver: resolver, Networks: guard.Networks{netip.MustParsePrefix("127.0.0.2/32")}}
	written, tries := map[string]bool{}, 0
	for i, ip := range addresses {
		for _, host := range spellings(ip) {
			written[host] = true
			target := fmt.Sprintf("http://%s:%d/", host, bad.port)
			if err := get(t, o, target); err == nil {
				t.Errorf("%s was reached", target)
			}
			// The client must not follow, so that is no failure.
			through := o
			through.Origins = []string{fmt.Sprintf("http://%s:%d", host, bad.port)}
			if err := get(t, through, fmt.Sprintf("http://127.0.0.2:%d/?to=%s", good.port, url.QueryEscape(target))); err != nil {
				t.Errorf("the redirect to %s: %v", target, err)
			}
			tries += 2
		}
		name := fmt.Sprintf("evil-%d.test.", i)
		resolved.Store(name, ip)
		err := get(t, o, fmt.Sprintf("http://%s:%d/", name, bad.port))
		if refused, ok := errors.AsType[*guard.RefusedError](err); !ok {
			t.Errorf("%s, which is %s: %v", name, ip, err)
		} else if refused.Why == "" || strings.Contains(refused.Error(), "%!") {
			t.Errorf("refused: %v", refused)
		}
		tries++
	}
	if len(written) < 500 {
		t.Errorf("only %d spellings", len(written))
	}
	verdict := "PASS"
	if bad.count.Load() != 0 {
		verdict = "FAIL"
		t.Errorf("%d connections", bad.count.Load())
	}
	t.Logf("guard-spellings spellings=%d tries=%d connections=%d %s", len(written), tries, bad.count.Load(), verdict)

	// The listener would have told.
	o.Networks = append(o.Networks, netip.MustParsePrefix("127.0.0.0/8"))
	if err := get(t, o, fmt.Sprintf("http://127.0.0.1:%d/", bad.port)); err != nil || bad.count.Load() != 1 {
		t.Errorf("a network that the operator allows: %v, %d connections", err, bad.count.Load())
	}
}

// TestRebinding has a name whose answers change between two looks at it, and one that stands for a good and a bad address at once.
func TestRebinding(t *testing.T) {
	t.Parallel()
	bad := listen(t, "tcp", "127.0.0.1:0")
	good := listen(t, "tcp", fmt.Sprintf("127.0.0.2:%d", bad.port))
	goodIP, badIP := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")
	var asked atomic.Int64
	resolver := answers(t, func(name string) []netip.Addr {
		if strings.HasPrefix(name, "both") {
			return []netip.Addr{goodIP, badIP}
		}
		if asked.Add(1)%3 == 1 {
			return []netip.Addr{goodIP}
		}
		return []netip.Addr{badIP}
	})
	o := guard.Options{Resolver: resolver, Networks: guard.Networks{netip.PrefixFrom(goodIP, 32)}}
	const rounds = 200
	refused := 0
	for range rounds {
		if get(t, o, fmt.Sprintf("http://rebinding.test:%d/", bad.port)) != nil {
			refused++
		}
		_ = get(t, o, fmt.Sprintf("http://both.test:%d/", bad.port))
	}
	if refused == 0 || refused == rounds || good.count.Load() == 0 {
		t.Errorf("of %d looks at the name %d were refused, and %d connections were good", rounds, refused, good.count.Load())
	}
	verdict := "PASS"
	if bad.count.Load() != 0 {
		verdict = "FAIL"
		t.Errorf("%d connections", bad.count.Load())
	}
	t.Logf("guard-rebinding tries=%d refused=%d connections=%d %s", 2*rounds, refused, bad.count.Load(), verdict)
}
