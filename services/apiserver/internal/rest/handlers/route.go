package handlers

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
)

// deprecatedAnnotation is the audit annotation of a request for a deprecated kind.
const deprecatedAnnotation = "k8s.io/deprecated"

// removedReleaseAnnotation names the release that no longer serves the kind.
const removedReleaseAnnotation = "k8s.io/removed-release"

// ServeHTTP serves a resource request according to its request info.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info := requestinfo.FromContext(r.Context())
	call, handle, err := a.route(w, r, info)
	if err != nil {
		if kind := info.Kinds.Resource(info.GVR()); kind != nil && kind.Presentation.DeprecatedAlways && kind.Presentation.Deprecated != "" {
			request.Warn(r.Context(), kind.Presentation.Deprecated)
		}
	} else {
		if call.Presentation.Deprecated != "" {
			request.Warn(r.Context(), call.Presentation.Deprecated)
			audit.FromContext(r.Context()).Annotate(deprecatedAnnotation, "true")
			if call.Presentation.RemovedRelease != "" {
				audit.FromContext(r.Context()).Annotate(removedReleaseAnnotation, call.Presentation.RemovedRelease)
			}
			a.Metrics.recordDeprecated(call.Kind, call.Info.Subresource)
		}
		err = handle(call)
	}
	if errors.Is(err, apiset.ErrGone) {
		if call.Info.Retry() {
			return
		}
		err = status.NoResource()
	}
	if errors.Is(err, apiset.ErrChanged) && call.Info.Retry() {
		return
	}
	if errors.Is(err, watchcache.ErrNotReady) || errors.Is(err, apiset.ErrChanged) {
		err = status.Reloading()
	}
	if err != nil {
		a.writeError(w, r, err)
	}
}

// route returns the handler of an operation. It checks the target (404), the verb (405), the media
// types (415, 406) and the names in the path (400), in this order.
func (a *API) route(w http.ResponseWriter, r *http.Request, info *requestinfo.Info) (*Call, handler, error) {
	if info.Target == nil {
		if kind := info.Kinds.Resource(info.GVR()); kind != nil && info.Subresource != "" {
			return nil, nil, kind.Errors().NoSubresource(info.Name)
		}
		return nil, nil, status.NoResource()
	}
	call := &Call{resource: info.Target, W: w, R: r, Info: info, Sub: info.Sub, api: a}
	if info.WatchPath && !call.HasVerb("watch") {
		return nil, nil, status.NoResource()
	}
	if call.createOnly() && (!info.Collection || call.Namespaced && info.Namespace == "" && !info.EmptyNamespace) {
		return nil, nil, status.NoResource()
	}
	noNamespace := call.Namespaced && info.Namespace == ""
	if noNamespace && call.NamespaceRequired && info.Verb != "list" && info.Verb != "watch" {
		return call, pageNotFound, nil
	}
	lacksNamespace := noNamespace && !info.Collection // a collection may span all namespaces
	if call.Sub != nil && call.Sub.Connect {
		operation := a.operationOf(call)
		if operation != nil && !slices.Contains(operation.Methods, info.Method) {
			return nil, nil, status.Method()
		}
		if lacksNamespace {
			return nil, nil, errNoNamespace()
		}
		if _, dry := api.Parameter(r.URL.RawQuery, "dryRun"); dry {
			return nil, nil, apierrors.NewBadRequest("dryRun is not supported")
		}
		if err := checkPathName(info); err != nil {
			return nil, nil, err
		}
		return call, a.proxyHandler(operation), nil
	}
	handle := a.handlerOf(call)
	if handle == nil && (info.Verb != "patch" || !call.Custom()) {
		return nil, nil, call.Errors().NoVerb(info.Verb, info.Collection && call.Sub == nil)
	}
	if info.Verb == "patch" {
		if types := a.patchTypes(call); !slices.Contains(types, string(patchType(r))) {
			return nil, nil, call.Errors().NoPatch(types, r.ContentLength == 0)
		}
	}
	if handle == nil {
		return nil, nil, call.Errors().NoVerb(info.Verb, info.Collection && call.Sub == nil)
	}
	if accept := r.Header.Get("Accept"); !call.Custom() && !a.Config.Media.Supports(accept) {
		return nil, nil, call.Errors().NotAcceptable(a.Config.Media, info.Verb == "list" || info.Verb == "watch")
	}
	if lacksNamespace {
		return call, a.rejectNoNamespace, nil
	}
	if err := checkPathName(info); err != nil {
		return nil, nil, err
	}
	return call, handle, nil
}

// createOnly reports whether objects of the kind can only be created. They are not stored, so no
// path names one.
func (c *Call) createOnly() bool {
	return c.Sub == nil && c.Virtual && !c.HasVerb("get")
}

// checkPathName rejects the name of an object that cannot be part of a path, such as "..".
func checkPathName(info *requestinfo.Info) error {
	if info.Collection || info.Verb == "watch" || info.Verb == "create" && info.Sub == nil {
		return nil
	}
	if info.Sub != nil && info.Sub.Connect { // the name may have a scheme and a port
		return nil
	}
	return CheckName(info.Name)
}

// CheckName returns a 400 error for a name that cannot be part of a path.
func CheckName(name string) error {
	if faults := path.IsValidPathSegmentName(name); len(faults) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", name, strings.Join(faults, ";")))
	}
	return nil
}

// rejectNoNamespace rejects a request for an object of an empty namespace. Errors of the body come
// first.
func (a *API) rejectNoNamespace(call *Call) error {
	var err error
	switch call.Info.Verb {
	case "create", "update":
		_, err = a.bodyType(call)
	case "delete":
		_, err = a.deleteOptions(call)
	}
	if err != nil {
		return err
	}
	return errNoNamespace()
}

// pageNotFound serves a path without the namespace that the kind requires.
func pageNotFound(call *Call) error {
	http.NotFound(call.W, call.R)
	return nil
}

// handlerOf returns the handler of the operation's verb, or nil.
func (a *API) handlerOf(call *Call) handler {
	switch {
	case call.Info.Method == http.MethodHead && !call.Custom(), call.Info.Verb == "watch" && call.Info.Method != http.MethodGet:
		return nil
	case call.Sub != nil && call.Sub.HasVerb(call.Info.Verb):
		return a.subresourceHandler(call)
	case call.Sub != nil:
		return nil
	case call.Virtual:
		return a.virtualHandler(call)
	case !call.HasVerb(call.Info.Verb):
		return nil
	case call.Info.Collection || call.Info.Verb == "watch":
		return a.collectionHandler(call)
	}
	switch call.Info.Verb {
	case "get":
		return a.get
	case "update":
		return a.update
	case "patch":
		return a.patch
	case "delete":
		return a.delete
	case "create":
		if call.Create.NamedCreate {
			return a.create
		}
	}
	return nil
}

// collectionHandler returns the handler of a verb on a collection, or nil.
func (a *API) collectionHandler(call *Call) handler {
	switch {
	case call.Info.Verb == "list":
		return a.list
	case call.Info.Verb == "watch":
		return a.watch
	case !call.allowsCreate():
		return nil
	case call.Info.Verb == "create":
		return a.create
	case call.Info.Verb == "deletecollection":
		return a.deleteCollection
	}
	return nil
}
