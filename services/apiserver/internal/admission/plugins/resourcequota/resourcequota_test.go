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

// store holds the quotas of one namespace. seen may return older versions.
type store struct {
	mu          sync.Mutex
	quotas      map[string]*corev1.ResourceQuota
	staleQuotas []*corev1.ResourceQuota
	changes     int
	lookupError error // error of reading the quotas
	// beforeUpdate, if set, runs before each update of a quota.
	beforeUpdate func()
}

func (quotas *store) Each(ctx context.Context, _ string, visit func(*corev1.ResourceQuota) error) error {
	for _, q := range quotas.seen() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := visit(q); err != nil {
			return err
		}
	}
	return quotas.lookupError
}

func (quotas *store) seen() []*corev1.ResourceQuota {
	quotas.mu.Lock()
	defer quotas.mu.Unlock()
	if quotas.staleQuotas != nil {
		return quotas.staleQuotas
	}
	var all []*corev1.ResourceQuota
	for _, q := range quotas.quotas {
		all = append(all, q.DeepCopy())
	}
	return all
}

func (quotas *store) Change(_ context.Context, _, name string, change func(*corev1.ResourceQuota)) (int64, error) {
	if quotas.beforeUpdate != nil {
		quotas.beforeUpdate()
	}
	quotas.mu.Lock()
	defer quotas.mu.Unlock()
	q := quotas.quotas[name]
	if q == nil {
		return 0, apierrors.NewNotFound(schema.GroupResource{Resource: "resourcequotas"}, name)
	}
	change(q.DeepCopy()) // an attempt that fails with a conflict
	next := q.DeepCopy()
	change(next)
	quotas.changes++
	return quotas.put(next), nil
}

func (quotas *store) put(q *corev1.ResourceQuota) int64 {
	rev, _ := strconv.ParseInt(q.ResourceVersion, 10, 64)
	q.ResourceVersion = fmt.Sprint(rev + 1)
	quotas.quotas[q.Name] = q
	return rev + 1
}

func (quotas *store) used(t *testing.T, name string) string {
	t.Helper()
	quotas.mu.Lock()
	defer quotas.mu.Unlock()
	return show(quotas.quotas[name].Status.Used)
}

// show formats quantities as list parses them.
func show(l corev1.ResourceList) string {
	var parts []string
	for name, q := range l {
		parts = append(parts, string(name)+"="+q.String())
	}
	if len(parts) > 1 {
		slices.Sort(parts)
	}
	return strings.Join(parts, ",")
}

// amountsOf parses "a=1,b=2".
func amountsOf(text string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for pair := range strings.SplitSeq(text, ",") {
		if name, q, ok := strings.Cut(pair, "="); ok {
			l[corev1.ResourceName(name)] = resource.MustParse(q)
		}
	}
	return l
}

// quota returns a quota with limits and usage.
func quota(name, hard, used string, scopes ...corev1.ScopedResourceSelectorRequirement) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: "u", ResourceVersion: "1"},
		Status:     corev1.ResourceQuotaStatus{Hard: amountsOf(hard), Used: amountsOf(used)},
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

func plugin(t *testing.T, quotas *store, configuration string) *resourcequota.Plugin {
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

func kind(group, res string) *registry.Kind {
	return &registry.Kind{Names: registry.Names{Group: group, Version: "v1", Resource: res, Namespaced: true}}
}

func create(group, res string, obj runtime.Object) *admission.Request {
	return &admission.Request{Operation: admission.Create, Resource: kind(group, res), Namespace: "n", Name: "o", Object: obj}
}

func update(res, sub string, obj, old runtime.Object) *admission.Request {
	return &admission.Request{Operation: admission.Update, Resource: kind("", res), Subresource: sub, Namespace: "n", Name: "o", Object: obj, OldObject: old}
}

func pod(change func(*corev1.Pod), requests, limits string) *corev1.Pod {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "c", Resources: corev1.ResourceRequirements{Requests: amountsOf(requests), Limits: amountsOf(limits)},
	}}}}
	if change != nil {
		change(p)
	}
	return p
}

func configMap() runtime.Object { return &corev1.ConfigMap{} }

// rejectionOf claims and keeps the charge of a request. It returns the message of the error, or ""
// if the claim succeeds.
func rejectionOf(t *testing.T, plugin *resourcequota.Plugin, r *admission.Request) string {
	t.Helper()
	c, err := plugin.Reserve(t.Context(), r)
	if err != nil {
		return err.Error()
	}
	if c != nil {
		c.Commit(t.Context())
	}
	return ""
}

