package server

import (
	"context"
	"net/http"
	"strings"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
)

// A request may name a resource that another replica has just defined. This server finds out with a
// read of the store and a wait. Only authorized requests may cause them, and they count against the
// limits of the request. Two filters work together:
//
//   - withAPISetRefresh, after the limits and authorization, reads the newest API set.
//   - withUnknownResource, before them, resolves the request info with that set and sends the request
//     through the limits and authorization again, so that the authorized operation is the executed one.
//
// The request keeps the deadline of its original request info. Therefore a watch of a resource found in
// this way ends with the request timeout.

// withUnknownResource resolves a request again with the newest API set if its resource is unknown, or
// if the handler returned it because another replica has deleted the definition of its resource.
func (c *Config) withUnknownResource(limited http.Handler) http.Handler {
	if c.Refresh == nil {
		return limited
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()

		// 1. An unknown resource: send the request through the limits and authorization up to
		// withAPISetRefresh, which sets newest.
		if mayBeDefinedElsewhere(requestinfo.FromContext(ctx)) {
			var newest *apiset.Set
			refreshing, state := request.Derive(ctx)
			state.RefreshAPISet = func(ctx context.Context) { newest = c.Refresh(ctx) }
			limited.ServeHTTP(w, r.WithContext(refreshing))
			if newest == nil {
				return // rejected before withAPISetRefresh
			}
			r = c.resolveAgain(r, newest)
		}

		// 2. A custom resource: resolve the request again each time that the handler returns it.
		for range maxRetries {
			info := requestinfo.FromContext(r.Context())
			if info.Target == nil || !info.Target.Custom() {
				break
			}
			info.AllowRetry() // the handler may return the request
			limited.ServeHTTP(w, r)
			if !info.RetryRequested() {
				return
			}
			r = c.resolveAgain(r, c.Refresh(ctx))
		}
		limited.ServeHTTP(w, r)
	})
}

// maxRetries is how often a request is resolved again because the handler returned it.
const maxRetries = 3

// resolveAgain returns the request with a request info of a newer API set.
func (c *Config) resolveAgain(r *http.Request, kinds *apiset.Set) *http.Request {
	info := c.Delegates.Resolve(r, kinds)
	audit.FromContext(r.Context()).SetRequestInfo(info)
	ctx, state := request.Derive(r.Context())
	state.Info = info
	return r.WithContext(ctx)
}

// withAPISetRefresh reads the newest API set for withUnknownResource and passes on all other
// requests.
func (c *Config) withAPISetRefresh(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refresh := request.FromContext(r.Context()).RefreshAPISet; refresh != nil {
			refresh(r.Context())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// mayBeDefinedElsewhere reports whether a request names an unknown resource that another replica
// may have just defined. The group of a custom resource always contains a dot.
func mayBeDefinedElsewhere(info *requestinfo.Info) bool {
	if info.Delegate != nil {
		return false
	}
	if info.IsResource {
		return info.Target == nil && strings.Contains(info.Group, ".") && info.Kinds.Resource(info.GVR()) == nil
	}
	parts := strings.Split(strings.Trim(info.Path, "/"), "/")
	isDiscovery := (len(parts) == 2 || len(parts) == 3) && parts[0] == "apis" // /apis/<group>[/<version>]
	return isDiscovery && strings.Contains(parts[1], ".") && !info.Kinds.ServesGroup(parts[1])
}
