package server

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"

	"binnacle/services/apiserver/internal/api/requestinfo"
)

// withStorageVersion rejects writes of resources whose storage version this server has not registered
// yet (Kubernetes: the storage version barrier). It admits the writes that the registration needs. The
// server's internal writes do not pass this filter.
func (c *Config) withStorageVersion(next http.Handler) http.Handler {
	if c.StorageVersionPending == nil {
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
		if why, held := c.StorageVersionPending(r.Context(), gr, op.Target != nil && op.Target.Custom()); held {
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