// TestQuotasLimitAndRecordUsage checks the rejections of quotas, and the usage that they record.
func TestQuotasLimitAndRecordUsage(t *testing.T) {
	service := func(kind corev1.ServiceType, ports int) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, Ports: make([]corev1.ServicePort, ports)}}
	}
	without := service(corev1.ServiceTypeLoadBalancer, 3)
	without.Spec.AllocateLoadBalancerNodePorts, without.Spec.Ports[0].NodePort = new(bool), 30000
	gold := "gold"
	claim := func(size string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &gold, Resources: corev1.VolumeResourceRequirements{Requests: amountsOf("storage=" + size)}}}
	}
	grown := claim("1Gi")
	grown.Status.AllocatedResources = amountsOf("storage=5Gi")
	for name, c := range map[string]struct {
		hard, used string
		request    *admission.Request
		want       string // message of the rejection
		after      string // usage after the request
	}{
		"a count": {hard: "count/configmaps=2", used: "count/configmaps=1",
			request: create("", "configmaps", configMap()), after: "count/configmaps=2"},
		"a count under its old name": {hard: "configmaps=2", used: "configmaps=1", request: create("", "configmaps", configMap()),
			after: "configmaps=2"},
		"a count of custom resources": {hard: "count/widgets.example.com=1", used: "count/widgets.example.com=1", request: create("example.com", "widgets", configMap()),
			want: `widgets.example.com "o" is forbidden: exceeded quota: q, requested: count/widgets.example.com=1, used: count/widgets.example.com=1, limited: count/widgets.example.com=1`, after: "count/widgets.example.com=1"},
		"updates are not counted": {hard: "count/configmaps=1", used: "count/configmaps=1",
			request: update("configmaps", "", configMap(), configMap()), after: "count/configmaps=1"},
		"usage unknown": {hard: "count/configmaps=1", request: create("", "configmaps", configMap()),
			want: `configmaps "o" is forbidden: status unknown for quota: q, resources: count/configmaps`},
		"pod without requests": {hard: "requests.cpu=1,limits.memory=1Gi", used: "requests.cpu=0,limits.memory=0", request: create("", "pods", pod(nil, "", "")),
			want: `pods "o" is forbidden: failed quota: q: must specify limits.memory for: c; requests.cpu for: c`, after: "limits.memory=0,requests.cpu=0"},
		"a pod": {hard: "pods=1,cpu=1,requests.memory=1Gi,limits.cpu=2,requests.ephemeral-storage=1Gi", used: "pods=0,cpu=0,requests.memory=0,limits.cpu=0,requests.ephemeral-storage=0",
			request: create("", "pods", pod(nil, "cpu=600m,memory=1Mi,ephemeral-storage=2Mi", "cpu=1")), after: "cpu=600m,limits.cpu=1,pods=1,requests.ephemeral-storage=2Mi,requests.memory=1Mi"},
		"only exceeded resources are named": {hard: "pods=2,requests.cpu=1,limits.memory=1Gi", used: "pods=1,requests.cpu=600m,limits.memory=512Mi", request: create("", "pods", pod(nil, "cpu=600m", "memory=2Gi")),
			want:  `pods "o" is forbidden: exceeded quota: q, requested: limits.memory=2Gi,requests.cpu=600m, used: limits.memory=512Mi,requests.cpu=600m, limited: limits.memory=1Gi,requests.cpu=1`,
			after: "limits.memory=512Mi,pods=1,requests.cpu=600m"},
		"extended resources and huge pages": {hard: "requests.example.com/gpu=3,hugepages-2Mi=4Mi,requests.hugepages-2Mi=4Mi", used: "requests.example.com/gpu=0,hugepages-2Mi=0,requests.hugepages-2Mi=0",
			request: create("", "pods", pod(nil, "example.com/gpu=2,hugepages-2Mi=4Mi", "example.com/gpu=2,hugepages-2Mi=4Mi")), after: "hugepages-2Mi=4Mi,requests.example.com/gpu=2,requests.hugepages-2Mi=4Mi"},
		"a finished pod counts only as an object": {hard: "pods=1,count/pods=1", used: "pods=0,count/pods=0",
			request: create("", "pods", pod(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "", "")),
			after:   "count/pods=1,pods=0"},
		"a pod is resized": {hard: "requests.cpu=1", used: "requests.cpu=500m",
			request: update("pods", "resize", pod(nil, "cpu=800m", ""), pod(nil, "cpu=500m", "")), after: "requests.cpu=800m"},
		"a pod is changed": {hard: "requests.cpu=1", used: "requests.cpu=500m",
			request: update("pods", "", pod(nil, "cpu=800m", ""), pod(nil, "cpu=500m", "")), after: "requests.cpu=500m"},
		"a load balancer": {hard: "services.loadbalancers=0,services=1", used: "services.loadbalancers=0,services=0", request: create("", "services", service(corev1.ServiceTypeLoadBalancer, 1)),
			want: `services "o" is forbidden: exceeded quota: q, requested: services.loadbalancers=1, used: services.loadbalancers=0, limited: services.loadbalancers=0`, after: "services.loadbalancers=0,services=0"},
		"node ports": {hard: "services.nodeports=3", used: "services.nodeports=0",
			request: create("", "services", service(corev1.ServiceTypeNodePort, 2)), after: "services.nodeports=2"},
		"node ports of a load balancer": {hard: "services.nodeports=3", used: "services.nodeports=0",
			request: create("", "services", service(corev1.ServiceTypeLoadBalancer, 3)), after: "services.nodeports=3"},
		"no node ports allocated": {hard: "services.nodeports=3", used: "services.nodeports=0",
			request: create("", "services", without), after: "services.nodeports=1"},
		"a service becomes a load balancer": {hard: "services.loadbalancers=1,services=1",
			used:    "services.loadbalancers=0,services=1",
			request: update("services", "", service(corev1.ServiceTypeLoadBalancer, 1), service(corev1.ServiceTypeClusterIP, 1)),
			after:   "services.loadbalancers=1,services=1"},
		"a service gives up its load balancer": {hard: "services.loadbalancers=1", used: "services.loadbalancers=1",
			request: update("services", "", service(corev1.ServiceTypeClusterIP, 1), service(corev1.ServiceTypeLoadBalancer, 1)),
			after:   "services.loadbalancers=1"},
		"storage, and that of a class": {hard: "requests.storage=5Gi,gold.storageclass.storage.k8s.io/requests.storage=2Gi,gold.storageclass.storage.k8s.io/persistentvolumeclaims=2",
			used:    "requests.storage=1Gi,gold.storageclass.storage.k8s.io/requests.storage=0,gold.storageclass.storage.k8s.io/persistentvolumeclaims=0",
			request: create("", "persistentvolumeclaims", claim("2Gi")),
			after:   "gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/requests.storage=2Gi,requests.storage=3Gi"},
		"a claim grows": {hard: "requests.storage=5Gi", used: "requests.storage=1Gi",
			request: update("persistentvolumeclaims", "", claim("3Gi"), claim("1Gi")), after: "requests.storage=3Gi"},
		"a claim was granted more than requested": {hard: "requests.storage=2Gi", used: "requests.storage=1Gi",
			request: update("persistentvolumeclaims", "status", grown, claim("1Gi")), after: "requests.storage=5Gi"},
		"subresources of other kinds are not counted": {hard: "count/serviceaccounts=0", used: "count/serviceaccounts=0", request: func() *admission.Request {
			r := create("", "serviceaccounts", configMap())
			r.Subresource = "token"
			return r
		}(), after: "count/serviceaccounts=0"},
		"events are not counted": {hard: "count/events=0", used: "count/events=0", request: create("", "events", &corev1.Event{}),
			after: "count/events=0"},
	} {
		t.Run(name, func(t *testing.T) {
			quotas := newStore(quota("q", c.hard, c.used))
			if got := rejectionOf(t, plugin(t, quotas, ""), c.request); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := quotas.used(t, "q"); got != show(amountsOf(c.after)) {
				t.Errorf("got usage %s, want %s", got, c.after)
			}
		})
	}
}

