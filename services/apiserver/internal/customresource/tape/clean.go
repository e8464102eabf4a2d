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

const (
	// maxDuplicates is how many of them Kubernetes reports.
	maxDuplicates = 100
	// maxTold is how many bytes their paths may have before no more are.
	maxTold = 1 << 20
	// maxAgain is how many bytes the paths may have that were told already: each is compared.
	maxAgain = 64 << 20
)

// Duplicates returns the paths of keys that come again in their object, such
// as spec.list[0].a, up to 100, and no more once they have 1 MiB.
func (d *Doc) Duplicates() []string {
	if !d.unclean {
		return nil
	}
	w := duplicates{doc: d, seen: map[string]bool{}}
	w.walk(Root)
	return w.found
}

type duplicates struct {
	doc   *Doc
	path  []byte // to what is looked at: one for all, as it may be nearly as long as the document
	seen  map[string]bool
	found []string
	told  int // bytes of found
	again int // bytes of what was found again
}

func (w *duplicates) full() bool {
	return len(w.found) >= maxDuplicates || w.told >= maxTold || w.again >= maxAgain
}

func (w *duplicates) walk(r Ref) {
	d := w.doc
	if w.full() {
		return
	}
	here := len(w.path)
	defer func() { w.path = w.path[:here] }()
	switch d.Kind(r) {
	case Array:
		n := 0
		for i, end := d.First(r), d.Next(r); i < end; i = d.Next(i) {
			w.path = append(strconv.AppendInt(append(w.path[:here], '['), int64(n), 10), ']')
			w.walk(i)
			n++
		}
	case Object:
		again := map[string]bool{}
		for k, end := d.First(r), d.Next(r); k < end; k = d.Next(k + 1) {
			name := d.String(k)
			w.path = w.path[:here]
			if here > 0 {
				w.path = append(w.path, '.')
			}
			w.path = append(w.path, name...)
			if again[name] {
				w.report()
			}
			if d.Shadowed(k) {
				again[name] = true
			}
			w.walk(k + 1)
		}
	}
}

func (w *duplicates) report() {
	if w.full() {
		return
	}
	if w.seen[string(w.path)] {
		w.again += len(w.path)
		return
	}
	path := string(w.path)
	w.seen[path] = true
	w.found = append(w.found, path)
	w.told += len(path)
}
