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
func (e *Encoder) compressesList(r *http.Request, list *List) bool {
	if e.writers.Compress == nil || !acceptsGzip(r) {
		return false
	}
	if list.Iterate != nil { // only large lists have it
		return true
	}
	size := 0
	for _, entry := range list.Items {
		size += entry.Size()
		if size >= gzipThreshold {
			return true
		}
	}
	return false
}

// writeCompressed writes a non-empty list compressed: head, the items, which comma separates if it is
// set, and tail. Compressed segments are shared between requests, except for tables, whose ages
// differ.
func (e *Encoder) writeCompressed(
	w http.ResponseWriter,
	r *http.Request,
	head []byte,
	list *List,
	appendItem func([]byte, *objects.Entry) ([]byte, error),
	tail string,
	comma bool,
) error {
	out := newChunkWriter(w, r, e.Media, e.writers.Limiter)
	defer out.releaseLimiter()
	header := w.Header()
	header.Set("Content-Encoding", "gzip")
	header.Add("Vary", "Accept-Encoding")
	collector := &segmentCollector{
		encoder:    e,
		chunks:     out,
		stream:     e.writers.Compress.NewGzipWriter(out),
		appendItem: appendItem,
		comma:      comma,
	}
	err := out.eachItem(list, func(entry *objects.Entry) error {
		if head != nil {
			// The first item has no comma before it, so it is written with the head.
			text, err := appendItem(head, entry)
			head = nil
			if err != nil {
				return err
			}
			return collector.stream.WriteText(text)
		}
		return collector.addItem(entry)
	})
	if err == nil && len(collector.items) > 0 {
		err = collector.writeSegment()
	}
	if err == nil {
		err = collector.stream.WriteText([]byte(tail))
	}
	if err == nil {
		err = collector.stream.Close()
	}
	if err != nil {
		return out.fail(err)
	}
	return out.finish()
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
func (collector *segmentCollector) addItem(entry *objects.Entry) error {
	collector.items = append(collector.items, entry)
	collector.size += entry.Size()
	isFull := len(collector.items) >= maxSegmentItems || collector.size >= maxSegmentBytes
	if isFull || collector.encoder.writers.Compress.EndsSegment(entry.Key(), segmentItems) {
		return collector.writeSegment()
	}
	return nil
}

// writeSegment writes the collected items.
func (collector *segmentCollector) writeSegment() error {
	key, shared := collector.encoder.segmentKey(collector.items)
	var err error
	if collector.encoder.Representation == negotiation.Table || !shared {
		var text []byte
		if text, err = collector.appendItems(nil); err == nil {
			err = collector.stream.WriteText(text)
		}
	} else {
		err = collector.stream.WriteSegment(key, collector.appendItems)
	}
	collector.items = collector.items[:0]
	collector.size = 0
	if err == nil && collector.chunks.abandoned {
		return errAbandoned
	}
	return err
}

// appendItems appends the JSON of the collected items to b.
func (collector *segmentCollector) appendItems(b []byte) (_ []byte, err error) {
	for _, e := range collector.items {
		if collector.comma {
			b = append(b, ',')
		}
		if b, err = collector.appendItem(b, e); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// segmentKey returns the key of a segment: its form, its definition, and the version of every
// object in it. It returns false if an object is not an entry of the cache; such a segment is not
// shared.
func (e *Encoder) segmentKey(items []*objects.Entry) (compress.Key, bool) {
	data := make([]byte, 0, 128+8*maxSegmentItems)
	for _, s := range []string{e.Media, e.MetaVersion, e.res.Coder.Kind.GVK().String()} {
		data = binary.LittleEndian.AppendUint64(data, uint64(len(s)))
		data = append(data, s...)
	}
	data = binary.LittleEndian.AppendUint64(data, uint64(e.Representation))
	data = binary.LittleEndian.AppendUint64(data, uint64(e.includeObject))
	data = binary.LittleEndian.AppendUint64(data, uint64(e.res.Slot)) // the definition
	for _, entry := range items {
		if entry.ID() == 0 {
			return compress.Key{}, false
		}
		data = binary.LittleEndian.AppendUint64(data, entry.ID())
	}
	return e.writers.Compress.KeyOf(data), true
}
