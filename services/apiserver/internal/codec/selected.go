package codec

import (
	"errors"
	"strings"

	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// Absent is the value that defaults give a field when a part of its path is missing or null.
type Absent struct{ Missing, Null string }

// Absences holds, by stored version and by index of the field, the value for each part of the
// field's path that may be absent. It omits fields that have no value then.
type Absences map[string]map[int][]Absent

// DocumentAttributes returns a function that reads the attributes of a document with the given
// selectable fields. It omits fields without a value. Coder.Attributes explains an error.
func DocumentAttributes(fields []registry.SelectableField, absent Absences) func(stored []byte) (Attributes, error) {
	f := newDocumentFields(fields)
	return func(stored []byte) (Attributes, error) { return f.attributes(stored, absent) }
}

// attributesOfDocument reads labels and selectable fields as they are stored.
func (k *Coder) attributesOfDocument(stored []byte) (Attributes, error) {
	return k.inDocument.attributes(stored, nil)
}

// documentFields holds the selectable fields of a kind's documents. A kind may have many, although
// each document has few of them.
type documentFields struct {
	all  []documentField
	root documentPlace
}

type documentField struct {
	label string
	path  []string
}

// documentPlace is a node in the tree of field paths.
type documentPlace struct {
	field int // index of the field that ends here; negative if none
	below map[string]*documentPlace
}

func newDocumentFields(fields []registry.SelectableField) *documentFields {
	f := &documentFields{root: documentPlace{field: -1}}
	for i := range fields {
		field := documentField{fields[i].Label, pathOf(&fields[i])}
		f.all = append(f.all, field)
		at := &f.root
		for _, name := range field.path {
			next := at.below[name]
			if next == nil {
				next = &documentPlace{field: -1}
				if at.below == nil {
					at.below = map[string]*documentPlace{}
				}
				at.below[name] = next
			}
			at = next
		}
		at.field = i
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

func (f *documentFields) attributes(stored []byte, absent Absences) (Attributes, error) {
	d, err := tape.Parse(stored)
	if err != nil {
		return Attributes{}, err
	}
	defer d.Release()
	var a Attributes
	if d.Kind(tape.Root) != tape.Object {
		return a, errors.New("it is not a JSON object")
	}
	if m := d.Find(tape.Root, "metadata"); m != tape.None && d.Kind(m) == tape.Object {
		a.Name, a.Namespace = textAt(d, m, "name"), textAt(d, m, "namespace")
		if l := d.Find(m, "labels"); l != tape.None && d.Kind(l) == tape.Object {
			for key, end := d.First(l), d.Next(l); key < end; key = d.Next(key + 1) {
				if d.Kind(key+1) == tape.String && !d.Shadowed(key) {
					a.Labels = append(a.Labels, Pair{strings.Clone(d.String(key)), strings.Clone(d.String(key + 1))})
				}
			}
		}
	}
	a.Fields = f.read(d, tape.Root, &f.root, nil)
	if len(absent) > 0 {
		apiVersion := textAt(d, tape.Root, "apiVersion")
		for i, parts := range absent[apiVersion[strings.LastIndexByte(apiVersion, '/')+1:]] {
			if text := without(d, f.all[i].path, parts); text != "" {
				a.Fields = append(a.Fields, Pair{f.all[i].label, text})
			}
		}
	}
	return a, nil
}

// read appends the fields at and below a value that have a value of their own.
func (f *documentFields) read(d *tape.Doc, v tape.Ref, at *documentPlace, into []Pair) []Pair {
	if at.field >= 0 {
		if text := scalar(d, v); text != "" {
			into = append(into, Pair{f.all[at.field].label, text})
		}
	}
	if len(at.below) == 0 || d.Kind(v) != tape.Object {
		return into
	}
	if len(at.below) < d.Len(v) {
		for name, below := range at.below {
			if member := d.Find(v, name); member != tape.None {
				into = f.read(d, member, below, into)
			}
		}
		return into
	}
	for key, end := d.First(v), d.Next(v); key < end; key = d.Next(key + 1) {
		if below := at.below[d.String(key)]; below != nil && !d.Shadowed(key) {
			into = f.read(d, key+1, below, into)
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

// without returns the value of a field for the first part of its path that a document lacks. It
// returns "" if the document has the whole path.
func without(d *tape.Doc, path []string, absent []Absent) string {
	v := tape.Root
	for i, name := range path {
		if d.Kind(v) != tape.Object {
			return ""
		}
		if v = d.Find(v, name); v == tape.None {
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
