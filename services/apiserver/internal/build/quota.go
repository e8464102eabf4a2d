package build

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	names "binnacle/libs/api"
	"binnacle/libs/features"
	"binnacle/libs/limit"
	"binnacle/libs/quota"
	"binnacle/services/apiserver/internal/admission/plugins/resourcequota"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/server"
)

// resourceQuota creates the plugin that charges writes to quotas.
func (a *admissionBuilder) resourceQuota(configuration []byte) (any, error) {
	c, err := resourcequota.Load(configuration)
	if err != nil {
		return nil, err
	}
	on := a.gates.Enabled
	cached, err := lister.NewCachedLister[*corev1.ResourceQuota](a.caches.objects(true), a.caches.core("resourcequotas"), a.bounds.Cached, "metadata.name", "spec.scopes", "spec.scopeSelector", "status")
	if err != nil {
		return nil, err
	}
	return resourcequota.New(resourcequota.Config{
		Quotas: &quotas{CachedLister: cached, kinds: a.sets.allKinds, writer: a.writer, large: a.large}, Configuration: c, Now: time.Now,
		Gates: quota.Gates{
			InPlaceResize: on(features.InPlacePodVerticalScaling), PodLevel: on(features.PodLevelResources),
			Devices: on(features.DynamicResourceAllocation), AttributesClasses: on(features.VolumeAttributesClass),
		},
	}), nil
}

// quotas implements resourcequota.Quotas. It writes statuses through admission and storage as any
// client does.
type quotas struct {
	*lister.CachedLister[*corev1.ResourceQuota]
	kinds  *apiset.Live
	writer func() *writes.Writer
	large  *limit.Queue[string]
}

// Change implements resourcequota.Quotas. One call serves several requests, so it acquires the
// limiter for large requests on its own.
func (q *quotas) Change(ctx context.Context, namespace, name string, change func(*corev1.ResourceQuota)) (int64, error) {
	ctx, end := server.WithPermit(ctx, q.large)
	defer end()
	kind := q.kinds.Current().Resource(corev1.SchemeGroupVersion.WithResource("resourcequotas"))
	r := &writes.Request{
		Kind: kind, Sub: kind.Subresource("status"), Namespace: namespace, Name: name, Manager: resourcequota.Manager,
		User:    &request.User{Name: "system:apiserver", Groups: []string{names.GroupMasters, names.GroupAuthenticated}},
		Options: &metav1.UpdateOptions{},
		// The next change of the same quota reads from the store anyway.
		Unnoted: true,
	}
	res, err := q.writer().Modify(ctx, r, func(obj registry.Object) error {
		change(obj.(*corev1.ResourceQuota))
		return nil
	})
	return res.Revision, err
}
