package routing

import (
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
)

// Delegates finds the server of a resource that this server does not serve. Both fields may be nil.
// The functions return nil if there is no server for the resource.
type Delegates struct {
	// Extension returns the extension server of a group version that is not built in. It takes
	// precedence over custom resource definitions.
	Extension func(schema.GroupVersion) http.Handler
	// Peer returns another replica that serves a resource without an extension server.
	Peer func(*http.Request, *requestinfo.Info) http.Handler
}

// Resolve returns the request info of a request, including the delegate that serves it.
func (d Delegates) Resolve(r *http.Request, kinds *apiset.Set) *requestinfo.Info {
	info := requestinfo.Resolve(r, kinds)
	var extension http.Handler
	if gv, ok := info.GroupVersion(); ok && d.Extension != nil && !kinds.BuiltIns().Serves(gv) {
		extension = d.Extension(gv)
		if extension != nil && kinds.Serves(gv) {
			info = requestinfo.Resolve(r, kinds.BuiltIns()) // ignore the definitions
		}
	}
	if info.Target != nil || info.HasEmptySegment || hasDotSegment(info.Path) {
		return info
	}
	info.Delegate = extension
	if info.Delegate == nil && d.Peer != nil && info.IsResource && kinds.Resource(info.GVR()) == nil {
		info.Delegate = d.Peer(r, info)
	}
	return info
}

// hasDotSegment reports whether a path has a segment "." or "..". A delegate might normalize such a
// path, and would then serve a path other than the authorized one.
func hasDotSegment(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(s string) bool { return s == "." || s == ".." })
}
