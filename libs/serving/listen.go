package serving

import (
	"context"
	"fmt"
	"net"
	"strconv"
)

func listen(o *Options) (net.Listener, error) {
	config := net.ListenConfig{Control: socketOptions(o.PermitPortSharing, o.PermitAddrSharing)}
	ln, err := config.Listen(context.Background(), "tcp", net.JoinHostPort(o.BindAddress.String(), strconv.Itoa(o.SecurePort)))
	if err != nil {
		return nil, fmt.Errorf("listen on --bind-address and --secure-port: %w", err)
	}
	return ln, nil
}
