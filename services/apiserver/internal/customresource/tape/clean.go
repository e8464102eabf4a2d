package tape

import "strconv"

// Cleaned returns the document without keys that come again later and with
// U+FFFD for what is not UTF-8.
func (d *Doc) Cleaned() (*Doc, error) {
	return Parse(d.clean(make([]byte, 0, len(d.raw)), Root))
}

func (d *Doc) clean(out []byte, r Ref) []byte {
	switch d.Kind(r) {
	case String, Key:
		if d.entries[r].flags()&malformed != 0 {
			return AppendString(out, d.String(r))
		}
	case Array:
		out = append(out, '[')
		for i, end := d.First(r), d.Next(r); i < end; i = d.Next(i) {
			if i > r+1 {
				out = append(out, ',')
			}
			out = d.clean(out, i)
		}
		return append(out, ']')
	case Object:
		out = append(out, '{')
		first := true
		for k, end := d.First(r), d.Next(r); k < end; k = d.Next(k + 1) {
			if d.Shadowed(k) {
				continue
			}
			if !first {
				out = append(out, ',')
			}
			first = false
			out = append(d.clean(out, k), ':')
			out = d.clean(out, k+1)
		}
		return append(out, '}')
	}
	return append(out, d.Text(r)...)
}

// maxDuplicates is how many of them Kubernetes reports.
const maxDuplicates = 100

// Duplicates returns the paths of keys that come again in their object, such
// as spec.list[0].a, up to 100.
func (d *Doc) Duplicates() []string {
	if !d.unclean {
		return nil
	}
	w := duplicates{doc: d, seen: map[string]bool{}}
	w.walk(Root, nil)
	return w.found
}

type duplicates struct {
	doc   *Doc
	seen  map[string]bool
	found []string
}

func (w *duplicates) walk(r Ref, path []byte) {
	d := w.doc
	if len(w.found) >= maxDuplicates {
		return
	}
	switch d.Kind(r) {
	case Array:
		n := 0
		for i, end := d.First(r), d.Next(r); i < end; i = d.Next(i) {
			w.walk(i, append(strconv.AppendInt(append(path, '['), int64(n), 10), ']'))
			n++
		}
	case Object:
		again := map[string]bool{}
		for k, end := d.First(r), d.Next(r); k < end; k = d.Next(k + 1) {
			name := d.String(k)
			at := path
			if len(at) > 0 {
				at = append(at, '.')
			}
			at = append(at, name...)
			if again[name] {
				w.report(string(at))
			}
			if d.Shadowed(k) {
				again[name] = true
			}
			w.walk(k+1, at)
		}
	}
}

func (w *duplicates) report(path string) {
	if !w.seen[path] && len(w.found) < maxDuplicates {
		w.seen[path] = true
		w.found = append(w.found, path)
	}
}
