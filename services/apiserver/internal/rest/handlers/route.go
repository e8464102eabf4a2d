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
	op := requestinfo.FromContext(r.Context())
	c, handle, err := a.route(w, r, op)
	if err != nil {
		if k := op.Kinds.Resource(op.GVR()); k != nil && k.Presentation.DeprecatedAlways && k.Presentation.Deprecated != "" {
			request.Warn(r.Context(), k.Presentation.Deprecated)
		}
	} else {
		if c.Presentation.Deprecated != "" {
			request.Warn(r.Context(), c.Presentation.Deprecated)
			audit.FromContext(r.Context()).Annotate(deprecatedAnnotation, "true")
			if c.Presentation.RemovedRelease != "" {
				audit.FromContext(r.Context()).Annotate(removedReleaseAnnotation, c.Presentation.RemovedRelease)
			}
			a.Metrics.recordDeprecated(c.Kind, c.Info.Subresource)
		}
		err = handle(c)
	}
	if errors.Is(err, apiset.ErrGone) {
		if c.Info.Retry() {
			return
		}
		err = status.NoResource()
	}
	if errors.Is(err, apiset.ErrChanged) && c.Info.Retry() {
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
func (a *API) route(w http.ResponseWriter, r *http.Request, op *requestinfo.Info) (*Call, handler, error) {
	if op.Target == nil {
		if k := op.Kinds.Resource(op.GVR()); k != nil && op.Subresource != "" {
			return nil, nil, k.Errors().NoSubresource(op.Name)
		}
		return nil, nil, status.NoResource()
	}
	c := &Call{resource: op.Target, W: w, R: r, Info: op, Sub: op.Sub, api: a}
	if op.WatchPath && !c.HasVerb("watch") {
		return nil, nil, status.NoResource()
	}
	if c.createOnly() && (!op.Collection || c.Namespaced && op.Namespace == "" && !op.EmptyNamespace) {
		return nil, nil, status.NoResource()
	}
	noNamespace := c.Namespaced && op.Namespace == ""
	if noNamespace && c.NamespaceRequired && op.Verb != "list" && op.Verb != "watch" {
		return c, pageNotFound, nil
	}
	lacksNamespace := noNamespace && !op.Collection // all namespaces together are a collection
	if c.Sub != nil && c.Sub.Connect {
		o := a.operationOf(c)
		if o != nil && !slices.Contains(o.Methods, op.Method) {
			return nil, nil, status.Method()
		}
		if lacksNamespace {
			return nil, nil, errNoNamespace()
		}
		if _, dry := api.Parameter(r.URL.RawQuery, "dryRun"); dry {
			return nil, nil, apierrors.NewBadRequest("dryRun is not supported")
		}
		if err := checkPathName(op); err != nil {
			return nil, nil, err
		}
		return c, a.proxyHandler(o), nil
	}
	h := a.handlerOf(c)
	if h == nil && (op.Verb != "patch" || !c.Custom()) {
		return nil, nil, c.Errors().NoVerb(op.Verb, op.Collection && c.Sub == nil)
	}
	if op.Verb == "patch" {
		if types := a.patchTypes(c); !slices.Contains(types, string(patchType(r))) {
			return nil, nil, c.Errors().NoPatch(types, r.ContentLength == 0)
		}
	}
	if h == nil {
		return nil, nil, c.Errors().NoVerb(op.Verb, op.Collection && c.Sub == nil)
	}
	if accept := r.Header.Get("Accept"); !c.Custom() && !a.Config.Media.Supports(accept) {
		return nil, nil, c.Errors().NotAcceptable(a.Config.Media, op.Verb == "list" || op.Verb == "watch")
	}
	if lacksNamespace {
		return c, a.rejectNoNamespace, nil
	}
	if err := checkPathName(op); err != nil {
		return nil, nil, err
	}
	return c, h, nil
}

// createOnly reports whether objects of the kind can only be created. They are not stored, so no
// path names one.
func (c *Call) createOnly() bool {
	return c.Sub == nil && c.Virtual && !c.HasVerb("get")
}

// checkPathName rejects the name of an object that cannot be part of a path, such as "..".
func checkPathName(op *requestinfo.Info) error {
	if op.Collection || op.Verb == "watch" || op.Verb == "create" && op.Sub == nil {
		return nil
	}
	if op.Sub != nil && op.Sub.Connect { // the name may have a scheme and a port
		return nil
	}
	return CheckName(op.Name)
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
func (a *API) rejectNoNamespace(c *Call) error {
	var err error
	switch c.Info.Verb {
	case "create", "update":
		_, err = a.bodyType(c)
	case "delete":
		_, err = a.deleteOptions(c)
	}
	if err != nil {
		return err
	}
	return errNoNamespace()
}

// pageNotFound serves a path without the namespace that the kind requires.
func pageNotFound(c *Call) error {
	http.NotFound(c.W, c.R)
	return nil
}

// handlerOf returns the handler of the operation's verb, or nil.
func (a *API) handlerOf(c *Call) handler {
	switch {
	case c.Info.Method == http.MethodHead && !c.Custom(), c.Info.Verb == "watch" && c.Info.Method != http.MethodGet:
		return nil
	case c.Sub != nil && c.Sub.HasVerb(c.Info.Verb):
		return a.subresourceHandler(c)
	case c.Sub != nil:
		return nil
	case c.Virtual:
		return a.virtualHandler(c)
	case !c.HasVerb(c.Info.Verb):
		return nil
	case c.Info.Collection || c.Info.Verb == "watch":
		return a.collectionHandler(c)
	}
	switch c.Info.Verb {
	case "get":
		return a.get
	case "update":
		return a.update
	case "patch":
		return a.patch
	case "delete":
		return a.delete
	case "create":
		if c.Create.NamedCreate {
			return a.create
		}
	}
	return nil
}

// collectionHandler returns the handler of a verb on a collection, or nil.
func (a *API) collectionHandler(c *Call) handler {
	switch {
	case c.Info.Verb == "list":
		return a.list
	case c.Info.Verb == "watch":
		return a.watch
	case !c.allowsCreate():
		return nil
	case c.Info.Verb == "create":
		return a.create
	case c.Info.Verb == "deletecollection":
		return a.deleteCollection
	}
	return nil
}
