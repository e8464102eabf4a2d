package app

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/bootstrap"
	"binnacle/services/apiserver/internal/endpoints"
	"binnacle/services/apiserver/internal/storage"
)

// A replica renews its lease every 10 seconds. What is older than recent belongs to
// one that is gone.
const (
	recent    = 30 * time.Second
	maxLeases = 100
)

// historyFrom is the revision of the oldest recent sign of life of a replica, 0
// without any. A replica that starts takes up history from there, so that clients
// whose watches were ended by the end of another one, or of its own predecessor,
// go on with it from where they are (specification: "A watch from the last
// received resourceVersion loses no events").
func (p *parts) historyFrom(ctx context.Context) int64 {
	kind := p.catalog.Resource(coordinationv1.SchemeGroupVersion.WithResource("leases"))
	coder := p.codec.Of(kind)
	prefix := endpoints.KeyPrefix(p.root(), kind) + metav1.NamespaceSystem + "/" + bootstrap.IdentityPrefix
	res, err := p.store.List(ctx, prefix, storage.ListOptions{Limit: maxLeases})
	if err != nil {
		p.log.Warn("history begins now: the leases of replicas cannot be read", "error", err)
		return 0
	}
	var oldest int64
	for _, kv := range res.Items {
		o, err := coder.DecodeStored(kv.Value, kv.ModRevision)
		lease, ok := o.(*coordinationv1.Lease)
		if err != nil || !ok || lease.Spec.RenewTime == nil || time.Since(lease.Spec.RenewTime.Time) > recent {
			continue
		}
		if oldest == 0 || kv.ModRevision < oldest {
			oldest = kv.ModRevision
		}
	}
	return oldest
}
