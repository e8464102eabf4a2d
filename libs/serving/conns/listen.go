package conns

import (
	"context"
	"net"
	"strconv"
)

// Listen binds an address and a port. Other sockets may share the port or the address if that is
// permitted.
func Listen(address net.IP, port int, sharePort, shareAddress bool) (net.Listener, error) {
	config := net.ListenConfig{Control: socketOptions(sharePort, shareAddress)}
	return config.Listen(context.Background(), "tcp", net.JoinHostPort(address.String(), strconv.Itoa(port)))
}
