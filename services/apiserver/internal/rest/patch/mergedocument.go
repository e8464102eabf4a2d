package patch

import (
	"maps"
	"slices"

	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/json/tape"
)

// mergeDocument applies a merge patch (RFC 7386) to a document; both are JSON objects. Values that
// the patch does not name keep their encoding. As in Kubernetes, a null stays inside a list, and
// inside a value that replaces an existing object.
func mergeDocument(doc []byte, patch *tape.Doc) ([]byte, error) {
	d, err := tape.Parse(doc)
	if err != nil {
		return nil, err
	}
	defer d.Release()
	m := documentMerger{d, patch}
	return m.appendObject(make([]byte, 0, len(doc)+len(patch.Raw())), tape.Root, tape.Root), nil
}

// documentMerger applies a merge patch to a JSON document.
type documentMerger struct{ doc, patch *tape.Doc }

// appendObject appends the object at reference at of the document, patched with the object at
// reference with of the patch.
func (m *documentMerger) appendObject(dst []byte, at, with tape.Ref) []byte {
	have := membersOf(m.doc, at)
	want := membersOf(m.patch, with)
	all := maps.Clone(have)
	maps.Copy(all, want)
	dst = append(dst, '{')
	begin := len(dst)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		x, isHere := have[name]
		y, named := want[name]
		if named && m.patch.Kind(y) == tape.Null {
			continue
		}
		dst = appendName(dst, name, len(dst) == begin)
		switch {
		case !named:
			dst = append(dst, m.doc.Text(x)...)
		case !isHere || m.doc.Kind(x) != tape.Object:
			dst = m.appendWithoutNulls(dst, y)
		case m.patch.Kind(y) != tape.Object:
			dst = append(dst, m.patch.Text(y)...)
		default:
			dst = m.appendObject(dst, x, y)
		}
	}
	return append(dst, '}')
}

// appendWithoutNulls appends a value of the patch without null members.
func (m *documentMerger) appendWithoutNulls(dst []byte, at tape.Ref) []byte {
	switch p := m.patch; p.Kind(at) {
	case tape.Object:
		dst = append(dst, '{')
		begin := len(dst)
		members := membersOf(p, at)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if p.Kind(members[name]) != tape.Null {
				dst = m.appendWithoutNulls(appendName(dst, name, len(dst) == begin), members[name])
			}
		}
		return append(dst, '}')
	case tape.Array:
		dst = append(dst, '[')
		first := p.First(at)
		for v, end := first, p.Next(at); v < end; v = p.Next(v) {
			if v != first {
				dst = append(dst, ',')
			}
			dst = m.appendWithoutNulls(dst, v)
		}
		return append(dst, ']')
	default:
		return append(dst, p.Text(at)...)
	}
}

func appendName(dst []byte, name string, first bool) []byte {
	if !first {
		dst = append(dst, ',')
	}
	return append(jsontext.AppendString(dst, name), ':')
}

// membersOf returns the members of an object by name. For a duplicate name it returns the last one.
func membersOf(d *tape.Doc, object tape.Ref) map[string]tape.Ref {
	members := map[string]tape.Ref{}
	for key, end := d.First(object), d.Next(object); key < end; key = d.Next(key + 1) {
		members[d.String(key)] = key + 1
	}
	return members
}
