package statuses

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	names "binnacle/libs/api"
	"binnacle/services/apiserver/internal/admission/plugins/resourcequota"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/writes"
)

// Quotas implements resourcequota.Quotas. It reads quotas from the cache and writes their statuses
// through admission.
type Quotas struct {
	*lister.CachedLister[*corev1.ResourceQuota]
	Kinds *apiset.Live
	// Writer returns the writer of the server, which does not exist yet when Quotas is created.
	Writer func() *writes.Writer
	// Permit acquires the limiter for large requests. The caller releases it with release.
	Permit func(context.Context) (ctx context.Context, release func())
}

// Change implements resourcequota.Quotas. It acquires the limiter for large requests itself,
// because one call serves several requests and runs in none of them.
func (q *Quotas) Change(ctx context.Context, namespace, name string, change func(*corev1.ResourceQuota)) (int64, error) {
	ctx, release := q.Permit(ctx)
	defer release()
	kind := q.Kinds.Current().Resource(corev1.SchemeGroupVersion.WithResource("resourcequotas"))
	write := &writes.Request{
		Resource:  kind,
		Sub:       kind.Subresource("status"),
		Namespace: namespace,
		Name:      name,
		Manager:   resourcequota.FieldManager,
		User:      &request.User{Name: "system:apiserver", Groups: []string{names.GroupMasters, names.GroupAuthenticated}},
		Options:   &metav1.UpdateOptions{},
		// Reads need not wait for this write, because the next change reads from the store.
		SkipWritten: true,
	}
	res, err := q.Writer().UpdateStored(ctx, write, func(obj registry.Object) error {
		change(obj.(*corev1.ResourceQuota))
		return nil
	})
	return res.Revision, err
}
