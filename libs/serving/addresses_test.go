package serving

import (
	"fmt"
	"net"
	"testing"
)

// TestGlobalAddresses checks that only global unicast addresses are returned, and a limited number
// of them.
func TestGlobalAddresses(t *testing.T) {
	of := func(address string) net.Addr {
		ip, ipNet, err := net.ParseCIDR(address)
		if err != nil {
			t.Fatal(err)
		}
		ipNet.IP = ip
		return ipNet
	}
	got := globalAddresses([]net.Addr{of("127.0.0.1/8"), of("fe80::1/64"), of("192.0.2.1/24"), of("2001:db8::1/64"),
		&net.IPAddr{IP: net.IPv4(192, 0, 2, 2)}})
	if fmt.Sprint(got) != "[192.0.2.1 2001:db8::1]" {
		t.Errorf("globalAddresses() = %v, want [192.0.2.1 2001:db8::1]", got)
	}
	var many []net.Addr
	for i := range 2 * maxInterfaceAddresses {
		many = append(many, of(fmt.Sprintf("192.0.2.%d/24", i)))
	}
	if n := len(globalAddresses(many)); n != maxInterfaceAddresses {
		t.Errorf("got %d of %d addresses, want maxInterfaceAddresses", n, len(many))
	}
}
