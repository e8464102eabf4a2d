//go:build !linux

package conns

import "syscall"

func limitUnsent(syscall.RawConn) {}

func unacknowledged(syscall.RawConn) (bytes int64, ok bool) { return 0, false }
