package pods

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/cache/attributes"
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// fixedStore is a store whose values do not change.
type fixedStore []storage.KeyValue

func (f fixedStore) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Position, error) {
	return storage.Position{Revision: 1}, page(f)
}

func (fixedStore) Follow(ctx context.Context, _ storage.Position, _ func(storage.Batch) error) error {
	<-ctx.Done()
	return ctx.Err()
}

func (fixedStore) Progress(context.Context) error                                 { return nil }
func (fixedStore) VerifyHistory(context.Context, storage.Position) (int64, error) { return 1, nil }

// broken selects a budget whose spec cannot be decoded.
const broken = "broken"

// storedBudgets returns the resource of disruption budgets, with one budget per selector in
// namespace ns, named a, b and so on. Each has the given size in bytes. Another budget is in
// another namespace.
func storedBudgets(t *testing.T, size int, selectors []string) *apiset.Resource {
	t.Helper()
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	kind := catalog.Resource(budgetResource)
	prefix := apiset.KeyPrefix("/registry", kind)
	var store fixedStore
	put := func(namespace, name, selector string) {
		budget := &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{
				Namespace:   namespace,
				Name:        name,
				Annotations: map[string]string{"large": strings.Repeat("x", size)},
			},
		}
		budget.Spec.MinAvailable = new(intstr.IntOrString)
		budget.Spec.UnhealthyPodEvictionPolicy = new(policyv1.UnhealthyPodEvictionPolicyType)
		*budget.Spec.UnhealthyPodEvictionPolicy = policyv1.AlwaysAllow
		budget.Status = policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 4}
		switch selector {
		case "none":
		case "all":
			budget.Spec.Selector = &metav1.LabelSelector{}
		default:
			budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": selector}}
		}
		value, err := c.ForKind(kind).EncodeStored(budget)
		if err != nil {
			t.Fatal(err)
		}
		if selector == broken {
			value = []byte(`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"` + name + `"},"spec":5}`)
		}
		store = append(store, storage.KeyValue{Key: prefix + namespace + "/" + name, Value: value, ModRevision: 1, CreateRevision: 1})
	}
	for i, s := range selectors {
		put("ns", string(rune('a'+i)), s)
	}
	put("other", "a", "x")
	cache, err := watchcache.New(watchcache.Config{Source: store, CurrentRevision: store, Resources: []watchcache.ResourceConfig{{
		Name: kind.GroupResource().String(), Prefix: prefix,
		Attributes: func(key string, _ []byte) (attributes.Attributes, error) {
			namespace, name, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
			return attributes.Attributes{Namespace: namespace, Name: name}, nil
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = cache.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	if err := cache.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return apiset.Builder{Codec: c, Cache: cache, Root: "/registry"}.Set(catalog, 0).Resource(budgetResource)
}

// TestBudgetSearchStopsAtFirstDecision checks the budget that is found and the cost of the search. The search stops at
// the first result that ends it, so a broken budget after it is not decoded.
func TestBudgetSearchStopsAtFirstDecision(t *testing.T) {
	const size = 100_000
	for name, tc := range map[string]struct {
		selectors []string
		// rejected: the work is not admitted. disconnected: the client disconnects when it is.
		rejected, disconnected bool
		want                   string
	}{
		"one":              {selectors: []string{"y", "x", "z"}, want: "b"},
		"one for all pods": {selectors: []string{"none", "all"}, want: "b"},
		"none":             {selectors: []string{"y", "none"}},
		"no budgets":       {},
		"two": {
			selectors: []string{"x", "all"},
			want:      "500 This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		},
		"two, more after them": {
			selectors: []string{"x", "y", "x", broken},
			want:      "500 This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		},
		"one undecodable":     {selectors: []string{"x", broken}, want: `read disruption budget "b"`},
		"rejected under load": {selectors: []string{broken, "x"}, rejected: true, want: "429 Too many large requests are in progress"},
		"client disconnected": {selectors: []string{broken, "x"}, disconnected: true, want: context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			kind := storedBudgets(t, size, tc.selectors)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			ctx = requesttest.WithInfo(ctx, &requestinfo.Info{Verb: "create"})
			weighed := 0
			request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: func(n int) bool {
				weighed = n
				if tc.disconnected {
					leave()
				}
				return !tc.rejected
			}}
			b, err := budgetOf(ctx, kind, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{"app": "x"}},
			})
			if got := resultOf(b, err); got != tc.want && (tc.want == "" || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			large := 0
			for _, s := range tc.selectors {
				if s != broken {
					large++
				}
			}
			if weighed < large*size || weighed >= (large+1)*size {
				t.Errorf("%d budgets of %d bytes: got a weight of %d bytes, want that of all, and less than one more", large, size, weighed)
			}
		})
	}
}

// resultOf returns the name of a complete budget, or the error.
func resultOf(b *policyv1.PodDisruptionBudget, err error) string {
	switch {
	case err != nil && status.FromError(err).Code == http.StatusTooManyRequests, err != nil && strings.HasPrefix(err.Error(), "This pod"):
		return fmt.Sprintf("%d %s", status.FromError(err).Code, err)
	case err != nil:
		return err.Error()
	case b == nil:
		return ""
	case b.Status.CurrentHealthy != 3 || b.Status.DesiredHealthy != 2 || *b.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow:
		return fmt.Sprintf("%+v", b)
	}
	return b.Name
}
