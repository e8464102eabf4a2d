package writes

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
)

// withDeclared runs the declared rules of a kind beside the written ones, whose
// findings are errs, and returns those that count.
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
		w.Logger.Warn("declared and written validation differ", "kind", k.GVK().String(), "difference", difference, "takeover", w.Declared.Takeover)
	}
	if !w.Declared.Takeover {
		return errs
	}
	return append(errs.RemoveCoveredByDeclarative(), declared...)
}

// runDeclared is false when the rules panicked, which then is what they found.
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

// differences are the findings that one side alone has; findings are the same
// when they are of one type and origin at one place.
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
