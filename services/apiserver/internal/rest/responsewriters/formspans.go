package responsewriters

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/codec/negotiation"
)

// serialize starts the span of a response with an object or a list in the form.
func (f *Form) serialize(w http.ResponseWriter, r *http.Request) (_ http.ResponseWriter, done func()) {
	tracing.Event(r.Context(), eventWrite)
	gv := f.res.GroupVersion()
	switch f.As {
	case negotiation.Table, negotiation.PartialObject, negotiation.PartialObjectList:
		gv = schema.GroupVersion{Group: metav1.GroupName, Version: f.MetaVersion}
	}
	w, end := serialize(w, r, gv, f.Choice)
	return w, func() {
		end()
		tracing.Event(r.Context(), eventWritten)
	}
}
