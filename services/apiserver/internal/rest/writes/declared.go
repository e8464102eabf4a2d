package writes

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
)

// withDeclared runs the declarative validation of a kind beside the handwritten one, whose errors
// are errs. It returns the errors that apply.
func (w *Writer) withDeclared(k *registry.Kind, obj registry.Object, errs field.ErrorList) field.ErrorList {
	if k.Declared == nil || !w.Declared.Enabled {
		return errs
	}
	declared, ok := w.runDeclared(k, obj)
	if !ok && !w.Declared.Takeover {
		return errs
	}
	for _, difference := range differences(errs.ExtractCoveredByDeclarative(), declared) {
		w.Metrics.mismatches.Inc()
		w.Logger.Warn("declarative and handwritten validation differ", "kind", k.GVK().String(), "difference", difference, "takeover", w.Declared.Takeover)
	}
	if !w.Declared.Takeover {
		return errs
	}
	return append(errs.RemoveCoveredByDeclarative(), declared...)
}

// runDeclared runs the declarative validation. If it panics, ok is false and errs holds the panic.
func (w *Writer) runDeclared(k *registry.Kind, obj registry.Object) (errs field.ErrorList, ok bool) {
	defer func() {
		if r := recover(); r != nil {
			w.Metrics.panics.Inc()
			w.Logger.Error("panic during declared validation", "kind", k.GVK().String(), "panic", r)
			errs, ok = field.ErrorList{field.InternalError(nil, fmt.Errorf("panic during declarative validation: %v", r))}, false
		}
	}()
	return k.Declared(obj), true
}

// differences returns the errors that only one side reports. Two errors are equal if they have the
// same type, origin and field.
func differences(written, declared field.ErrorList) (out []string) {
	same := field.ErrorMatcher{}.ByType().ByField().ByOrigin()
	missing := func(side string, of, in field.ErrorList) {
		for _, e := range of {
			found := false
			for _, other := range in {
				found = found || same.Matches(e, other)
			}
			if !found {
				out = append(out, side+" only: "+e.Error())
			}
		}
	}
	missing("written", written, declared)
	missing("declared", declared, written)
	return out
}
