package server

import (
	"context"
	"net/http"
	"strings"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/security/audit"
)

// Requests that name a resource which this server does not know may be for one that
// another replica has just defined. To find that out costs a read of the store and a
// wait, so it is done for those alone who may do what they ask for, and counts as work of
// theirs: newest looks behind the limits and authorization, for settle, which stands
// before them. What is found makes the operation anew, and the request passes the limits
// and authorization again as what it is then, so that what is done is what was allowed.
// Only its time stays bounded as when it came: a watch ends with the request timeout.

type newestKey struct{}

// look is a request to newest: what the newest kinds are.
type look struct{ kinds *apiset.Set }

// settle has the operation of a request see the newest kinds where it names a resource
// that is unknown, or where it was given back because another replica has deleted what
// defines its target. All of it is looked at again then, too.
func (c *Config) settle(limited http.Handler) http.Handler {
	if c.Newest == nil {
		return limited
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		if unknown(requestinfo.From(ctx)) {
			l := &look{}
			limited.ServeHTTP(w, r.WithContext(context.WithValue(ctx, newestKey{}, l)))
			if l.kinds == nil {
				return // it was refused
			}
			r = c.again(r, l.kinds)
		}
		for range maxReturns {
			op := requestinfo.From(r.Context())
			if op.Target == nil || op.Target.Document == nil { // kinds that are built in stay
				break
			}
			op.Returns()
			if limited.ServeHTTP(w, r); !op.Returned() {
				return
			}
			r = c.again(r, c.Newest(ctx))
		}
		limited.ServeHTTP(w, r)
	})
}

// maxReturns is how often an operation may be given back.
const maxReturns = 3

// again resolves the operation of a request against newer kinds.
func (c *Config) again(r *http.Request, kinds *apiset.Set) *http.Request {
	op := c.Foreign.Resolve(r, kinds)
	audit.From(r.Context()).Acts(op)
	return r.WithContext(requestinfo.With(r.Context(), op))
}

// newest does what settle asks for.
func (c *Config) newest(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l, ok := r.Context().Value(newestKey{}).(*look); ok {
			l.kinds = c.Newest(r.Context())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// unknown tells whether a request names a resource that another replica may have
// just defined: groups of custom resources are domains.
func unknown(op *requestinfo.Info) bool {
	if op.Foreign != nil {
		return false
	}
	if op.IsResource {
		return op.Target == nil && strings.Contains(op.Group, ".") && op.Kinds.Resource(op.GVR()) == nil
	}
	parts := strings.Split(strings.Trim(op.Path, "/"), "/")
	return len(parts) > 1 && len(parts) <= 3 && parts[0] == "apis" && strings.Contains(parts[1], ".") && !op.Kinds.ServesGroup(parts[1])
}
