package ssh

import (
	"net/netip"
	"slices"
	"syscall"

	"better/compute/internal/guard"
	"better/compute/provider"
)

// metadata are services that clouds run for their own machines outside of the link-local range. They hand credentials to whoever asks.
var metadata = []netip.Addr{
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("fd00:ec2::254"),   // Amazon
	netip.MustParseAddr("fd20:ce::254"),    // Google
}

// refuses says why a connection to the address is never made, or nothing. Private addresses are the normal case here.
func (o Options) refuses(ip netip.Addr) string {
	ip = guard.Plain(ip)
	switch {
	case ip.IsLoopback() && !o.AllowLoopback:
		return "it is the server's own"
	case ip.IsUnspecified() || ip.Is4() && ip.As4()[0] == 0:
		return "it is no machine's"
	case ip.IsLinkLocalUnicast():
		return "it is link-local"
	case ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "it is no single machine's"
	}
	if slices.Contains(metadata, ip) {
		return "it is a cloud's metadata service"
	}
	return ""
}

// control judges the address that a name was resolved to, at the last moment before connecting.
func (o Options) control(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return provider.Errorf(provider.InvalidConfig, "The address is refused: it cannot be judged.").Because(err)
	}
	if why := o.refuses(ap.Addr()); why != "" {
		return provider.Errorf(provider.InvalidConfig, "The address %s is refused: %s.", ap.Addr(), why)
	}
	return nil
}
