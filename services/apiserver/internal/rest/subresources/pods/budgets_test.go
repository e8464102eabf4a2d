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
	"binnacle/services/apiserver/internal/cache/watchcache"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/storage"
)

// fixed is a store in which nothing changes.
type fixed []storage.KeyValue

func (f fixed) Load(_ context.Context, page func([]storage.KeyValue) error) (storage.Place, error) {
	return storage.Place{Revision: 1}, page(f)
}

func (fixed) Follow(ctx context.Context, _ storage.Place, _ func(storage.Batch) error) error {
	<-ctx.Done()
	return ctx.Err()
}

func (fixed) Progress(context.Context) error                        { return nil }
func (fixed) Confirm(context.Context, storage.Place) (int64, error) { return 1, nil }

// broken stands for a budget whose spec nobody can read.
const broken = "broken"

// storedBudgets has budgets of namespace ns, named a, b and so on in the order of their
// selectors: all are of so many bytes. Beside is one of another namespace.
func storedBudgets(t *testing.T, size int, selectors []string) *apiset.Resource {
	t.Helper()
	catalog, err := builtin.Everything(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	k := catalog.Resource(budgets)
	prefix := apiset.KeyPrefix("/registry", k)
	var store fixed
	put := func(namespace, name, selector string) {
		b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"large": strings.Repeat("x", size)}}}
		b.Spec.MinAvailable, b.Spec.UnhealthyPodEvictionPolicy = new(intstr.IntOrString), new(policyv1.UnhealthyPodEvictionPolicyType)
		*b.Spec.UnhealthyPodEvictionPolicy = policyv1.AlwaysAllow
		b.Status = policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 3, DesiredHealthy: 2, ExpectedPods: 4}
		switch selector {
		case "none":
		case "all":
			b.Spec.Selector = &metav1.LabelSelector{}
		default:
			b.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": selector}}
		}
		value, err := c.Of(k).EncodeStored(b)
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
	cache, err := watchcache.New(watchcache.Config{Source: store, Newest: store, Resources: []watchcache.Resource{{
		Name: k.GroupResource().String(), Prefix: prefix,
		Attributes: func(key string, _ []byte) (watchcache.Attributes, error) {
			namespace, name, _ := strings.Cut(strings.TrimPrefix(key, prefix), "/")
			return watchcache.Attributes{Namespace: namespace, Name: name}, nil
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
	return apiset.Builder{Codec: c, Cache: cache, Root: "/registry"}.Set(catalog, 0).Resource(budgets)
}

// TestBudgetsOfPods: which budget is a pod's, what looking for it weighs, and how far it goes. None
// is decoded behind what ends it: a broken one would be told of.
func TestBudgetsOfPods(t *testing.T) {
	const size = 100_000
	for name, tc := range map[string]struct {
		selectors []string
		// refused: the work may not begin; left: the client leaves when it may.
		refused, left bool
		want          string
	}{
		"one":                   {selectors: []string{"y", "x", "z"}, want: "b"},
		"one of all":            {selectors: []string{"none", "all"}, want: "b"},
		"none":                  {selectors: []string{"y", "none"}},
		"no budgets":            {},
		"two":                   {selectors: []string{"x", "all"}, want: "500 This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."},
		"two, others behind":    {selectors: []string{"x", "y", "x", broken}, want: "500 This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."},
		"one that is not read":  {selectors: []string{"x", broken}, want: `read disruption budget "b"`},
		"others are worked on":  {selectors: []string{broken, "x"}, refused: true, want: "429 Large disruption budgets would be looked at, and others are worked on"},
		"nobody waits any more": {selectors: []string{broken, "x"}, left: true, want: context.Canceled.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			kind := storedBudgets(t, size, tc.selectors)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			ctx = requestinfo.Carry(ctx, &requestinfo.Info{Verb: "create"})
			weighed := 0
			request.SetWeigh(ctx, func(n int) bool {
				weighed = n
				if tc.left {
					leave()
				}
				return !tc.refused
			})
			b, err := budgetOf(ctx, kind, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{"app": "x"}}})
			if got := toldOf(b, err); got != tc.want && (tc.want == "" || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			large := 0
			for _, s := range tc.selectors {
				if s != broken {
					large++
				}
			}
			if weighed < large*size || weighed >= (large+1)*size {
				t.Errorf("%d bytes are weighed of %d budgets of %d", weighed, large, size)
			}
		})
	}
}

// toldOf is the name of a budget, of which all has to be there that is asked for, or the error.
func toldOf(b *policyv1.PodDisruptionBudget, err error) string {
	switch {
	case err != nil && status.Of(err).Code == http.StatusTooManyRequests, err != nil && strings.HasPrefix(err.Error(), "This pod"):
		return fmt.Sprintf("%d %s", status.Of(err).Code, err)
	case err != nil:
		return err.Error()
	case b == nil:
		return ""
	case b.Status.CurrentHealthy != 3 || b.Status.DesiredHealthy != 2 || *b.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow:
		return fmt.Sprintf("%+v", b)
	}
	return b.Name
}