func TestScopesSelectPods(t *testing.T) {
	scope := func(name corev1.ResourceQuotaScope, op corev1.ScopeSelectorOperator, values ...string) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: op, Values: values}
	}
	var seconds int64 = 5
	class := pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" }, "", "")
	term := corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}}
	across := pod(func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: term}}}}
	}, "", "")
	for name, c := range map[string]struct {
		scope corev1.ScopedResourceSelectorRequirement
		pod   *corev1.Pod
		in    bool
	}{
		"best effort":     {scope: scope("BestEffort", "Exists"), pod: pod(nil, "", ""), in: true},
		"not best effort": {scope: scope("BestEffort", "Exists"), pod: pod(nil, "cpu=1", "")},
		"burstable":       {scope: scope("NotBestEffort", "Exists"), pod: pod(nil, "cpu=1", ""), in: true},
		"terminating": {scope: scope("Terminating", "Exists"),
			pod: pod(func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &seconds }, "", ""), in: true},
		"not terminating":              {scope: scope("NotTerminating", "Exists"), pod: pod(nil, "", ""), in: true},
		"a class":                      {scope: scope("PriorityClass", "In", "low", "high"), pod: class, in: true},
		"another class":                {scope: scope("PriorityClass", "In", "low"), pod: class},
		"not in a class":               {scope: scope("PriorityClass", "NotIn", "low"), pod: class, in: true},
		"no class":                     {scope: scope("PriorityClass", "DoesNotExist"), pod: class},
		"any class":                    {scope: scope("PriorityClass", "Exists"), pod: class, in: true},
		"no class is none of a list":   {scope: scope("PriorityClass", "NotIn", "low"), pod: pod(nil, "", ""), in: true},
		"across namespaces":            {scope: scope("CrossNamespacePodAffinity", "Exists"), pod: across, in: true},
		"within its namespace":         {scope: scope("CrossNamespacePodAffinity", "Exists"), pod: class},
		"a scope that pods are not in": {scope: scope("VolumeAttributesClass", "Exists"), pod: class},
	} {
		t.Run(name, func(t *testing.T) {
			quotas := newStore(quota("q", "pods=0", "pods=0", c.scope))
			if rejected := rejectionOf(t, plugin(t, quotas, ""), create("", "pods", c.pod)) != ""; rejected != c.in {
				t.Errorf("got rejection: %t, want %v", rejected, c.in)
			}
		})
	}
}

