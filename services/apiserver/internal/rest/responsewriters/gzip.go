package responsewriters

import (
	"encoding/binary"
	"net/http"
	"strings"

	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/rest/compress"
)

// gzipThreshold is the size in bytes from which responses are compressed, as in Kubernetes.
const gzipThreshold = 128 << 10

// Sizes of segments. A segment has about segmentItems objects: the key of an object determines whether
// a segment ends after it, so that a change of the list moves no other boundary.
const (
	segmentItems    = 16
	maxSegmentItems = 128
	maxSegmentBytes = 1 << 20 // of stored values
)

// acceptsGzip reports whether Accept-Encoding allows gzip.
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

// compressesList reports whether the list is compressed for this client.
func (f *Encoder) compressesList(r *http.Request, l *List) bool {
	if f.writers.Compress == nil || !acceptsGzip(r) {
		return false
	}
	if l.Iterate != nil { // only large lists have it
		return true
	}
	size := 0
	for _, e := range l.Items {
		size += e.Size()
		if size >= gzipThreshold {
			return true
		}
	}
	return false
}

// writeCompressed writes a non-empty list compressed: head, the items, which comma separates if it is
// set, and tail. Compressed segments are shared between requests, except for tables, whose ages
// differ.
func (f *Encoder) writeCompressed(
	w http.ResponseWriter,
	r *http.Request,
	head []byte,
	list *List,
	appendItem func([]byte, *objects.Entry) ([]byte, error),
	tail string,
	comma bool,
) error {
	p := newChunkWriter(w, r, f.Media, f.writers.Limiter)
	defer p.releaseLimiter()
	h := w.Header()
	h.Set("Content-Encoding", "gzip")
	h.Add("Vary", "Accept-Encoding")
	z := &segmentCollector{
		encoder:    f,
		chunks:     p,
		stream:     f.writers.Compress.NewGzipWriter(p),
		appendItem: appendItem,
		comma:      comma,
	}
	err := p.eachItem(list, func(e *objects.Entry) error {
		if head != nil {
			// The first item has no comma before it, so it is written with the head.
			text, err := appendItem(head, e)
			head = nil
			if err != nil {
				return err
			}
			return z.stream.WriteText(text)
		}
		return z.addItem(e)
	})
	if err == nil && len(z.items) > 0 {
		err = z.writeSegment()
	}
	if err == nil {
		err = z.stream.WriteText([]byte(tail))
	}
	if err == nil {
		err = z.stream.Close()
	}
	if err != nil {
		return p.fail(err)
	}
	return p.finish()
}

// segmentCollector collects the items of segments.
type segmentCollector struct {
	encoder    *Encoder
	chunks     *chunkWriter
	stream     *compress.GzipWriter
	appendItem func([]byte, *objects.Entry) ([]byte, error)
	comma      bool // items are separated by commas
	items      []*objects.Entry
	size       int // of the stored values of items, in bytes
}

// addItem adds an item, and writes the segment if it ends there.
func (z *segmentCollector) addItem(e *objects.Entry) error {
	z.items = append(z.items, e)
	z.size += e.Size()
	isFull := len(z.items) >= maxSegmentItems || z.size >= maxSegmentBytes
	if isFull || z.encoder.writers.Compress.EndsSegment(e.Key(), segmentItems) {
		return z.writeSegment()
	}
	return nil
}

// writeSegment writes the collected items.
func (z *segmentCollector) writeSegment() error {
	key, shared := z.encoder.segmentKey(z.items)
	var err error
	if z.encoder.Representation == negotiation.Table || !shared {
		var text []byte
		if text, err = z.appendItems(nil); err == nil {
			err = z.stream.WriteText(text)
		}
	} else {
		err = z.stream.WriteSegment(key, z.appendItems)
	}
	z.items = z.items[:0]
	z.size = 0
	if err == nil && z.chunks.abandoned {
		return errAbandoned
	}
	return err
}

// appendItems appends the JSON of the collected items to b.
func (z *segmentCollector) appendItems(b []byte) (_ []byte, err error) {
	for _, e := range z.items {
		if z.comma {
			b = append(b, ',')
		}
		if b, err = z.appendItem(b, e); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// segmentKey returns the key of a segment: its form, its definition, and the version of every
// object in it. It returns false if an object is not an entry of the cache; such a segment is not
// shared.
func (f *Encoder) segmentKey(items []*objects.Entry) (compress.Key, bool) {
	data := make([]byte, 0, 128+8*maxSegmentItems)
	for _, s := range []string{f.Media, f.MetaVersion, f.res.Coder.Kind.GVK().String()} {
		data = binary.LittleEndian.AppendUint64(data, uint64(len(s)))
		data = append(data, s...)
	}
	data = binary.LittleEndian.AppendUint64(data, uint64(f.Representation))
	data = binary.LittleEndian.AppendUint64(data, uint64(f.includeObject))
	data = binary.LittleEndian.AppendUint64(data, uint64(f.res.Slot)) // the definition
	for _, e := range items {
		if e.ID() == 0 {
			return compress.Key{}, false
		}
		data = binary.LittleEndian.AppendUint64(data, e.ID())
	}
	return f.writers.Compress.KeyOf(data), true
}
