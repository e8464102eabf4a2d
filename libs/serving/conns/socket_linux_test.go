package conns

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestConnectionsLimitUnsentBytes checks that the kernel limits the unsent bytes of a connection.
func TestConnectionsLimitUnsentBytes(t *testing.T) {
	_, server := tcpPair(t)
	c := newConn(t.Context(), &Listener{}, server)
	if err := c.raw.Control(func(fd uintptr) {
		if n, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT); n != maxUnsent {
			t.Errorf("TCP_NOTSENT_LOWAT is %d, want %d; error: %v", n, maxUnsent, err)
		}
	}); err != nil {
		t.Fatal(err)
	}
}
