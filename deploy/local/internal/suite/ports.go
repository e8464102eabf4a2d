package suite

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
)

// usedPorts returns the ports of a plan, in ascending order.
func usedPorts(c Config, p plan) (out []int) {
	n := Ports
	if !c.HA {
		n = len(p.groups)
	}
	for i := range n {
		out = append(out, c.Port+i)
	}
	return out
}

// checkPorts returns an error that names the ports of a plan on which other processes listen.
func checkPorts(c Config, p plan) error {
	var busy []string
	ports := usedPorts(c, p)
	for _, port := range ports {
		l, err := net.Listen("tcp", loopback(port))
		switch {
		case errors.Is(err, syscall.EADDRINUSE):
			busy = append(busy, fmt.Sprint(port))
		case err != nil:
			return fmt.Errorf("--port: %w", err)
		default:
			l.Close()
		}
	}
	if len(busy) == 0 {
		return nil
	}
	return fmt.Errorf("ports in use by other processes: %s; choose others with --port: the suite needs %d consecutive ports, now %d to %d",
		strings.Join(busy, ", "), len(ports), ports[0], ports[len(ports)-1])
}
