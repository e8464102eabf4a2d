package server

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"

	"binnacle/services/apiserver/internal/api/requestinfo"
)

// hold refuses writes of resources of which it is not said yet in which version this
// server stores them (Kubernetes: the storage version barrier). What that itself takes is
// let through, and the server's own writes do not come this way.
func (c *Config) hold(next http.Handler) http.Handler {
	if c.Held == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op := requestinfo.From(r.Context())
		if !op.IsResource || !op.Writes() || op.Group == "internal.apiserver.k8s.io" && op.Resource == "storageversions" ||
			op.Group == "coordination.k8s.io" && op.Resource == "leases" && op.Namespace == api.SystemNamespace {
			next.ServeHTTP(w, r)
			return
		}
		gr := op.GVR().GroupResource()
		if why, held := c.Held(r.Context(), gr, op.Target != nil && op.Target.Document != nil); held {
			text := "<nil>"
			if why != nil {
				text = why.Error()
			}
			c.Responder.Error(w, r, apierrors.NewServiceUnavailable(fmt.Sprintf("wait for storage version registration to complete for resource: %v, last seen error: %s", gr, text)))
			return
		}
		next.ServeHTTP(w, r)
	})
}
