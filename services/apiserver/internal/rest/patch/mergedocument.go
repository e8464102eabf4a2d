package patch

import (
	"maps"
	"slices"

	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/json/tape"
)

// mergeDocument applies a merge patch (RFC 7386) to a JSON object. A patch that is a list replaces
// the object. Values that the patch does not name keep their encoding. As in Kubernetes, a null stays
// inside a list, and inside a value that replaces an existing object.
func mergeDocument(doc []byte, patch *tape.Doc) ([]byte, error) {
	parsed, err := tape.Parse(doc)
	if err != nil {
		return nil, err
	}
	defer parsed.Release()
	m := documentMerger{doc: parsed, patch: patch}
	if patch.Kind(tape.Root) == tape.Array {
		return m.appendArrayWithoutNulls(nil, tape.Root), nil
	}
	return m.appendObject(make([]byte, 0, len(doc)+len(patch.Raw())), tape.Root, tape.Root), nil
}

// documentMerger applies a merge patch to a JSON document.
type documentMerger struct{ doc, patch *tape.Doc }

// appendObject appends the object at docRef of the document, patched with the object at patchRef of
// the patch.
func (m *documentMerger) appendObject(dst []byte, docRef, patchRef tape.Ref) []byte {
	existing := membersOf(m.doc, docRef)
	changes := membersOf(m.patch, patchRef)
	all := maps.Clone(existing)
	maps.Copy(all, changes)
	dst = append(dst, '{')
	start := len(dst)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		value, exists := existing[name]
		change, isChanged := changes[name]
		if isChanged && m.patch.Kind(change) == tape.Null {
			continue
		}
		dst = appendName(dst, name, len(dst) == start)
		switch {
		case !isChanged:
			dst = append(dst, m.doc.Text(value)...)
		case !exists || m.doc.Kind(value) != tape.Object:
			dst = m.appendWithoutNulls(dst, change)
		case m.patch.Kind(change) != tape.Object:
			dst = append(dst, m.patch.Text(change)...)
		default:
			dst = m.appendObject(dst, value, change)
		}
	}
	return append(dst, '}')
}

// appendWithoutNulls appends a value of the patch without null members.
func (m *documentMerger) appendWithoutNulls(dst []byte, value tape.Ref) []byte {
	switch m.patch.Kind(value) {
	case tape.Object:
		return m.appendObjectWithoutNulls(dst, value)
	case tape.Array:
		return m.appendArrayWithoutNulls(dst, value)
	default:
		return append(dst, m.patch.Text(value)...)
	}
}

// appendObjectWithoutNulls appends an object of the patch without null members.
func (m *documentMerger) appendObjectWithoutNulls(dst []byte, object tape.Ref) []byte {
	dst = append(dst, '{')
	start := len(dst)
	members := membersOf(m.patch, object)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if m.patch.Kind(members[name]) == tape.Null {
			continue
		}
		dst = appendName(dst, name, len(dst) == start)
		dst = m.appendWithoutNulls(dst, members[name])
	}
	return append(dst, '}')
}

// appendArrayWithoutNulls appends an array of the patch whose objects lose their null members.
func (m *documentMerger) appendArrayWithoutNulls(dst []byte, array tape.Ref) []byte {
	dst = append(dst, '[')
	first := m.patch.First(array)
	end := m.patch.Next(array)
	for element := first; element < end; element = m.patch.Next(element) {
		if element != first {
			dst = append(dst, ',')
		}
		dst = m.appendWithoutNulls(dst, element)
	}
	return append(dst, ']')
}

// appendName appends the name of a member, after a comma unless the member is the first one.
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
