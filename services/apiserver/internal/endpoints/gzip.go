package endpoints

import (
	"encoding/binary"
	"net/http"
	"strings"

	"github.com/cespare/xxhash/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/compress"
	"binnacle/services/apiserver/internal/negotiate"
	"binnacle/services/apiserver/internal/watchcache"
)

// Answers are compressed from this size on, as in Kubernetes.
const gzipThreshold = 128 << 10

// A segment ends behind an object whose key has these bits of its hash unset,
// so that a change moves no boundary but its own; most hold about 16 objects.
const (
	segmentMask = 15
	maxSegment  = 128
)

// acceptsGzip reads Accept-Encoding.
func acceptsGzip(r *http.Request) bool {
	for _, part := range strings.Split(r.Header.Get("Accept-Encoding"), ",") {
		name, params, _ := strings.Cut(part, ";")
		if strings.TrimSpace(name) == "gzip" {
			q := strings.ReplaceAll(params, " ", "")
			return q != "q=0" && !strings.HasPrefix(q, "q=0.000")
		}
	}
	return false
}

// zipped tells whether a list is worth compressing for this client.
func (f *form) zipped(c *call, items []*watchcache.Entry) bool {
	if f.api.Compress == nil || !acceptsGzip(c.r) {
		return false
	}
	size := 0
	for _, s := range items {
		if size += len(s.Stored()); size >= gzipThreshold {
			return true
		}
	}
	return false
}

// writeZipped answers with a compressed list. What is compressed is shared with
// other requests, except for tables, whose ages differ.
func (f *form) writeZipped(c *call, head []byte, items []*watchcache.Entry, item func([]byte, *watchcache.Entry) ([]byte, error), tail string, comma bool) error {
	p := newPieces(c, f.Media)
	h := c.w.Header()
	h.Set("Content-Encoding", "gzip")
	h.Add("Vary", "Accept-Encoding")
	z := f.api.Compress.NewStream(p)
	// The first item has no comma before it, so it goes with the head.
	first, err := item(head, items[0])
	if err == nil {
		err = z.Text(first)
	}
	if err != nil {
		return p.abort(err)
	}
	for rest := items[1:]; len(rest) > 0; {
		n := segmentEnd(rest)
		part := rest[:n]
		rest = rest[n:]
		fill := func(b []byte) ([]byte, error) {
			for _, s := range part {
				if comma {
					b = append(b, ',')
				}
				var err error
				if b, err = item(b, s); err != nil {
					return nil, err
				}
			}
			return b, nil
		}
		if f.As == negotiate.Table {
			var text []byte
			if text, err = fill(nil); err == nil {
				err = z.Text(text)
			}
		} else {
			err = z.Segment(f.segmentKey(part), fill)
		}
		if err != nil {
			return p.abort(err)
		}
		if p.gone {
			return p.end()
		}
	}
	if err = z.Text([]byte(tail)); err == nil {
		err = z.Close()
	}
	if err != nil {
		return p.abort(err)
	}
	return p.end()
}

// segmentEnd is the number of items of the segment that begins a list's rest.
func segmentEnd(items []*watchcache.Entry) int {
	for i, s := range items {
		if i+1 == maxSegment || xxhash.Sum64String(s.Key)&segmentMask == 0 {
			return i + 1
		}
	}
	return len(items)
}

// segmentKey names a segment by the form and by every object's version in it.
func (f *form) segmentKey(items []*watchcache.Entry) (k compress.Key) {
	var a, b xxhash.Digest
	a.Reset()
	b.ResetWithSeed(0x9e3779b97f4a7c15)
	write := func(s string, n int64) {
		var num [8]byte
		binary.LittleEndian.PutUint64(num[:], uint64(n))
		for _, d := range []*xxhash.Digest{&a, &b} {
			_, _ = d.WriteString(s) // a hash does not fail
			_, _ = d.Write(num[:])
		}
	}
	write(f.Media, int64(f.As))
	write(f.MetaVersion, int64(f.include))
	write(f.coder.Decl.GVK().String(), 0)
	for _, s := range items {
		write(s.Key, s.Revision)
	}
	binary.LittleEndian.PutUint64(k[:8], a.Sum64())
	binary.LittleEndian.PutUint64(k[8:], b.Sum64())
	return k
}

// writeZippedList answers with a compressed list in JSON.
func (f *form) writeZippedList(c *call, meta metav1.ListMeta, items []*watchcache.Entry) error {
	item := func(b []byte, e *watchcache.Entry) ([]byte, error) { return f.appendItem(b, shownEntry(e)) }
	return f.writeZipped(c, f.appendListHead(nil, meta), items, item, codec.ListTail, true)
}
