package quotas_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"binnacle/libs/kubeclient"
	"binnacle/services/controllers/internal/quotas"
	"binnacle/services/controllers/internal/resources"
)

// fakeCounter is a Counter of config maps only.
type fakeCounter struct{ count int }

func (c *fakeCounter) Count(counted schema.GroupResource, _ string) (int, bool, error) {
	return c.count, counted.Resource == "configmaps", nil
}

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func pod(name string, phase corev1.PodPhase, deadline *int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name},
		Spec: corev1.PodSpec{ActiveDeadlineSeconds: deadline, Containers: []corev1.Container{{
			Name: "c", Resources: corev1.ResourceRequirements{Requests: amounts("cpu", "100m")},
		}}},
		Status: corev1.PodStatus{Phase: phase},
	}
}

// TestStatusReportsUsageOfLimitedResources checks the computed usage for quotas with different limits and scopes.
func TestStatusReportsUsageOfLimitedResources(t *testing.T) {
	seconds := int64(10)
	tests := []struct {
		name   string
		hard   corev1.ResourceList
		scopes []corev1.ResourceQuotaScope
		before corev1.ResourceQuotaStatus
		want   corev1.ResourceList
	}{
		{name: "quota without a status", hard: amounts("configmaps", "5", "count/configmaps", "5"), before: corev1.ResourceQuotaStatus{},
			want: amounts("configmaps", "3", "count/configmaps", "3")},
		{name: "limit of quotas counts the quota", hard: amounts("resourcequotas", "5", "count/resourcequotas", "5"), before: corev1.ResourceQuotaStatus{},
			want: amounts("resourcequotas", "1", "count/resourcequotas", "1")},
		{name: "terminated pods count only in count/pods", hard: amounts("pods", "5", "requests.cpu", "1", "count/pods", "5"), before: corev1.ResourceQuotaStatus{},
			want: amounts("pods", "2", "requests.cpu", "200m", "count/pods", "3")},
		{name: "scope selects pods", hard: amounts("pods", "5", "requests.cpu", "1"),
			scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}, before: corev1.ResourceQuotaStatus{},
			want: amounts("pods", "1", "requests.cpu", "100m")},
		{name: "resources without objects", hard: amounts("services", "5", "requests.storage", "1Gi"), before: corev1.ResourceQuotaStatus{},
			want: amounts("services", "0", "requests.storage", "0")},
		{name: "removed limit has no usage", hard: amounts("configmaps", "5"),
			before: corev1.ResourceQuotaStatus{
				Hard: amounts("configmaps", "5", "pods", "1"),
				Used: amounts("configmaps", "9", "pods", "1"),
			},
			want: amounts("configmaps", "3")},
		{name: "unknown resource keeps its usage", hard: amounts("count/widgets.example.com", "5"),
			before: corev1.ResourceQuotaStatus{Used: amounts("count/widgets.example.com", "4")},
			want:   amounts("count/widgets.example.com", "4")},
		{name: "name of an unknown extended resource", hard: amounts("example.com/thing", "5"), before: corev1.ResourceQuotaStatus{}, want: amounts()},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quota := &corev1.ResourceQuota{
					ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "q"},
					Spec:       corev1.ResourceQuotaSpec{Hard: test.hard, Scopes: test.scopes}, Status: test.before,
				}
				client := fake.NewClientset(quota, pod("x", corev1.PodRunning, nil),
					pod("y", corev1.PodPending, &seconds), pod("z", corev1.PodFailed, nil))
				start(t, client, &fakeCounter{3})
				requireStatus(t, client, test.hard, test.want)
			})
		})
	}
}

// clients returns the clients of a controller that has no device claims.
func clients(client *fake.Clientset) quotas.Clients {
	core := client.CoreV1()
	return quotas.Clients{
		Quotas: func(namespace string) kubeclient.Interface[*corev1.ResourceQuota, *corev1.ResourceQuotaList] {
			return core.ResourceQuotas(namespace)
		},
		Status: func(namespace string) quotas.StatusClient { return core.ResourceQuotas(namespace) },
		Pods:   func(namespace string) kubeclient.Interface[*corev1.Pod, *corev1.PodList] { return core.Pods(namespace) },
		Services: func(namespace string) kubeclient.Interface[*corev1.Service, *corev1.ServiceList] {
			return core.Services(namespace)
		},
		VolumeClaims: func(namespace string) kubeclient.Interface[*corev1.PersistentVolumeClaim, *corev1.PersistentVolumeClaimList] {
			return core.PersistentVolumeClaims(namespace)
		},
	}
}

// start runs a controller in a bubble.
func start(t *testing.T, client *fake.Clientset, counter *fakeCounter) *quotas.Controller {
	controller := quotas.New(quotas.Config{
		Clients: clients(client),
		Counts:  counter,
		Log:     slog.New(slog.DiscardHandler),
		Workers: 1,
		Resync:  time.Minute,
	})
	listed := make(chan struct{})
	close(listed)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- controller.Run(ctx, listed) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v, want no error", err)
		}
	})
	advance(time.Second)
	return controller
}

func advance(d time.Duration) {
	time.Sleep(d) // the bubble's time
	synctest.Wait()
}

func requireStatus(t *testing.T, client *fake.Clientset, hard, used corev1.ResourceList) {
	t.Helper()
	quota, err := client.CoreV1().ResourceQuotas("a").Get(t.Context(), "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(quota.Status.Hard, hard) || !equality.Semantic.DeepEqual(quota.Status.Used, used) {
		t.Errorf("status %v\nwant %v %v", quota.Status, hard, used)
	}
}

// TestDeletionRecomputesQuotaBeforeResync checks that a deletion recomputes a quota soon, and that other changes wait for
// the next resync.
func TestDeletionRecomputesQuotaBeforeResync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hard := amounts("configmaps", "5")
		client := fake.NewClientset(&corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "q"},
			Spec:       corev1.ResourceQuotaSpec{Hard: hard},
		})
		counter := &fakeCounter{3}
		controller := start(t, client, counter)
		requireStatus(t, client, hard, amounts("configmaps", "3"))
		counter.count = 2
		configMaps := &resources.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}
		controller.Changed(configMaps, "a", false)
		advance(time.Second)
		requireStatus(t, client, hard, amounts("configmaps", "3"))
		controller.Changed(configMaps, "a", true)
		advance(time.Second)
		requireStatus(t, client, hard, amounts("configmaps", "2"))
		counter.count = 1
		advance(time.Minute)
		requireStatus(t, client, hard, amounts("configmaps", "1"))
	})
}
