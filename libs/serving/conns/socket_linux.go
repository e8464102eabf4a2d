package conns

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// maxUnsent is the approximate number of unsent bytes above which the kernel blocks writes to a
// connection. It bounds the delay of HTTP/2 frames that are written later.
const maxUnsent = 128 << 10

// limitUnsent sets the option TCP_NOTSENT_LOWAT of a connection to maxUnsent. It is set per
// connection, because connections do not inherit it from a Multipath TCP listener, and package net
// creates such listeners by default. If setting the option fails, the kernel buffers more bytes.
func limitUnsent(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}

// unacknowledged returns the number of written bytes that the peer has not acknowledged. It
// returns 0 if the connection is closed. ok reports whether the platform provides the number; on
// Linux it is always true.
func unacknowledged(raw syscall.RawConn) (bytes int64, ok bool) {
	n := 0
	_ = raw.Control(func(fd uintptr) { // fails if the connection is closed; then n stays 0
		n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
	})
	return int64(n), true
}
