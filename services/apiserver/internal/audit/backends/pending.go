package backends

import (
	"bytes"
	"encoding/binary"
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
// are in its memory, which the system keeps when the process is killed, and the next process
// writes them. So putting a line there is telling of it, for a hundredth of what a write costs.
type pending struct {
	text   []byte // what is taken is its beginning
	used   int
	mapped []byte       // the file: the head, and text
	close  func() error // nil where there is no file
}

// inMemory is what is lost with the process.
func inMemory() *pending { return &pending{text: make([]byte, maxPooled)} }

// durable tells that lines outlive the process.
func (p *pending) durable() bool { return p.mapped != nil }

// add takes a line, with its end; false when there is no room for it.
func (p *pending) add(line []byte) (ok bool) {
	if p.used+len(line) >= len(p.text) {
		return false
	}
	if p.mapped != nil {
		// Somebody may have cut the file off.
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if recover() != nil {
				p.text, p.used, ok = nil, 0, false
			}
		}()
	}
	copy(p.text[p.used:], line)
	p.text[p.used+len(line)] = '\n'
	p.used += len(line) + 1
	p.tell()
	return true
}

// lines are those that wait.
func (p *pending) lines() []byte { return p.text[:p.used] }

// written lets go of them.
func (p *pending) written() {
	if p.used > 0 {
		p.used = 0
		p.tell()
	}
}

// tell says in the file how many bytes are whole: a line that a kill has torn is none.
func (p *pending) tell() {
	if p.mapped != nil {
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&p.mapped[0])), uint64(p.used))
	}
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

// unwritten is the part of lines that wait that the end of a log does not have yet: the
// process may have been killed before it said that they were written, or while they were.
func unwritten(lines, end []byte) []byte {
	for n := min(len(lines), len(end)); n > 0; n-- {
		if bytes.HasSuffix(end, lines[:n]) {
			return lines[n:]
		}
	}
	return lines
}
