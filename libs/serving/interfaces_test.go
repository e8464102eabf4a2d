package serving

import (
	"fmt"
	"net"
	"testing"
)

// TestAddressesOfInterfaces: those that others may come by, and not all of a machine that has many.
func TestAddressesOfInterfaces(t *testing.T) {
	of := func(address string) net.Addr {
		ip, n, err := net.ParseCIDR(address)
		if err != nil {
			t.Fatal(err)
		}
		n.IP = ip
		return n
	}
	got := outside([]net.Addr{of("127.0.0.1/8"), of("fe80::1/64"), of("192.0.2.1/24"), of("2001:db8::1/64"), &net.IPAddr{IP: net.IPv4(192, 0, 2, 2)}})
	if fmt.Sprint(got) != "[192.0.2.1 2001:db8::1]" {
		t.Errorf("%v", got)
	}
	var many []net.Addr
	for i := range 2 * maxInterfaceAddresses {
		many = append(many, of(fmt.Sprintf("192.0.2.%d/24", i)))
	}
	if n := len(outside(many)); n != maxInterfaceAddresses {
		t.Errorf("%d addresses of %d", n, len(many))
	}
}
