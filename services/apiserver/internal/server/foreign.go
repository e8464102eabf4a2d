package server

import (
	"net/http"
	"slices"
	"strings"

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
	if f == nil || op.Target != nil || op.Hollow || climbs(op.Path) {
		return op
	}
	if gv, ok := op.GroupVersion(); ok && !kinds.Serves(gv) {
		op.Foreign = f(gv)
	}
	return op
}

// climbs tells whether a path has segments that another server may take for steps
// within it: what is authorized here would be something else there.
func climbs(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." })
}
