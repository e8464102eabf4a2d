package build

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	names "binnacle/libs/api"
	"binnacle/libs/features"
	"binnacle/libs/quota"
	"binnacle/services/apiserver/internal/admission/plugins/resourcequota"
	"binnacle/services/apiserver/internal/cache/lister"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/server"
)

// resourceQuota creates the plugin that charges writes to quotas.
func (p *parts) resourceQuota(configuration []byte) (any, error) {
	c, err := resourcequota.Load(configuration)
	if err != nil {
		return nil, err
	}
	on := p.options.Features.Enabled
	kind := corev1.SchemeGroupVersion.WithResource("resourcequotas")
	kept, err := lister.NewKept[*corev1.ResourceQuota](p.objects(true), p.lookup(kind), "metadata.name", "spec.scopes", "spec.scopeSelector", "status")
	if err != nil {
		return nil, err
	}
	return resourcequota.New(resourcequota.Config{
		Quotas: &quotas{Kept: kept, p: p, gvr: kind}, Configuration: c, Now: time.Now,
		Gates: quota.Gates{
			InPlaceResize: on(features.InPlacePodVerticalScaling), PodLevel: on(features.PodLevelResources),
			Devices: on(features.DynamicResourceAllocation), AttributesClasses: on(features.VolumeAttributesClass),
		},
	}), nil
}

// quotas implements resourcequota.Quotas. It writes statuses through admission and storage as any
// client does.
type quotas struct {
	*lister.Kept[*corev1.ResourceQuota]
	p   *parts
	gvr schema.GroupVersionResource
}

// Change implements resourcequota.Quotas. One call serves several requests, so it acquires the
// limiter for large requests on its own.
func (q *quotas) Change(ctx context.Context, namespace, name string, change func(*corev1.ResourceQuota)) (int64, error) {
	ctx, end := server.WithPermit(ctx, q.p.server.LargeRequests())
	defer end()
	kind := q.p.allKinds.Current().Resource(q.gvr)
	r := &writes.Request{
		Kind: kind, Sub: kind.Subresource("status"), Namespace: namespace, Name: name, Manager: resourcequota.Manager,
		User:    &request.User{Name: "system:apiserver", Groups: []string{names.GroupMasters, names.GroupAuthenticated}},
		Options: &metav1.UpdateOptions{},
		// The next change of the same quota reads from the store anyway.
		Unnoted: true,
	}
	res, err := q.p.writes.Modify(ctx, r, func(obj registry.Object) error {
		change(obj.(*corev1.ResourceQuota))
		return nil
	})
	return res.Revision, err
}
