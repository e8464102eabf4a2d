package server

import (
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/requestinfo"
)

// withStorageVersion rejects writes of resources whose storage version this server has not
// registered yet (Kubernetes: the storage version barrier). It admits the writes that the
// registration needs. The server's internal writes do not pass this filter.
func (c *Config) withStorageVersion(next http.Handler) http.Handler {
	if c.StorageVersionPending == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := requestinfo.FromContext(r.Context())
		if !info.IsResource || !info.IsWrite() || registersStorageVersions(info) {
			next.ServeHTTP(w, r)
			return
		}
		gr := info.GVR().GroupResource()
		custom := info.Target != nil && info.Target.Custom()
		if lastError, pending := c.StorageVersionPending(r.Context(), gr, custom); pending {
			text := "<nil>"
			if lastError != nil {
				text = lastError.Error()
			}
			message := fmt.Sprintf("wait for storage version registration to complete for resource: %v, last seen error: %s", gr, text)
			c.Responder.Error(w, r, apierrors.NewServiceUnavailable(message))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// registersStorageVersions reports whether the registration of storage versions needs the write. It
// writes StorageVersion objects and the lease of the server.
func registersStorageVersions(info *requestinfo.Info) bool {
	switch info.Group {
	case "internal.apiserver.k8s.io":
		return info.Resource == "storageversions"
	case "coordination.k8s.io":
		return info.Resource == "leases" && info.Namespace == api.SystemNamespace
	}
	return false
}
