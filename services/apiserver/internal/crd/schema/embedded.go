package schema

import (
	"bytes"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"binnacle/services/apiserver/internal/json/objectmeta"
	"binnacle/services/apiserver/internal/json/tape"
	registrymeta "binnacle/services/apiserver/internal/registry/meta"
)

// hasEmbedded reports whether a node is or contains an embedded resource.
func hasEmbedded(n *node) bool { return n.containsEmbedded }

// checkEmbeddedResources checks the type and metadata of embedded resources.
func (p *Program) checkEmbeddedResources(doc *tape.Doc, base *field.Path) field.ErrorList {
	if !p.nodes[Root].containsEmbedded {
		return nil
	}
	w := walker{program: p, doc: doc, base: base}
	w.checkEmbeddedBelow(Root, tape.Root)
	return w.errs
}

// checkEmbeddedBelow checks the embedded resources at and below a value.
func (w *walker) checkEmbeddedBelow(at NodeIndex, value tape.Ref) {
	schemaNode := &w.program.nodes[at]
	if schemaNode.isEmbedded && w.doc.Kind(value) == tape.Object && w.mayReport() {
		w.recordBelow(checkEmbedded(w.doc, value, nil))
	}
	w.visitChildren(schemaNode, value, hasEmbedded, w.checkEmbeddedBelow)
}

// recordBelow records errors whose fields are relative to the current path. It prefixes the path
// only to errors that it records, because there may be many and the path may be long.
func (w *walker) recordBelow(errs field.ErrorList) {
	if len(errs) == 0 {
		return
	}
	prefix := ""
	if at := w.path(); at != nil {
		prefix = at.String() + "."
	}
	for _, fieldErr := range errs {
		if !w.mayReport() {
			return
		}
		below := *fieldErr // an error may be shared by several places
		below.Field = prefix + fieldErr.Field
		w.record(&below)
	}
}

// checkEmbedded checks an embedded resource, or a default of one.
func checkEmbedded(doc *tape.Doc, value tape.Ref, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	apiVersion := doc.Find(value, "apiVersion")
	kind := doc.Find(value, "kind")
	metadata := doc.Find(value, "metadata")
	if apiVersion == tape.None {
		errs = append(errs, field.Required(at.Child("apiVersion"), "must not be empty"))
	}
	if kind == tape.None {
		errs = append(errs, field.Required(at.Child("kind"), "must not be empty"))
	}
	if apiVersion != tape.None {
		errs = append(errs, checkTypeField(doc, apiVersion, at.Child("apiVersion"), func(s string) string {
			if _, err := apischema.ParseGroupVersion(s); err != nil {
				return err.Error()
			}
			return ""
		})...)
	}
	if kind != tape.None {
		errs = append(errs, checkTypeField(doc, kind, at.Child("kind"), func(s string) string {
			if problems := utilvalidation.IsDNS1035Label(strings.ToLower(s)); len(problems) > 0 {
				return "may have mixed case, but should otherwise match: " + strings.Join(problems, ",")
			}
			return ""
		})...)
	}
	if metadata != tape.None {
		errs = append(errs, checkMetadata(doc, metadata, at.Child("metadata"))...)
	}
	return errs
}

// checkTypeField checks an apiVersion or kind. problem returns the error text of a string, or "".
func checkTypeField(doc *tape.Doc, value tape.Ref, at *field.Path, problem func(string) string) field.ErrorList {
	if doc.Kind(value) != tape.String {
		return field.ErrorList{field.Invalid(at, doc.Any(value), "must be a string")}
	}
	text := strings.Clone(doc.String(value))
	if text == "" {
		return field.ErrorList{field.Invalid(at, text, "must not be empty")}
	}
	if p := problem(text); p != "" {
		return field.ErrorList{field.Invalid(at, text, p)}
	}
	return nil
}

// checkMetadata validates the metadata of an embedded resource.
func checkMetadata(doc *tape.Doc, value tape.Ref, at *field.Path) field.ErrorList {
	var meta metav1.ObjectMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc.AppendCanonical(nil, value), &meta); err != nil {
		return field.ErrorList{field.Invalid(at, doc.Any(value), err.Error())}
	}
	if meta.Name == "" {
		meta.Name = "fakename" // embedded resources need no name
	}
	return registrymeta.ValidateObject(&meta, meta.Namespace != "", path.ValidatePathSegmentName, at)
}

