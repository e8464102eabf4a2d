package backends

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime/debug"
	"sync/atomic"
	"unsafe"
)

// writeAheadSuffix is the suffix of the write-ahead file of a log.
const writeAheadSuffix = ".pending"

// maxWriteAhead is the maximum size of the postponed lines in bytes.
const maxWriteAhead = 256 << 10

// headerSize is the size of the file header: the number of bytes of complete lines, in native byte order, and
// headerMark.
const headerSize = 16

var headerMark = []byte("audited1")

// writeAhead holds postponed lines. With a write-ahead file, the lines are also in its mapped memory, which
// survives a kill of the process, and the next process recovers them. This costs a hundredth of a write.
// The lines do not survive a crash of the machine.
type writeAhead struct {
	text   []byte // the first used bytes are lines
	used   int
	mapped []byte // the file: header and a copy of text; nil without a file
	broken bool   // a write to the file has failed
	file   *os.File
	close  func() error // removes the file; nil without a file
}

// newMemoryWriteAhead returns a writeAhead without a file.
func newMemoryWriteAhead() *writeAhead { return &writeAhead{text: make([]byte, maxPooled)} }

// durable reports whether lines survive the process.
func (p *writeAhead) durable() bool { return p.mapped != nil }

// add adds a line. It returns false if there is no space.
func (p *writeAhead) add(line []byte) bool {
	to := p.used + len(line) + 1
	if p.broken || to > len(p.text) {
		return false
	}
	copy(p.text[p.used:], line)
	p.text[to-1] = '\n'
	if !p.store(p.used, to) {
		return false
	}
	p.used = to
	return true
}

// waiting returns the postponed lines.
func (p *writeAhead) waiting() []byte { return p.text[:p.used] }

// clear removes all lines.
func (p *writeAhead) clear() {
	if p.used > 0 {
		p.used = 0
		p.store(0, 0)
	}
}

// store copies a part of the text to the file and then sets the number of complete bytes in the header, so
// that a kill leaves no incomplete line.
func (p *writeAhead) store(from, to int) bool {
	return p.mapped == nil || p.writeMapped(func() {
		copy(p.mapped[headerSize+from:], p.text[from:to])
		atomic.StoreUint64((*uint64)(unsafe.Pointer(&p.mapped[0])), uint64(to))
	})
}

// writeMapped calls write, which writes to the mapped file. It returns false if that faults, because another
// process may have truncated the file, which must not end this process.
func (p *writeAhead) writeMapped(write func()) bool {
	if p.broken {
		return false
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { p.broken = recover() != nil }()
	write()
	return true
}

// recoveredLines returns the lines in the contents of a write-ahead file, or nil if the file is invalid.
func recoveredLines(file []byte) []byte {
	if len(file) < headerSize || !bytes.Equal(file[8:headerSize], headerMark) {
		return nil
	}
	n := binary.NativeEndian.Uint64(file)
	if n > uint64(len(file)-headerSize) {
		return nil
	}
	return file[headerSize:][:n]
}

// unwritten returns the part of the recovered lines that is not yet in the log. end is the end of the log, and
// whole reports whether it is all of the log. A killed process may have written some or all of the lines, and
// other lines after them.
func unwritten(lines, end []byte, whole bool) []byte {
	for at := range end {
		if at == 0 && !whole || at > 0 && end[at-1] != '\n' {
			continue // not the start of a line
		}
		n := commonPrefix(lines, end[at:])
		if n == len(lines) || at+n == len(end) {
			return lines[n:]
		}
	}
	return lines
}

// commonPrefix returns the length of the common prefix.
func commonPrefix(a, b []byte) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
