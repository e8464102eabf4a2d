package backends

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime/debug"
	"sync/atomic"
	"unsafe"
)

// pendingName follows the name of a log in that of the file beside it.
const pendingName = ".pending"

// maxPending is how many bytes of lines wait for the next write at most.
const maxPending = 256 << 10

// pendingHead precedes the lines in a file: how many bytes of them there are, in the order
// of bytes of the machine, and a word that tells what it is.
const pendingHead = 16

var pendingMark = []byte("audited1")

// pending are lines that wait for the next write. Where there is a file beside the log they
// are in its memory too, which the system keeps when the process is killed, and the next
// process writes them. So putting a line there is telling of it, for a hundredth of what a
// write costs.
type pending struct {
	text   []byte // what is taken is its beginning
	used   int
	mapped []byte // the file: the head, and what text has; nil where there is none
	spoilt bool   // the file cannot be written any more
	file   *os.File
	close  func() error // takes the file away; nil where there is none
}

// inMemory is what is lost with the process.
func inMemory() *pending { return &pending{text: make([]byte, maxPooled)} }

// durable tells that lines outlive the process.
func (p *pending) durable() bool { return p.mapped != nil }

// add takes a line, with its end; false when there is no room for it.
func (p *pending) add(line []byte) bool {
	to := p.used + len(line) + 1
	if p.spoilt || to > len(p.text) {
		return false
	}
	copy(p.text[p.used:], line)
	p.text[to-1] = '\n'
	if !p.tell(p.used, to) {
		return false
	}
	p.used = to
	return true
}

// lines are those that wait.
func (p *pending) lines() []byte { return p.text[:p.used] }

// written lets go of them.
func (p *pending) written() {
	if p.used > 0 {
		p.used = 0
		p.tell(0, 0)
	}
}

// tell brings a part of the text to the file, and says there how many bytes are whole: a line
// that a kill has torn is none.
func (p *pending) tell(from, to int) bool {
	return p.mapped == nil || p.touch(func() {
		copy(p.mapped[pendingHead+from:], p.text[from:to])
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&p.mapped[0])), uint64(to))
	})
}

// touch writes to the file's memory; false when that is gone: somebody may have cut the file
// off, which must not end the process.
func (p *pending) touch(write func()) bool {
	if p.spoilt {
		return false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { p.spoilt = recover() != nil }()
	write()
	return true
}

// left are the lines that a file has which its process did not write any more.
func left(file []byte) []byte {
	if len(file) < pendingHead || !bytes.Equal(file[8:pendingHead], pendingMark) {
		return nil
	}
	n := binary.NativeEndian.Uint64(file)
	if n > uint64(len(file)-pendingHead) {
		return nil
	}
	return file[pendingHead:][:n]
}

// unwritten is the part of lines that wait that a log does not have yet, which ends so: the
// process may have been killed before it said that they were written, or while they were.
// Other lines may follow them in the log, which were written with them. whole tells that the
// end is all of the log.
func unwritten(lines, end []byte, whole bool) []byte {
	for at := range end {
		if at == 0 && !whole || at > 0 && end[at-1] != '\n' {
			continue // lines begin where lines begin
		}
		n := common(lines, end[at:])
		if n == len(lines) || at+n == len(end) {
			return lines[n:]
		}
	}
	return lines
}

// common is how many bytes two texts begin with alike.
func common(a, b []byte) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
