//go:build unix

package conns

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// socketOptions returns a function that sets the options of a new socket, or nil if there is
// nothing to set.
func socketOptions(port, address bool) func(network, address string, c syscall.RawConn) error {
	if !port && !address {
		return nil
	}
	return func(_, _ string, c syscall.RawConn) error {
		var setErr error
		err := c.Control(func(fd uintptr) {
			if port {
				setErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
			}
			if address {
				setErr = errors.Join(setErr, unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
			}
		})
		return errors.Join(err, setErr)
	}
}
