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

// undecodableSelector requests a budget whose spec cannot be decoded.
const undecodableSelector = "broken"

// storedBudgets returns the resource of disruption budgets, with one budget per selector in
// namespace ns, named a, b and so on. A selector is the value of the label app, "all", "none" or
// undecodableSelector. Each budget has at least the given size in bytes. Another namespace has one
// more budget.
func storedBudgets(t *testing.T, size int, selectors []string) *apiset.Resource {
	t.Helper()
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	codecs, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	kind := catalog.Resource(budgetResource)
	prefix := apiset.KeyPrefix("/registry", kind)
	var store fixedStore
	addBudget := func(namespace, name, selector string) {
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
		value, err := codecs.ForKind(kind).EncodeStored(budget)
		if err != nil {
			t.Fatal(err)
		}
		if selector == undecodableSelector {
			value = []byte(`{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"` + name + `"},"spec":5}`)
		}
		store = append(store, storage.KeyValue{Key: prefix + namespace + "/" + name, Value: value, ModRevision: 1, CreateRevision: 1})
	}
	for i, selector := range selectors {
		addBudget("ns", string(rune('a'+i)), selector)
	}
	addBudget("other", "a", "x")
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
	return apiset.Builder{Codec: codecs, Cache: cache, Root: "/registry"}.Set(catalog, 0).Resource(budgetResource)
}

// TestBudgetSearchStopsAtFirstDecision checks the budget that is found and the cost of the search. The search stops at
// the first result that ends it, so an undecodable budget after it is not decoded.
func TestBudgetSearchStopsAtFirstDecision(t *testing.T) {
	const size = 100_000
	for name, tc := range map[string]struct {
		selectors    []string
		rejected     bool   // the estimated work is not admitted
		disconnected bool   // the client disconnects when the work is admitted
		want         string // the name of the budget, or the beginning of the error
	}{
		"one budget selects the pod":  {selectors: []string{"y", "x", "z"}, want: "b"},
		"one budget selects all pods": {selectors: []string{"none", "all"}, want: "b"},
		"no budget selects the pod":   {selectors: []string{"y", "none"}},
		"no budgets":                  {},
		"two budgets select the pod": {
			selectors: []string{"x", "all"},
			want:      "500 This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		},
		"two budgets select the pod, an undecodable one follows": {
			selectors: []string{"x", "y", "x", undecodableSelector},
			want:      "500 This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
		},
		"an undecodable budget follows": {selectors: []string{"x", undecodableSelector}, want: `read disruption budget "b"`},
		"rejected under load":           {selectors: []string{undecodableSelector, "x"}, rejected: true, want: "429 Too many large requests are in progress"},
		"client disconnected":           {selectors: []string{undecodableSelector, "x"}, disconnected: true, want: context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			kind := storedBudgets(t, size, tc.selectors)
			ctx, disconnect := context.WithCancel(t.Context())
			defer disconnect()
			ctx = requesttest.WithInfo(ctx, &requestinfo.Info{Verb: "create"})
			estimated := 0
			request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: func(n int) bool {
				estimated = n
				if tc.disconnected {
					disconnect()
				}
				return !tc.rejected
			}}
			budget, err := budgetOf(ctx, kind, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{"app": "x"}},
			})
			if got := resultOf(budget, err); got != tc.want && (tc.want == "" || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			large := 0
			for _, selector := range tc.selectors {
				if selector != undecodableSelector {
					large++
				}
			}
			if estimated < large*size || estimated >= (large+1)*size {
				t.Errorf("%d budgets of %d bytes: got an estimate of %d bytes, want the size of all budgets and less than one more", large, size, estimated)
			}
		})
	}
}

// resultOf returns the name of a budget that has all fields of budgetPaths, or the text of the error.
// An error that the client sees follows its status code.
func resultOf(budget *policyv1.PodDisruptionBudget, err error) string {
	switch {
	case err != nil && status.FromError(err).Code == http.StatusTooManyRequests, err != nil && strings.HasPrefix(err.Error(), "This pod"):
		return fmt.Sprintf("%d %s", status.FromError(err).Code, err)
	case err != nil:
		return err.Error()
	case budget == nil:
		return ""
	case budget.Status.CurrentHealthy != 3 || budget.Status.DesiredHealthy != 2 || *budget.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow:
		return fmt.Sprintf("%+v", budget)
	}
	return budget.Name
}
