package server

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/served"
)

// Foreign tells who answers for a group version that this server does not serve; nil
// when nobody does.
type Foreign func(schema.GroupVersion) http.Handler

// Resolve makes the operation of a request, with who answers it.
func (f Foreign) Resolve(r *http.Request, kinds *served.Set) *request.Operation {
	op := request.Resolve(r, kinds)
	if f == nil || op.Target != nil {
		return op
	}
	if gv, ok := op.GroupVersion(); ok && !kinds.Serves(gv) {
		op.Foreign = f(gv)
	}
	return op
}
