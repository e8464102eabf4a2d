package conns

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// maxUnsent is the number of written bytes that the kernel buffers before it sends them. A write
// blocks beyond that, so that HTTP/2 frames written later are not delayed by much.
const maxUnsent = 128 << 10

// limitUnsent sets maxUnsent for a connection. Connections do not inherit it from a Multipath TCP
// listener, which is the default of package net. On failure the kernel keeps more.
func limitUnsent(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}

// unacknowledged returns how many bytes of a connection its peer has not acknowledged yet, and
// whether the kernel reports it.
func unacknowledged(raw syscall.RawConn) (bytes int64, ok bool) {
	n := 0
	_ = raw.Control(func(fd uintptr) { // fails once the connection is closed
		n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
	})
	return int64(n), true
}
