// Package jsoniter replaces the part of github.com/json-iterator/go that structured-merge-diff uses
// for field sets and path elements. json-iterator calls methods by names that are not constant, so
// the linker keeps all exported methods of a program that contains it. This package does not.
//
// Iterator reads and Stream writes JSON as json-iterator does in its configuration
// ConfigCompatibleWithStandardLibrary, which is the only one here. Types are not safe for concurrent
// use, except pools.
package jsoniter

import (
	"io"
	"sync"
)

// API is a configuration of json-iterator.
type API struct{}

// ConfigCompatibleWithStandardLibrary is the only configuration.
var ConfigCompatibleWithStandardLibrary API

// IteratorPool keeps iterators for reuse.
type IteratorPool struct{ pool sync.Pool }

// BorrowIterator returns an iterator over data. The caller passes it to ReturnIterator.
func (p *IteratorPool) BorrowIterator(data []byte) *Iterator {
	it, ok := p.pool.Get().(*Iterator)
	if !ok {
		it = &Iterator{}
	}
	it.data = data
	return it
}

// ReturnIterator puts an iterator back.
func (p *IteratorPool) ReturnIterator(it *Iterator) {
	*it = Iterator{}
	p.pool.Put(it)
}

// StreamPool keeps streams for reuse.
type StreamPool struct {
	pool sync.Pool
	size int // initial size of a buffer in bytes
}

// BorrowStream returns a stream that writes to out. The caller passes it to ReturnStream.
func (p *StreamPool) BorrowStream(out io.Writer) *Stream {
	s, ok := p.pool.Get().(*Stream)
	if !ok {
		s = NewStream(ConfigCompatibleWithStandardLibrary, nil, p.size)
	}
	s.out, s.buf = out, s.buf[:0]
	return s
}

// ReturnStream puts a stream back.
func (p *StreamPool) ReturnStream(s *Stream) {
	s.out, s.Error = nil, nil
	p.pool.Put(s)
}
