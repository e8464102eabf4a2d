package config

import (
	"net"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Hostname returns the name of this machine.
func (o *Options) Hostname() (string, error) {
	if o.Host != "" {
		return o.Host, nil
	}
	return os.Hostname()
}

// PrimaryFamily returns the IP family of the first service range.
func (o *Options) PrimaryFamily() corev1.IPFamily {
	if len(o.Services.Ranges) > 0 && o.Services.Ranges[0].IP.To4() == nil {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// serviceAddress returns the first address of a range, which is the cluster IP of the kubernetes
// service.
func serviceAddress(n *net.IPNet) string {
	ip := slices.Clone(n.IP)
	ip[len(ip)-1]++
	return ip.String()
}

// advertised returns the address at which members of the cluster reach the server: the bind address
// if it is reachable, otherwise an address of this host.
func advertised(bind net.IP) net.IP {
	if bind != nil && !bind.IsUnspecified() && !bind.IsLoopback() {
		return bind
	}
	// No packet is sent; the kernel only selects the interface.
	if c, err := net.Dial("udp", "192.0.2.1:9"); err == nil {
		defer c.Close()
		if a, ok := c.LocalAddr().(*net.UDPAddr); ok && a.IP.IsGlobalUnicast() {
			return a.IP
		}
	}
	addresses, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range addresses {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
				return n.IP
			}
		}
	}
	return net.IPv4(127, 0, 0, 1) // no other host can connect
}
