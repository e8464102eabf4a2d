package codec

import (
	"errors"
	"strings"

	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// MissingValue is the value that defaults give a field when a part of its path is missing or null.
type MissingValue struct{ Missing, Null string }

// MissingValues holds the values of fields whose path is incomplete, by stored version and by index of
// the field. Each list has a value for each part of the path. Fields without such a value are omitted.
type MissingValues map[string]map[int][]MissingValue

// DocumentAttributes returns a function that reads the attributes of a document with the given
// selectable fields. It omits fields without a value. The error is
// unspecific; KindCodec.Attributes returns the reason.
func DocumentAttributes(fields []registry.SelectableField, absent MissingValues) func(stored []byte) (Attributes, error) {
	f := newDocumentFields(fields)
	return func(stored []byte) (Attributes, error) { return f.attributes(stored, absent) }
}

// attributesOfDocument reads labels and selectable fields as they are stored.
func (k *KindCodec) attributesOfDocument(stored []byte) (Attributes, error) {
	return k.documentFields.attributes(stored, nil)
}

// documentFields holds the selectable fields of a kind's documents. A kind may have many, although
// each document has few of them.
type documentFields struct {
	all  []documentField
	root pathNode
}

// documentField is a selectable field of a JSON document.
type documentField struct {
	label string
	path  []string
}

// pathNode is a node in the tree of field paths.
type pathNode struct {
	field    int // index of the field that ends here; negative if none
	children map[string]*pathNode
}

// newDocumentFields returns the tree of selectable fields.
func newDocumentFields(fields []registry.SelectableField) *documentFields {
	f := &documentFields{root: pathNode{field: -1}}
	for i := range fields {
		field := documentField{fields[i].Label, pathOf(&fields[i])}
		f.all = append(f.all, field)
		node := &f.root
		for _, name := range field.path {
			next := node.children[name]
			if next == nil {
				next = &pathNode{field: -1}
				if node.children == nil {
					node.children = map[string]*pathNode{}
				}
				node.children[name] = next
			}
			node = next
		}
		node.field = i
	}
	return f
}

// pathOf splits a dotted path of JSON names.
func pathOf(s *registry.SelectableField) []string {
	p := s.Path
	if p == "" {
		p = s.Label
	}
	return strings.Split(strings.TrimPrefix(p, "."), ".")
}

// attributes reads the labels and the selectable fields from a stored document.
func (f *documentFields) attributes(stored []byte, absent MissingValues) (Attributes, error) {
	d, err := tape.Parse(stored)
	if err != nil {
		return Attributes{}, err
	}
	defer d.Release()
	var a Attributes
	if d.Kind(tape.Root) != tape.Object {
		return a, errors.New("stored value is not a JSON object")
	}
	if m := d.Find(tape.Root, "metadata"); m != tape.None && d.Kind(m) == tape.Object {
		a.Name = textAt(d, m, "name")
		a.Namespace = textAt(d, m, "namespace")
		if l := d.Find(m, "labels"); l != tape.None && d.Kind(l) == tape.Object {
			for key, end := d.First(l), d.Next(l); key < end; key = d.Next(key + 1) {
				if d.Kind(key+1) == tape.String && !d.IsDuplicateKey(key) {
					a.Labels = append(a.Labels, Pair{strings.Clone(d.String(key)), strings.Clone(d.String(key + 1))})
				}
			}
		}
	}
	a.Fields = f.appendValues(d, tape.Root, &f.root, nil)
	if len(absent) > 0 {
		apiVersion := textAt(d, tape.Root, "apiVersion")
		for i, parts := range absent[apiVersion[strings.LastIndexByte(apiVersion, '/')+1:]] {
			if text := missingValue(d, f.all[i].path, parts); text != "" {
				a.Fields = append(a.Fields, Pair{f.all[i].label, text})
			}
		}
	}
	return a, nil
}

// appendValues appends the fields at and below a value that have a value of their own.
func (f *documentFields) appendValues(d *tape.Doc, v tape.Ref, node *pathNode, into []Pair) []Pair {
	if node.field >= 0 {
		if text := scalar(d, v); text != "" {
			into = append(into, Pair{f.all[node.field].label, text})
		}
	}
	if len(node.children) == 0 || d.Kind(v) != tape.Object {
		return into
	}
	if len(node.children) < d.Len(v) {
		for name, child := range node.children {
			if member := d.Find(v, name); member != tape.None {
				into = f.appendValues(d, member, child, into)
			}
		}
		return into
	}
	for key, end := d.First(v), d.Next(v); key < end; key = d.Next(key + 1) {
		if child := node.children[d.String(key)]; child != nil && !d.IsDuplicateKey(key) {
			into = f.appendValues(d, key+1, child, into)
		}
	}
	return into
}

func textAt(d *tape.Doc, object tape.Ref, name string) string {
	if v := d.Find(object, name); v != tape.None && d.Kind(v) == tape.String {
		return strings.Clone(d.String(v))
	}
	return ""
}

// missingValue returns the value of a field for the first part of its path that a document lacks.
// It returns "" if the document has the whole path.
func missingValue(d *tape.Doc, path []string, absent []MissingValue) string {
	v := tape.Root
	for i, name := range path {
		if d.Kind(v) != tape.Object {
			return ""
		}
		v = d.Find(v, name)
		if v == tape.None {
			return absent[i].Missing
		}
		if d.Kind(v) == tape.Null {
			return absent[i].Null
		}
	}
	return ""
}

// scalar returns the text of a scalar, or "" for any other value.
func scalar(d *tape.Doc, v tape.Ref) string {
	switch d.Kind(v) {
	case tape.String:
		return strings.Clone(d.String(v))
	case tape.True, tape.False, tape.Number:
		return string(d.Text(v))
	}
	return ""
}
