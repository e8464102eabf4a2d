package schema

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"binnacle/services/apiserver/internal/customresource/tape"
)

func hasEmbedded(n *node) bool { return n.anyEmbedded }

// embedded checks type and metadata of embedded resources.
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
	if n.embedded && w.doc.Kind(v) == tape.Object && len(w.errs) < maxErrors {
		w.errs = append(w.errs, checkEmbedded(w.doc, v, w.path())...)
	}
	w.down(n, v, hasEmbedded, w.embedded)
}

// checkEmbedded checks an embedded resource, or the default of one.
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

// checkTypeField checks an apiVersion or kind. problem tells what is wrong
// with a text.
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
	return validation.ValidateObjectMeta(&meta, meta.Namespace != "", path.ValidatePathSegmentName, at)
}
