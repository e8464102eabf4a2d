//go:build !(go1.27 && !http2legacy)

package serving

import (
	"bufio"
	"sync"
	_ "unsafe" // for go:linkname
)

// gathered is how many bytes of frames gather before they are written: a piece of a long answer,
// which is eight frames of the usual size and a little, with their heads.
const gathered = 9 * (9 + 16<<10)

// frameBuffers are where the HTTP/2 server of golang.org/x/net has frames gather. It starts a
// goroutine for each frame that its buffer has no room for, and waits for it: with its 4 KiB
// that is each frame of a long answer, for which two threads are woken. There is no option. Another
// version of the library may have no such pool: then this one is nobody's, and TestFramesGather fails.
//
//go:linkname frameBuffers golang.org/x/net/http2.bufWriterPool
var frameBuffers sync.Pool

var gatherOnce sync.Once

// gatherFrames has all HTTP/2 servers of the process gather more. A connection has such a buffer
// only while something is written.
func gatherFrames() {
	gatherOnce.Do(func() {
		frameBuffers.New = func() any { return bufio.NewWriterSize(nil, gathered) }
	})
}
