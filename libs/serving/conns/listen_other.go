//go:build !unix

package conns

import (
	"errors"
	"syscall"
)

func socketOptions(port, address bool) func(network, address string, c syscall.RawConn) error {
	if !port && !address {
		return nil
	}
	return func(string, string, syscall.RawConn) error {
		return errors.New("sharing a port or address is not supported on this platform")
	}
}
