package backends

import (
	"context"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
)

// rotatedFile is a log file that is rotated when it is full. lumberjack names a rotated file by the
// millisecond and overwrites an older one of the same name, so rotations must be a millisecond apart.
type rotatedFile struct {
	lumberjack.Logger
	maxSize int64 // maximum size of a file in bytes
	size    int64 // of the current file, as lumberjack counts
	opened  bool
	last    int64 // the millisecond after the last rotation
}

// write implements output. It ignores ctx, because a file needs no reader.
func (r *rotatedFile) write(_ context.Context, p []byte) (int, error) {
	after := r.size + int64(len(p))
	full := after > r.maxSize || !r.opened && after == r.maxSize // lumberjack rotates one byte earlier when it opens the file
	if full {
		for time.Now().UnixMilli() == r.last {
			time.Sleep(time.Millisecond / 10)
		}
		r.size = 0
	}
	n, err := r.Logger.Write(p)
	r.size += int64(n)
	r.opened = true
	if full {
		r.last = time.Now().UnixMilli()
	}
	return n, err
}
