package backends

import (
	"context"
	"time"

	"gopkg.in/natefinch/lumberjack.v2"
)

// rotated is a file that is put aside when it is full. The library names what it puts
// aside by the millisecond, and would put a second file of the same one over the first.
type rotated struct {
	lumberjack.Logger
	most   int64 // bytes of a file
	size   int64 // of the file that is written, as the library counts
	opened bool
	last   int64 // the millisecond after a file was put aside last
}

// write implements outlet: nobody has to read a file.
func (r *rotated) write(_ context.Context, p []byte) (int, error) {
	after := r.size + int64(len(p))
	full := after > r.most || !r.opened && after == r.most // the library puts it aside sooner when it opens it
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
