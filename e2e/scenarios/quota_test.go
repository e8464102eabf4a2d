package scenarios

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/e2e/harness"
)

// TestQuotaHoldsWhenReplicaIsKilled lets clients of three replicas compete for more objects than a
// quota allows, and kills one replica. The quota is never exceeded, and all acknowledged objects
// exist. Usage that the killed replica charged without a write stays charged until the quota
// controller recalculates it.
func TestQuotaHoldsWhenReplicaIsKilled(t *testing.T) {
	t.Parallel()
	const limit, asked, writers = 60, 120, 12
	etcd := harness.StartEtcd(t)
	first := harness.StartServer(t, harness.WithEtcd(etcd))
	replicas := []*harness.Server{first, first.StartReplica(harness.WithEtcd(etcd)), first.StartReplica(harness.WithEtcd(etcd))}
	admin := first.Client()
	createNamespace(t, admin, "limited")
	quotas := admin.CoreV1().ResourceQuotas("limited")
	hard := corev1.ResourceList{"count/configmaps": resource.MustParse(fmt.Sprint(limit))}
	resourceQuota, err := quotas.Create(t.Context(),
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: hard}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	resourceQuota.Status = corev1.ResourceQuotaStatus{Hard: hard, Used: corev1.ResourceList{"count/configmaps": resource.MustParse("0")}}
	if _, err := quotas.UpdateStatus(t.Context(), resourceQuota, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, r := range replicas { // wait until each has the quota
		if _, err := r.Client().CoreV1().ResourceQuotas("limited").Get(t.Context(), "q", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	var acknowledged sync.Map
	var created, next atomic.Int64
	var group sync.WaitGroup
	half := make(chan struct{})
	for i := range writers {
		c := replicas[i%len(replicas)].Client().CoreV1().ConfigMaps("limited")
		group.Go(func() {
			for n := next.Add(1); n <= asked; n = next.Add(1) {
				name := fmt.Sprintf("c-%d", n)
				_, err := c.Create(t.Context(), configMap(name, ""), metav1.CreateOptions{})
				if apierrors.IsForbidden(err) {
					continue
				}
				if err != nil {
					return // the replica was killed
				}
				acknowledged.Store(name, true)
				if created.Add(1) == limit/2 {
					close(half)
				}
			}
		})
	}
	select {
	case <-half:
	case <-t.Context().Done():
		t.Fatal("got fewer than half of the objects, want more")
	}
	replicas[2].Kill()
	group.Wait()
	list, err := admin.CoreV1().ConfigMaps("limited").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for i := range list.Items {
		there[list.Items[i].Name] = true
	}
	acknowledged.Range(func(name, _ any) bool {
		if !there[name.(string)] {
			t.Errorf("%s was acknowledged and does not exist, want it to", name)
		}
		return true
	})
	if len(there) > limit {
		t.Errorf("got %d objects, want at most %d", len(there), limit)
	}
	if resourceQuota, err = quotas.Get(t.Context(), "q", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	used := resourceQuota.Status.Used["count/configmaps"]
	// More objects were requested than allowed, so the whole quota is charged.
	if n := used.Value(); n != limit || n < int64(len(there)) {
		t.Errorf("got %d charged for %d objects, want %d", n, len(there), limit)
	}
	t.Logf("%d created, %d acknowledged, %d charged", len(there), created.Load(), used.Value())
}
