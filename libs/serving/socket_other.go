//go:build !linux

package serving

import "syscall"

func limitUnsent(uintptr) {}

func unacknowledged(syscall.RawConn) (bytes int64, ok bool) { return 0, false }
