package server

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
)

// Foreign tells who answers for what this server does not serve. Either may be nil, and
// returns nil when nobody does.
type Foreign struct {
	// Extension answers for a group version that is not built in, whatever definitions of
	// custom resources say of it.
	Extension func(schema.GroupVersion) http.Handler
	// Peer answers for a resource for which no extension server does.
	Peer func(*http.Request, *requestinfo.Info) http.Handler
}

// Resolve makes the operation of a request, with who answers it.
func (f Foreign) Resolve(r *http.Request, kinds *apiset.Set) *requestinfo.Info {
	op := requestinfo.Resolve(r, kinds)
	var extension http.Handler
	if gv, ok := op.GroupVersion(); ok && f.Extension != nil && !kinds.BuiltIns().Serves(gv) {
		if extension = f.Extension(gv); extension != nil && kinds.Serves(gv) {
			op = requestinfo.Resolve(r, kinds.BuiltIns()) // what definitions say does not hold there
		}
	}
	if op.Target != nil || op.Hollow || climbs(op.Path) {
		return op
	}
	if op.Foreign = extension; op.Foreign == nil && f.Peer != nil && op.IsResource && kinds.Resource(op.GVR()) == nil {
		op.Foreign = f.Peer(r, op)
	}
	return op
}

// climbs tells whether a path has segments that another server may take for steps
// within it: what is authorized here would be something else there.
func climbs(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." })
}
