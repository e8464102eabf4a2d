package schema

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"binnacle/services/apiserver/internal/json/tape"
	registrymeta "binnacle/services/apiserver/internal/registry/meta"
)

func hasEmbedded(n *node) bool { return n.anyEmbedded }

// embedded checks the type and metadata of embedded resources.
func (p *Program) embedded(d *tape.Doc, base *field.Path) field.ErrorList {
	if !p.nodes[root].anyEmbedded {
		return nil
	}
	w := walker{program: p, doc: d, base: base}
	w.embedded(root, tape.Root)
	return w.errs
}

func (w *walker) embedded(at Place, v tape.Ref) {
	n := &w.program.nodes[at]
	if n.embedded && w.doc.Kind(v) == tape.Object && w.mayReport() {
		w.putBelow(checkEmbedded(w.doc, v, nil))
	}
	w.down(n, v, hasEmbedded, w.embedded)
}

// putBelow records errors whose fields are relative to the current path. It prefixes the path only
// to errors that it records, because there may be many and the path may be long.
func (w *walker) putBelow(errs field.ErrorList) {
	if len(errs) == 0 {
		return
	}
	prefix := ""
	if at := w.path(); at != nil {
		prefix = at.String() + "."
	}
	for _, e := range errs {
		if !w.mayReport() {
			return
		}
		below := *e // an error may be shared by several places
		below.Field = prefix + e.Field
		w.put(&below)
	}
}

// checkEmbedded checks an embedded resource, or a default of one.
func checkEmbedded(d *tape.Doc, v tape.Ref, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	apiVersion, kind, metadata := d.Find(v, "apiVersion"), d.Find(v, "kind"), d.Find(v, "metadata")
	if apiVersion == tape.None {
		errs = append(errs, field.Required(at.Child("apiVersion"), "must not be empty"))
	}
	if kind == tape.None {
		errs = append(errs, field.Required(at.Child("kind"), "must not be empty"))
	}
	if apiVersion != tape.None {
		errs = append(errs, checkTypeField(d, apiVersion, at.Child("apiVersion"), func(s string) string {
			if _, err := apischema.ParseGroupVersion(s); err != nil {
				return err.Error()
			}
			return ""
		})...)
	}
	if kind != tape.None {
		errs = append(errs, checkTypeField(d, kind, at.Child("kind"), func(s string) string {
			if problems := utilvalidation.IsDNS1035Label(strings.ToLower(s)); len(problems) > 0 {
				return "may have mixed case, but should otherwise match: " + strings.Join(problems, ",")
			}
			return ""
		})...)
	}
	if metadata != tape.None {
		errs = append(errs, checkMetadata(d, metadata, at.Child("metadata"))...)
	}
	return errs
}

// checkTypeField checks an apiVersion or kind. problem returns the error text of a string, or "".
func checkTypeField(d *tape.Doc, v tape.Ref, at *field.Path, problem func(string) string) field.ErrorList {
	if d.Kind(v) != tape.String {
		return field.ErrorList{field.Invalid(at, d.Any(v), "must be a string")}
	}
	s := strings.Clone(d.String(v))
	if s == "" {
		return field.ErrorList{field.Invalid(at, s, "must not be empty")}
	}
	if p := problem(s); p != "" {
		return field.ErrorList{field.Invalid(at, s, p)}
	}
	return nil
}

func checkMetadata(d *tape.Doc, v tape.Ref, at *field.Path) field.ErrorList {
	var meta metav1.ObjectMeta
	if err := kjson.UnmarshalCaseSensitivePreserveInts(d.AppendCanonical(nil, v), &meta); err != nil {
		return field.ErrorList{field.Invalid(at, d.Any(v), err.Error())}
	}
	if meta.Name == "" {
		meta.Name = "fakename" // embedded resources need no name
	}
	return registrymeta.ValidateObject(&meta, meta.Namespace != "", path.ValidatePathSegmentName, at)
}
