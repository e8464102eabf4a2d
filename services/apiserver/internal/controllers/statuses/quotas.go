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

// Quotas reads quotas and writes their statuses through admission and storage as any client does.
type Quotas struct {
	*lister.CachedLister[*corev1.ResourceQuota]
	Kinds  *apiset.Live
	Writer func() *writes.Writer
	// Permit acquires the limiter of large requests until end is called.
	Permit func(context.Context) (ctx context.Context, end func())
}

// Change implements resourcequota.Quotas. One call serves several requests, so it acquires the
// limiter for large requests on its own.
func (q *Quotas) Change(ctx context.Context, namespace, name string, change func(*corev1.ResourceQuota)) (int64, error) {
	ctx, end := q.Permit(ctx)
	defer end()
	kind := q.Kinds.Current().Resource(corev1.SchemeGroupVersion.WithResource("resourcequotas"))
	r := &writes.Request{
		Resource: kind, Sub: kind.Subresource("status"), Namespace: namespace, Name: name, Manager: resourcequota.FieldManager,
		User:    &request.User{Name: "system:apiserver", Groups: []string{names.GroupMasters, names.GroupAuthenticated}},
		Options: &metav1.UpdateOptions{},
		// The next change of the same quota reads from the store anyway.
		SkipWritten: true,
	}
	res, err := q.Writer().UpdateStored(ctx, r, func(obj registry.Object) error {
		change(obj.(*corev1.ResourceQuota))
		return nil
	})
	return res.Revision, err
}
