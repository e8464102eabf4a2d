//go:build !(go1.27 && !http2legacy)

package serving

import (
	"bufio"
	"sync"
	_ "unsafe" // for go:linkname

	_ "golang.org/x/net/http2"
)

// gathered is how many bytes of frames gather before they are written: eight of the usual size,
// with their heads.
const gathered = 8 * (9 + 16<<10)

// frameBuffers are where the HTTP/2 server of golang.org/x/net has frames gather. It starts a
// goroutine for each frame that its buffer has no room for, and waits for it: with its 4 KiB
// that is each frame of a long answer, for which two threads are woken. There is no option.
//
//go:linkname frameBuffers golang.org/x/net/http2.bufWriterPool
var frameBuffers sync.Pool

var gatherOnce sync.Once

// gatherFrames has all HTTP/2 servers of the process gather more. A connection has such a buffer
// only while something is written. Where the library is that of the standard library, from Go 1.27
// on, nothing is changed.
func gatherFrames() {
	gatherOnce.Do(func() {
		frameBuffers.New = func() any { return bufio.NewWriterSize(nil, gathered) }
	})
}
