package serving

import (
	"fmt"
	"net"
	"testing"
)

// TestGlobalAddressesReturnsFewUnicastAddresses checks that only global unicast addresses are
// returned, and a limited number of them.
func TestGlobalAddressesReturnsFewUnicastAddresses(t *testing.T) {
	addressOf := func(address string) net.Addr {
		ip, ipNet, err := net.ParseCIDR(address)
		if err != nil {
			t.Fatal(err)
		}
		ipNet.IP = ip
		return ipNet
	}
	got := globalAddresses([]net.Addr{addressOf("127.0.0.1/8"), addressOf("fe80::1/64"), addressOf("192.0.2.1/24"), addressOf("2001:db8::1/64"),
		&net.IPAddr{IP: net.IPv4(192, 0, 2, 2)}})
	if fmt.Sprint(got) != "[192.0.2.1 2001:db8::1]" {
		t.Errorf("globalAddresses() = %v, want [192.0.2.1 2001:db8::1]", got)
	}
	var many []net.Addr
	for i := range 2 * maxInterfaceAddresses {
		many = append(many, addressOf(fmt.Sprintf("192.0.2.%d/24", i)))
	}
	if n := len(globalAddresses(many)); n != maxInterfaceAddresses {
		t.Errorf("got %d of %d addresses, want maxInterfaceAddresses", n, len(many))
	}
}