// mustRemoveType reports whether the caller must remove the apiVersion or kind of an embedded
// resource because it is not a string. Unless DropMalformed is set, that is an error instead.
func (s *normalizer) mustRemoveType(key tape.Ref) bool {
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

// fail records the first error.
func (s *normalizer) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// cleanEmbeddedMetadata cleans the member key of an embedded resource if it is the metadata. at is
// the node of the resource's schema for metadata, or NoNode. The last step of the path is the
// member.
func (s *normalizer) cleanEmbeddedMetadata(at NodeIndex, key tape.Ref) {
	if !s.doc.IsText(key, "metadata") {
		return
	}
	doc, value := s.doc, key+1
	data := doc.Text(value)
	if doc.Kind(value) == tape.Null {
		switch {
		case s.emptiesNullMetadata(key):
			data = []byte("{}")
		case at != NoNode && !s.program.nodes[at].nullable:
			return // Check reports it
		}
	}
	if at != NoNode {
		data = s.fillMetadata(at, data)
		if s.err != nil {
			return
		}
	}
	if doc.Kind(value) != tape.Null && len(data) == len(doc.Text(value)) && isCanonical(doc, value) {
		return
	}
	out, unknown, err := objectmeta.Clean(data, s.options.Unknown, s.options.DropMalformed)
	if err != nil {
		if !s.options.DropMalformed {
			s.steps[len(s.steps)-1].kind = stepProp
			s.fail(field.Invalid(fieldPath(doc, s.base, s.steps), doc.Any(value), err.Error()))
		}
		return
	}
	s.steps[len(s.steps)-1].kind = stepProp
	s.reportUnknownMetadata(unknown)
	if !bytes.Equal(out, doc.Text(value)) {
		start, end := doc.Span(value)
		s.replace(start, end, out)
	}
}

// emptiesNullMetadata reports whether a member is metadata whose null becomes an empty object
// before defaults are added. In an apply, defaults come first, and a null that is not allowed is an
// error.
func (s *normalizer) emptiesNullMetadata(key tape.Ref) bool {
	return s.operations&cleanMetadata != 0 && !s.options.KeepNulls && s.doc.IsText(key, "metadata")
}

// reportUnknownMetadata reports unknown fields of embedded metadata.
func (s *normalizer) reportUnknownMetadata(unknown []string) {
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

// fillMetadata returns metadata with the defaults of a schema and without unwanted nulls.
func (s *normalizer) fillMetadata(at NodeIndex, data []byte) []byte {
	doc, err := tape.Parse(data)
	if err != nil {
		s.fail(err)
		return nil
	}
	defer doc.Release()
	sub := normalizer{program: s.program, doc: doc, raw: data, options: s.options, operations: s.operations &^ cleanMetadata}
	sub.normalizeValue(at, tape.Root, keep)
	if sub.err != nil {
		s.fail(sub.err)
	}
	return sub.finish()
}

// isCanonical reports whether metadata has only known, non-empty fields of the right types, so that
// cleaning changes nothing.
func isCanonical(doc *tape.Doc, ref tape.Ref) bool {
	if doc.Kind(ref) != tape.Object {
		return false
	}
	for k, end := doc.First(ref), doc.Next(ref); k < end; k = doc.Next(k + 1) {
		ok := false
		switch value := k + 1; doc.String(k) {
		case "name", "generateName", "namespace", "uid", "resourceVersion", "selfLink":
			ok = doc.Kind(value) == tape.String && len(doc.Text(value)) > 2
		case "labels", "annotations":
			ok = doc.Kind(value) == tape.Object && objectmeta.StringsOnly(doc, value, 1)
		case "finalizers":
			ok = doc.Kind(value) == tape.Array && objectmeta.StringsOnly(doc, value, 0)
		}
		if !ok {
			return false
		}
	}
	return true
}
