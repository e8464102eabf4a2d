package schema

import (
	"bytes"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/json/objectmeta"
	"binnacle/services/apiserver/internal/json/tape"
)

// badType reports whether to remove the apiVersion or kind of an embedded resource because it is
// not a string. Unless DropMalformed is set, that is an error instead.
func (s *shaper) badType(key tape.Ref) bool {
	if s.doc.IsText(key, "metadata") || s.doc.Kind(key+1) == tape.String {
		return false
	}
	if !s.options.DropMalformed {
		at := fieldPath(s.doc, s.base, append(s.steps, step{kind: stepProp, key: key}))
		s.fail(field.Invalid(at, s.doc.Any(key+1), "must be a string"))
		return false
	}
	return true
}

func (s *shaper) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// embeddedMeta cleans the metadata of an embedded resource. at is the place of the resource's
// schema for it, or nowhere. The last step is that of the member.
func (s *shaper) embeddedMeta(at Place, key tape.Ref) {
	if !s.doc.IsText(key, "metadata") {
		return
	}
	d, v := s.doc, key+1
	text := d.Text(v)
	if at != nowhere {
		if text = s.filledMeta(at, text); s.err != nil {
			return
		}
	}
	if len(text) == len(d.Text(v)) && tidy(d, v) {
		return
	}
	out, unknown, err := objectmeta.Clean(text, s.options.Unknown, s.options.DropMalformed)
	if err != nil {
		if !s.options.DropMalformed {
			s.steps[len(s.steps)-1].kind = stepProp
			s.fail(field.Invalid(fieldPath(d, s.base, s.steps), d.Any(v), err.Error()))
		}
		return
	}
	s.steps[len(s.steps)-1].kind = stepProp
	s.reportMeta(unknown)
	if !bytes.Equal(out, d.Text(v)) {
		start, end := d.Span(v)
		s.replace(start, end, out)
	}
}

// reportMeta reports unknown fields of embedded metadata.
func (s *shaper) reportMeta(unknown []string) {
	if len(unknown) == 0 || s.reportedSize >= maxErrorBytes {
		return
	}
	prefix := fieldPath(s.doc, s.base, s.steps).String()
	for _, u := range unknown {
		if s.reportedSize >= maxErrorBytes {
			return
		}
		s.unknownMeta = append(s.unknownMeta, prefix+"."+u)
		s.reportedSize += len(prefix) + 1 + len(u)
	}
}

// filledMeta adds a schema's defaults to metadata and removes unwanted nulls.
func (s *shaper) filledMeta(at Place, text []byte) []byte {
	d, err := tape.Parse(text)
	if err != nil {
		s.fail(err)
		return nil
	}
	defer d.Release()
	sub := shaper{program: s.program, doc: d, raw: text, options: s.options, parts: s.parts &^ cleans}
	sub.value(at, tape.Root, keep)
	if sub.err != nil {
		s.fail(sub.err)
	}
	return sub.finish()
}

// tidy reports whether metadata has only known, non-empty fields of the right types, so that
// cleaning changes nothing.
func tidy(d *tape.Doc, v tape.Ref) bool {
	if d.Kind(v) != tape.Object {
		return false
	}
	for k, end := d.First(v), d.Next(v); k < end; k = d.Next(k + 1) {
		ok := false
		switch value := k + 1; d.String(k) {
		case "name", "generateName", "namespace", "uid", "resourceVersion", "selfLink":
			ok = d.Kind(value) == tape.String && len(d.Text(value)) > 2
		case "labels", "annotations":
			ok = d.Kind(value) == tape.Object && objectmeta.StringsOnly(d, value, 1)
		case "finalizers":
			ok = d.Kind(value) == tape.Array && objectmeta.StringsOnly(d, value, 0)
		}
		if !ok {
			return false
		}
	}
	return true
}