func TestLimitedResourcesNeedAQuota(t *testing.T) {
	critical := pod(func(p *corev1.Pod) { p.Spec.PriorityClassName = "critical" }, "", "")
	byClass := "limitedResources: [{resource: pods, matchScopes: [{scopeName: PriorityClass, operator: In, values: [critical]}]}]"
	inClass := corev1.ScopedResourceSelectorRequirement{ScopeName: "PriorityClass", Operator: "In", Values: []string{"critical"}}
	gold := "gold"
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &gold}}
	byName := "limitedResources: [{resource: persistentvolumeclaims, matchContains: [.storageclass.storage.k8s.io/]}]"
	for name, c := range map[string]struct {
		configuration string
		quota         *corev1.ResourceQuota
		request       *admission.Request
		want          string
	}{
		"a class without a quota": {configuration: byClass, request: create("", "pods", critical),
			want: "insufficient quota to match these scopes: [{PriorityClass In [critical]}]"},
		"a class with a quota": {configuration: byClass, quota: quota("q", "pods=1", "pods=0", inClass),
			request: create("", "pods", critical)},
		"another class": {configuration: byClass, request: create("", "pods", pod(nil, "", ""))},
		"a storage class without a quota": {configuration: byName, quota: quota("q", "requests.storage=1Gi", "requests.storage=0"),
			request: create("", "persistentvolumeclaims", claim),
			want:    `persistentvolumeclaims "o" is forbidden: insufficient quota to consume: gold.storageclass.storage.k8s.io/persistentvolumeclaims`},
		"a storage class with a quota": {configuration: byName,
			quota:   quota("q", "gold.storageclass.storage.k8s.io/persistentvolumeclaims=1", "gold.storageclass.storage.k8s.io/persistentvolumeclaims=0"),
			request: create("", "persistentvolumeclaims", claim)},
		"a claim that stays as it is": {configuration: byName, request: update("persistentvolumeclaims", "", claim, claim)},
	} {
		t.Run(name, func(t *testing.T) {
			quotas := newStore()
			if c.quota != nil {
				quotas = newStore(c.quota)
			}
			if got := rejectionOf(t, plugin(t, quotas, c.configuration), c.request); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestConfigurationIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: apiserver.config.k8s.io/v1\nkind: Other\n":                                                         `no kind "Other" is registered`,
		"apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration\nlimited: []\n":                       `strict decoding error: unknown field "limited"`,
		"apiVersion: resourcequota.admission.k8s.io/v1beta1\nkind: Configuration\nlimitedResources: [{apiGroup: apps}]": "limitedResources[0].resource: Required value",
	} {
		if _, err := resourcequota.Load([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one that contains %q", text, err, want)
		}
	}
}

func TestDryRunsAreNotCharged(t *testing.T) {
	quotas := newStore(quota("q", "count/configmaps=1", "count/configmaps=0"))
	p := plugin(t, quotas, "")
	r := create("", "configmaps", configMap())
	r.DryRun = true
	for range 3 {
		if got := rejectionOf(t, p, r); got != "" {
			t.Fatal(got)
		}
	}
	if got := quotas.used(t, "q"); got != "count/configmaps=0" {
		t.Errorf("got usage %s, want \"count/configmaps=0\"", got)
	}
	if got := rejectionOf(t, p, create("", "configmaps", configMap())); got != "" {
		t.Fatal(got)
	}
	if got := rejectionOf(t, p, r); !strings.Contains(got, "exceeded quota: q") {
		t.Errorf("got rejection %q, want it to contain %q", got, "exceeded quota: q")
	}
}

func TestFailedWritesAreReleased(t *testing.T) {
	quotas := newStore(quota("a", "count/configmaps=5", "count/configmaps=1"), quota("b", "configmaps=5", "configmaps=1"))
	p := plugin(t, quotas, "")
	c, err := p.Reserve(t.Context(), create("", "configmaps", configMap()))
	if err != nil {
		t.Fatal(err)
	}
	if a, b := quotas.used(t, "a"), quotas.used(t, "b"); a != "count/configmaps=2" || b != "configmaps=2" {
		t.Fatalf("got usage %s and %s; want \"count/configmaps=2\", \"configmaps=2\"", a, b)
	}
	c.Rollback(t.Context())
	if a, b := quotas.used(t, "a"), quotas.used(t, "b"); a != "count/configmaps=1" || b != "configmaps=1" {
		t.Errorf("got usage %s and %s; want \"count/configmaps=1\", \"configmaps=1\"", a, b)
	}
}

// TestAllQuotasOrNone checks that if one quota rejects, earlier charges of other quotas are
// released.
func TestAllQuotasOrNone(t *testing.T) {
	quotas := newStore(quota("a", "count/configmaps=5", "count/configmaps=1"), quota("b", "configmaps=1", "configmaps=1"))
	p := plugin(t, quotas, "")
	if got := rejectionOf(t, p, create("", "configmaps", configMap())); !strings.Contains(got, "exceeded quota: b") {
		t.Fatalf("got rejection %q, want it to contain %q", got, "exceeded quota: b")
	}
	// The release is queued before the next charge.
	if got := rejectionOf(t, p, create("", "configmaps", configMap())); !strings.Contains(got, "exceeded quota: b") {
		t.Fatalf("got rejection %q, want it to contain %q", got, "exceeded quota: b")
	}
	deadline := time.Now().Add(10 * time.Second)
	for quotas.used(t, "a") != "count/configmaps=1" {
		if time.Now().After(deadline) {
			t.Fatalf("got usage %s of quota a, want another before the deadline", quotas.used(t, "a"))
		}
		time.Sleep(time.Millisecond) // between polls
	}
}

// TestRecountAfterChargeIsNotReleased checks that if a controller recounted after the charge, the
// object that was not written is not part of its count.
func TestRecountAfterChargeIsNotReleased(t *testing.T) {
	owned := func(at time.Time, fields string) metav1.ManagedFieldsEntry {
		stamp := metav1.NewTime(at)
		return metav1.ManagedFieldsEntry{Manager: "controller", Operation: "Update", Subresource: "status", Time: &stamp, FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}
	}
	at := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		after metav1.ManagedFieldsEntry
		used  string
	}{
		"another request was charged": {after: owned(at, `{"f:status":{"f:hard":{"f:count/configmaps":{}}}}`), used: "count/configmaps=2"},
		"counted later":               {after: owned(at.Add(time.Second), `{"f:status":{"f:hard":{}}}`), used: "count/configmaps=3"},
		"counted within the second":   {after: owned(at, `{"f:status":{"f:used":{"f:count/configmaps":{}}}}`), used: "count/configmaps=3"},
		"unreadable ownership":        {after: owned(at, `{`), used: "count/configmaps=3"},
	} {
		t.Run(name, func(t *testing.T) {
			q := quota("q", "count/configmaps=5", "count/configmaps=2")
			q.ManagedFields = []metav1.ManagedFieldsEntry{owned(at, `{"f:status":{"f:hard":{}}}`)}
			quotas := newStore(q)
			claim, err := plugin(t, quotas, "").Reserve(t.Context(), create("", "configmaps", configMap()))
			if err != nil {
				t.Fatal(err)
			}
			quotas.mu.Lock() // another writer holds the store
			next := quotas.quotas["q"].DeepCopy()
			next.ManagedFields = []metav1.ManagedFieldsEntry{c.after}
			quotas.put(next)
			quotas.mu.Unlock()
			claim.Rollback(t.Context())
			if got := quotas.used(t, "q"); got != c.used {
				t.Errorf("got usage %s, want %s", got, c.used)
			}
		})
	}
}
