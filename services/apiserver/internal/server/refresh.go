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

// A request for an unknown resource may be about one that another replica has just defined. Finding
// out takes a read of the store and a wait, so only authorized requests may cause it, and it counts
// against their limits. Two filters work together:
//
//   - withAPISetRefresh, after the limits and authorization, reads the newest API set.
//   - withUnknownResource, before them, resolves the request info with that set and sends the request
//     through the limits and authorization again, so that the authorized operation is the executed one.
//
// The request keeps the deadline of the original request info: a watch found in this way ends with
// the request timeout.

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
			refreshing, s := request.Derive(ctx)
			s.RefreshAPISet = func(ctx context.Context) { newest = c.Refresh(ctx) }
			limited.ServeHTTP(w, r.WithContext(refreshing))
			if newest == nil {
				return // rejected before withAPISetRefresh
			}
			r = c.resolveAgain(r, newest)
		}

		// 2. A custom resource: resolve the request again each time that the handler returns it.
		for range maxRetries {
			op := requestinfo.FromContext(r.Context())
			if op.Target == nil || !op.Target.Custom() {
				break
			}
			op.AllowRetry() // the handler may return the request
			limited.ServeHTTP(w, r)
			if !op.RetryRequested() {
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
	op := c.Delegates.Resolve(r, kinds)
	audit.FromContext(r.Context()).SetRequestInfo(op)
	ctx, s := request.Derive(r.Context())
	s.Info = op
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
func mayBeDefinedElsewhere(op *requestinfo.Info) bool {
	if op.Delegate != nil {
		return false
	}
	if op.IsResource {
		return op.Target == nil && strings.Contains(op.Group, ".") && op.Kinds.Resource(op.GVR()) == nil
	}
	parts := strings.Split(strings.Trim(op.Path, "/"), "/")
	isDiscovery := (len(parts) == 2 || len(parts) == 3) && parts[0] == "apis" // /apis/<group>[/<version>]
	return isDiscovery && strings.Contains(parts[1], ".") && !op.Kinds.ServesGroup(parts[1])
}
