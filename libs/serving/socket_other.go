//go:build !linux

package serving

import "syscall"

func limitUnsent(uintptr) {}

func unacknowledged(syscall.RawConn) int64 { return 0 }
