package resourcequota_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	usage "binnacle/libs/quota"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/resourcequota"
	"binnacle/services/apiserver/internal/registry"
)

// store holds the quotas of one namespace.
type store struct {
	mu     sync.Mutex
	quotas map[string]*corev1.ResourceQuota // by name
	// staleQuotas, if not nil, holds the quotas that Each visits instead of the stored ones, as if it
	// read a stale cache.
	staleQuotas []*corev1.ResourceQuota
	changes     int   // number of updates
	lookupError error // error that Each returns at the end
	// beforeUpdate, if set, runs before each update of a quota.
	beforeUpdate func()
}

func (s *store) Each(ctx context.Context, _ string, visit func(*corev1.ResourceQuota) error) error {
	for _, quota := range s.visible() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(quota); err != nil {
			return err
		}
	}
	return s.lookupError
}

// visible returns the quotas as Each visits them.
func (s *store) visible() []*corev1.ResourceQuota {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.staleQuotas != nil {
		return s.staleQuotas
	}
	var all []*corev1.ResourceQuota
	for _, q := range s.quotas {
		all = append(all, q.DeepCopy())
	}
	return all
}

func (s *store) Change(_ context.Context, _, name string, change func(*corev1.ResourceQuota)) (int64, error) {
	if s.beforeUpdate != nil {
		s.beforeUpdate()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	quota := s.quotas[name]
	if quota == nil {
		return 0, apierrors.NewNotFound(schema.GroupResource{Resource: "resourcequotas"}, name)
	}
	change(quota.DeepCopy()) // an attempt that fails with a conflict
	next := quota.DeepCopy()
	change(next)
	s.changes++
	return s.put(next), nil
}

// put stores a quota with the next resource version, and returns that version. The caller holds mu.
func (s *store) put(q *corev1.ResourceQuota) int64 {
	rev, _ := strconv.ParseInt(q.ResourceVersion, 10, 64)
	q.ResourceVersion = fmt.Sprint(rev + 1)
	s.quotas[q.Name] = q
	return rev + 1
}

// used returns the recorded usage of a quota, as formatAmounts formats it.
func (s *store) used(t *testing.T, name string) string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	return formatAmounts(s.quotas[name].Status.Used)
}

// formatAmounts formats amounts, sorted by name: "a=1,b=2".
func formatAmounts(l corev1.ResourceList) string {
	var parts []string
	for name, q := range l {
		parts = append(parts, string(name)+"="+q.String())
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// parseAmounts parses "a=1,b=2".
func parseAmounts(text string) corev1.ResourceList {
	resources := corev1.ResourceList{}
	for pair := range strings.SplitSeq(text, ",") {
		if name, q, ok := strings.Cut(pair, "="); ok {
			resources[corev1.ResourceName(name)] = resource.MustParse(q)
		}
	}
	return resources
}

// quota returns a quota with limits and usage, which are texts that parseAmounts parses.
func quota(name, hard, used string, scopes ...corev1.ScopedResourceSelectorRequirement) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: "u", ResourceVersion: "1"},
		Status:     corev1.ResourceQuotaStatus{Hard: parseAmounts(hard), Used: parseAmounts(used)},
	}
	if scopes != nil {
		q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: scopes}
	}
	return q
}

func newStore(quotas ...*corev1.ResourceQuota) *store {
	s := &store{quotas: map[string]*corev1.ResourceQuota{}}
	for _, q := range quotas {
		s.quotas[q.Name] = q
	}
	return s
}

// newPlugin returns a plugin for the quotas of a store. configuration holds the fields of a
// ResourceQuotaConfiguration in YAML.
func newPlugin(t *testing.T, quotas *store, configuration string) *resourcequota.Plugin {
	t.Helper()
	var data []byte
	if configuration != "" {
		data = []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration\n" + configuration)
	}
	c, err := resourcequota.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	return resourcequota.New(resourcequota.Config{
		Quotas: quotas, Configuration: c, Now: time.Now,
		Gates: usage.Gates{InPlaceResize: true, PodLevel: true, Devices: true, AttributesClasses: true},
	})
}

// kind returns a namespaced kind of version v1.
func kind(group, res string) *registry.Kind {
	return &registry.Kind{Names: registry.Names{Group: group, Version: "v1", Resource: res, Namespaced: true}}
}

// create returns a request that creates an object named "o".
func create(group, resource string, obj runtime.Object) *admission.Request {
	return &admission.Request{
		Operation: admission.Create, Resource: kind(group, resource), Namespace: "n", Name: "o", Object: obj,
	}
}

func createConfigMap() *admission.Request { return create("", "configmaps", &corev1.ConfigMap{}) }

// update returns a request that updates an object of the core group, or a subresource if it is not
// empty.
func update(resource, subresource string, obj, old runtime.Object) *admission.Request {
	return &admission.Request{
		Operation: admission.Update, Resource: kind("", resource), Subresource: subresource, Namespace: "n", Name: "o",
		Object: obj, OldObject: old,
	}
}

// pod returns a pod with one container. requests and limits are texts that parseAmounts parses.
func pod(requests, limits string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: parseAmounts(requests), Limits: parseAmounts(limits)},
	}}}}
	for _, change := range changes {
		change(p)
	}
	return p
}

// charge reserves quota for a request and commits the reservation, as after a successful write. It
// returns the message of the rejection, or "" if the quotas allow the request.
func charge(t *testing.T, plugin *resourcequota.Plugin, r *admission.Request) (rejection string) {
	t.Helper()
	reservation, err := plugin.Reserve(t.Context(), r)
	if err != nil {
		return err.Error()
	}
	if reservation != nil {
		reservation.Commit(t.Context())
	}
	return ""
}
