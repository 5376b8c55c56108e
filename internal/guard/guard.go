// Package guard owns where this server connects to on behalf of a tenant, and how much of an answer it takes.
//
// It refuses to know providers, accounts and secrets. The invariant: an address is judged when it is dialled, after every resolution and
// redirect, so nothing that was true of a name a moment ago lets a connection through; and a request goes to an origin on the list or nowhere.
package guard

import (
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// RefusedError says that a connection was not made.
type RefusedError struct {
	// Target is the address or the origin.
	Target string
	// Why goes on from "it".
	Why string
}

// Error is a sentence without its end, fit to be shown.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is refused: it %s", e.Target, e.Why)
}

// Networks judges addresses. Public ones may be connected to, and those of the networks that the operator has named.
type Networks []netip.Prefix

// Everywhere is for what only the operator says the address of.
func Everywhere() Networks {
	return Networks{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
}

// reserved is what belongs to no single machine on the internet, by IANA's registries of special-purpose addresses, and what clouds have
// put among the public ones for themselves.
var reserved = []struct {
	prefix netip.Prefix
	why    string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "names no machine"},
	{netip.MustParsePrefix("10.0.0.0/8"), "is private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "is shared behind a carrier's NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), "is the server's own"},
	{netip.MustParsePrefix("168.63.129.16/32"), "is a cloud's own service"},
	{netip.MustParsePrefix("169.254.0.0/16"), "is link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "is private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "is reserved for protocols"},
	{netip.MustParsePrefix("192.0.2.0/24"), "is for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "is a relay's"},
	{netip.MustParsePrefix("192.168.0.0/16"), "is private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "is for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "is for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "is for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "is many machines'"},
	{netip.MustParsePrefix("240.0.0.0/4"), "is reserved"},
	// Of IPv6 only 2000::/3 is given out; this is what is not a machine's there. Tunnels have an address inside that nobody judges.
	{netip.MustParsePrefix("2001::/23"), "is reserved for protocols"},
	{netip.MustParsePrefix("2001:db8::/32"), "is for documentation"},
	{netip.MustParsePrefix("2002::/16"), "is a tunnel"},
	{netip.MustParsePrefix("3fff::/20"), "is for documentation"},
}

var (
	global = netip.MustParsePrefix("2000::/3")
	nat64  = netip.MustParsePrefix("64:ff9b::/96")
)

// Refuses says why no connection is made to the address, or nothing. An IPv4 address inside an IPv6 one, mapped or behind NAT64, is judged
// as itself.
func (n Networks) Refuses(ip netip.Addr) string {
	ip = Plain(ip)
	if slices.ContainsFunc(n, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return ""
	}
	for _, r := range reserved {
		if r.prefix.Contains(ip) {
			return r.why
		}
	}
	switch {
	case !ip.IsValid():
		return "cannot be judged"
	case ip.IsLoopback():
		return "is the server's own"
	case ip.IsLinkLocalUnicast():
		return "is link-local"
	case ip.IsMulticast():
		return "is many machines'"
	case ip.IsPrivate():
		return "is private"
	case ip.Is6() && !global.Contains(ip):
		return "is not public"
	}
	return ""
}

// Plain is the address that a connection to ip reaches: without a zone, and the IPv4 address where ip has one inside.
func Plain(ip netip.Addr) netip.Addr {
	ip = ip.WithZone("").Unmap()
	if nat64.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	return ip
}

// Control is for net.Dialer: it is called with each address that is really connected to, right before that.
func (n Networks) Control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &RefusedError{address, "cannot be judged"}
	}
	if why := n.Refuses(ap.Addr()); why != "" {
		return &RefusedError{ap.Addr().String(), why}
	}
	return nil
}
