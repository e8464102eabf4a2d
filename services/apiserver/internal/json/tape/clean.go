package tape

import (
	"strconv"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// Canonicalize returns the document with only the last of repeated keys, and with U+FFFD in place
// of invalid UTF-8.
func (d *Doc) Canonicalize() (*Doc, error) {
	return Parse(d.appendClean(make([]byte, 0, len(d.raw)), Root))
}

// appendClean appends the value at ref, without members whose key occurs again later, and with
// malformed text replaced.
func (d *Doc) appendClean(out []byte, ref Ref) []byte {
	switch d.Kind(ref) {
	case String, Key:
		if d.entries[ref].flags()&malformed != 0 {
			return jsontext.AppendString(out, d.String(ref))
		}
	case Array:
		out = append(out, '[')
		for i, end := d.First(ref), d.Next(ref); i < end; i = d.Next(i) {
			if i > ref+1 {
				out = append(out, ',')
			}
			out = d.appendClean(out, i)
		}
		return append(out, ']')
	case Object:
		out = append(out, '{')
		first := true
		for key, end := d.First(ref), d.Next(ref); key < end; key = d.Next(key + 1) {
			if d.IsShadowedKey(key) {
				continue
			}
			if !first {
				out = append(out, ',')
			}
			first = false
			out = append(d.appendClean(out, key), ':')
			out = d.appendClean(out, key+1)
		}
		return append(out, '}')
	}
	return append(out, d.Text(ref)...)
}

const (
	// maxDuplicates is the number of duplicates that Kubernetes reports.
	maxDuplicates = 100
	// maxPathBytes is the total size in bytes of the paths after which no more are reported.
	maxPathBytes = 1 << 20
	// maxComparedBytes limits the total size in bytes of paths that are found again. Each costs a
	// comparison with the recorded paths.
	maxComparedBytes = 64 << 20
)

// Duplicates returns the paths of repeated keys, such as spec.list[0].a. It returns at most 100,
// and stops at 1 MiB of paths.
func (d *Doc) Duplicates() []string {
	if !d.unclean {
		return nil
	}
	w := duplicateCollector{doc: d, seen: map[string]bool{}}
	w.walk(Root)
	return w.found
}

// duplicateCollector collects the paths of duplicate fields.
type duplicateCollector struct {
	doc           *Doc
	path          []byte          // path of the current value; shared, because it may be nearly as long as the document
	seen          map[string]bool // the paths in found
	found         []string        // paths of duplicate fields, without repetitions
	bytes         int             // size of found in bytes
	repeatedBytes int             // size in bytes of the paths that were found again
}

// isFull reports whether a limit is reached, so that the walk stops.
func (w *duplicateCollector) isFull() bool {
	return len(w.found) >= maxDuplicates || w.bytes >= maxPathBytes || w.repeatedBytes >= maxComparedBytes
}

// walk collects the duplicate fields of the value at ref, which has the path w.path.
func (w *duplicateCollector) walk(ref Ref) {
	doc := w.doc
	if w.isFull() {
		return
	}
	prefix := len(w.path)
	defer func() { w.path = w.path[:prefix] }()
	switch doc.Kind(ref) {
	case Array:
		n := 0
		for i, end := doc.First(ref), doc.Next(ref); i < end; i = doc.Next(i) {
			w.path = append(strconv.AppendInt(append(w.path[:prefix], '['), int64(n), 10), ']')
			w.walk(i)
			n++
		}
	case Object:
		// repeated holds the keys that occurred before and occur again: a key is shadowed at every
		// occurrence except the last.
		repeated := map[string]bool{}
		for key, end := doc.First(ref), doc.Next(ref); key < end; key = doc.Next(key + 1) {
			name := doc.String(key)
			w.path = w.path[:prefix]
			if prefix > 0 {
				w.path = append(w.path, '.')
			}
			w.path = append(w.path, name...)
			if repeated[name] { // the second or a later occurrence
				w.recordPath()
			}
			if doc.IsShadowedKey(key) {
				repeated[name] = true
			}
			w.walk(key + 1)
		}
	}
}

// recordPath adds the current path to found, unless it is there already.
func (w *duplicateCollector) recordPath() {
	if w.isFull() {
		return
	}
	if w.seen[string(w.path)] {
		w.repeatedBytes += len(w.path)
		return
	}
	path := string(w.path)
	w.seen[path] = true
	w.found = append(w.found, path)
	w.bytes += len(path)
}
