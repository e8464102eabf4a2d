package encodings

import (
	"bytes"
	"sync"
	"sync/atomic"
	"unsafe"
)

// ID identifies a form of encoding, such as one version of an object in JSON. The caller assigns
// the numbers.
type ID uint32

// invalidForm is the form of Ring.retiredMark. No encoding has it.
const invalidForm = ^ID(0)

// List holds the encodings of one object, at most one in each form. The zero value is empty.
type List struct{ first atomic.Pointer[encoding] }

// encoding is one encoding of one object. It is made once. An eviction removes it from its list;
// readers that have it keep it.
type encoding struct {
	form ID
	used atomic.Bool // read since the clock hand last passed
	done atomic.Bool // bytes are final
	// mu is held while the bytes are made.
	mu    sync.Mutex
	bytes []byte
	list  *List
	next  atomic.Pointer[encoding] // in list; changed under Ring.mu

	// The neighbours in the ring, and whether the encoding was evicted. Ring.mu guards them.
	older, newer *encoding
	evicted      bool
}

// encodingOverhead is the memory of an encoding without its bytes.
const encodingOverhead = int64(unsafe.Sizeof(encoding{}))

// size returns the memory of an encoding in bytes.
func (e *encoding) size() int64 { return encodingOverhead + int64(cap(e.bytes)) }

// Find returns the encoding in a form if it exists. The bytes must not be changed.
func (l *List) Find(form ID) ([]byte, bool) {
	e := l.find(form)
	if e == nil || !e.done.Load() {
		return nil, false
	}
	return e.read(), true
}

// find returns the encoding in a form, which may be unfinished, or nil.
func (l *List) find(form ID) *encoding {
	for e := l.first.Load(); e != nil; e = e.next.Load() {
		if e.form == form {
			return e
		}
	}
	return nil
}

// remove removes an encoding from the list. Readers that have reached the encoding continue with
// its successors. The caller holds Ring.mu.
func (l *List) remove(e *encoding) {
	link := &l.first
	for current := link.Load(); current != nil; current = link.Load() {
		if current == e {
			link.Store(e.next.Load())
			return
		}
		link = &current.next
	}
}

// read returns the bytes and records the use.
func (e *encoding) read() []byte {
	if !e.used.Load() { // avoids writes to a cache line that is read often
		e.used.Store(true)
	}
	return e.bytes
}

// encodeOnce makes the bytes unless another caller has made them, and adds the encoding to the
// ring. created reports whether this call made them.
func (e *encoding) encodeOnce(ring *Ring, encode func() ([]byte, error)) (data []byte, created bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done.Load() {
		return e.read(), false, nil
	}
	data, err = encode()
	if err != nil {
		return nil, false, err
	}
	if cap(data)-len(data) > len(data)/8 { // the encoding is kept longer than the unused capacity is worth
		data = bytes.Clone(data)
	}
	e.bytes = data
	e.done.Store(true)
	ring.insert(e)
	return data, true, nil
}
