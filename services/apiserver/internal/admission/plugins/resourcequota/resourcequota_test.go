package resourcequota_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/plugins/resourcequota"
)

// TestQuotasLimitAndRecordUsage checks which requests a quota rejects, and the usage that it records.
func TestQuotasLimitAndRecordUsage(t *testing.T) {
	service := func(kind corev1.ServiceType, ports int) *corev1.Service {
		return &corev1.Service{Spec: corev1.ServiceSpec{Type: kind, Ports: make([]corev1.ServicePort, ports)}}
	}
	explicitNodePort := service(corev1.ServiceTypeLoadBalancer, 3)
	explicitNodePort.Spec.AllocateLoadBalancerNodePorts, explicitNodePort.Spec.Ports[0].NodePort = new(bool), 30000
	gold := "gold"
	claim := func(size string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &gold, Resources: corev1.VolumeResourceRequirements{Requests: parseAmounts("storage=" + size)},
		}}
	}
	overAllocated := claim("1Gi")
	overAllocated.Status.AllocatedResources = parseAmounts("storage=5Gi")
	createToken := create("", "serviceaccounts", &corev1.ServiceAccount{})
	createToken.Subresource = "token"
	for name, test := range map[string]struct {
		hard, used string // limits and usage of the quota before the request
		request    *admission.Request
		want       string // message of the rejection, or ""
		wantUsage  string // after the request
	}{
		"object count": {
			hard:      "count/configmaps=2",
			used:      "count/configmaps=1",
			request:   createConfigMap(),
			wantUsage: "count/configmaps=2",
		},
		"object count under its former name": {
			hard:      "configmaps=2",
			used:      "configmaps=1",
			request:   createConfigMap(),
			wantUsage: "configmaps=2",
		},
		"count of custom resources is exceeded": {
			hard:    "count/widgets.example.com=1",
			used:    "count/widgets.example.com=1",
			request: create("example.com", "widgets", &corev1.ConfigMap{}),
			want: `widgets.example.com "o" is forbidden: exceeded quota: q, requested: count/widgets.example.com=1, ` +
				`used: count/widgets.example.com=1, limited: count/widgets.example.com=1`,
			wantUsage: "count/widgets.example.com=1",
		},
		"updates are not counted": {
			hard:      "count/configmaps=1",
			used:      "count/configmaps=1",
			request:   update("configmaps", "", &corev1.ConfigMap{}, &corev1.ConfigMap{}),
			wantUsage: "count/configmaps=1",
		},
		"usage is not known yet": {
			hard:    "count/configmaps=1",
			request: createConfigMap(),
			want:    `configmaps "o" is forbidden: status unknown for quota: q, resources: count/configmaps`,
		},
		"pod without the limited requests": {
			hard:      "requests.cpu=1,limits.memory=1Gi",
			used:      "requests.cpu=0,limits.memory=0",
			request:   create("", "pods", pod("", "")),
			want:      `pods "o" is forbidden: failed quota: q: must specify limits.memory for: c; requests.cpu for: c`,
			wantUsage: "limits.memory=0,requests.cpu=0",
		},
		"pod with requests and limits": {
			hard:      "pods=1,cpu=1,requests.memory=1Gi,limits.cpu=2,requests.ephemeral-storage=1Gi",
			used:      "pods=0,cpu=0,requests.memory=0,limits.cpu=0,requests.ephemeral-storage=0",
			request:   create("", "pods", pod("cpu=600m,memory=1Mi,ephemeral-storage=2Mi", "cpu=1")),
			wantUsage: "cpu=600m,limits.cpu=1,pods=1,requests.ephemeral-storage=2Mi,requests.memory=1Mi",
		},
		"only exceeded resources are named": {
			hard:    "pods=2,requests.cpu=1,limits.memory=1Gi",
			used:    "pods=1,requests.cpu=600m,limits.memory=512Mi",
			request: create("", "pods", pod("cpu=600m", "memory=2Gi")),
			want: `pods "o" is forbidden: exceeded quota: q, requested: limits.memory=2Gi,requests.cpu=600m, ` +
				`used: limits.memory=512Mi,requests.cpu=600m, limited: limits.memory=1Gi,requests.cpu=1`,
			wantUsage: "limits.memory=512Mi,pods=1,requests.cpu=600m",
		},
		"extended resources and huge pages": {
			hard:      "requests.example.com/gpu=3,hugepages-2Mi=4Mi,requests.hugepages-2Mi=4Mi",
			used:      "requests.example.com/gpu=0,hugepages-2Mi=0,requests.hugepages-2Mi=0",
			request:   create("", "pods", pod("example.com/gpu=2,hugepages-2Mi=4Mi", "example.com/gpu=2,hugepages-2Mi=4Mi")),
			wantUsage: "hugepages-2Mi=4Mi,requests.example.com/gpu=2,requests.hugepages-2Mi=4Mi",
		},
		"finished pod counts only as an object": {
			hard:      "pods=1,count/pods=1",
			used:      "pods=0,count/pods=0",
			request:   create("", "pods", pod("", "", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })),
			wantUsage: "count/pods=1,pods=0",
		},
		"pod is resized": {
			hard:      "requests.cpu=1",
			used:      "requests.cpu=500m",
			request:   update("pods", "resize", pod("cpu=800m", ""), pod("cpu=500m", "")),
			wantUsage: "requests.cpu=800m",
		},
		"pod is updated without the subresource resize": {
			hard:      "requests.cpu=1",
			used:      "requests.cpu=500m",
			request:   update("pods", "", pod("cpu=800m", ""), pod("cpu=500m", "")),
			wantUsage: "requests.cpu=500m",
		},
		"count of load balancers is exceeded": {
			hard:    "services.loadbalancers=0,services=1",
			used:    "services.loadbalancers=0,services=0",
			request: create("", "services", service(corev1.ServiceTypeLoadBalancer, 1)),
			want: `services "o" is forbidden: exceeded quota: q, requested: services.loadbalancers=1, ` +
				`used: services.loadbalancers=0, limited: services.loadbalancers=0`,
			wantUsage: "services.loadbalancers=0,services=0",
		},
		"service with node ports": {
			hard:      "services.nodeports=3",
			used:      "services.nodeports=0",
			request:   create("", "services", service(corev1.ServiceTypeNodePort, 2)),
			wantUsage: "services.nodeports=2",
		},
		"load balancer has node ports": {
			hard:      "services.nodeports=3",
			used:      "services.nodeports=0",
			request:   create("", "services", service(corev1.ServiceTypeLoadBalancer, 3)),
			wantUsage: "services.nodeports=3",
		},
		"load balancer with one explicit node port": {
			hard:      "services.nodeports=3",
			used:      "services.nodeports=0",
			request:   create("", "services", explicitNodePort),
			wantUsage: "services.nodeports=1",
		},
		"service becomes a load balancer": {
			hard:      "services.loadbalancers=1,services=1",
			used:      "services.loadbalancers=0,services=1",
			request:   update("services", "", service(corev1.ServiceTypeLoadBalancer, 1), service(corev1.ServiceTypeClusterIP, 1)),
			wantUsage: "services.loadbalancers=1,services=1",
		},
		"service is no longer a load balancer": {
			hard:      "services.loadbalancers=1",
			used:      "services.loadbalancers=1",
			request:   update("services", "", service(corev1.ServiceTypeClusterIP, 1), service(corev1.ServiceTypeLoadBalancer, 1)),
			wantUsage: "services.loadbalancers=1",
		},
		"claim counts in total and in its storage class": {
			hard: "requests.storage=5Gi," +
				"gold.storageclass.storage.k8s.io/requests.storage=2Gi,gold.storageclass.storage.k8s.io/persistentvolumeclaims=2",
			used: "requests.storage=1Gi," +
				"gold.storageclass.storage.k8s.io/requests.storage=0,gold.storageclass.storage.k8s.io/persistentvolumeclaims=0",
			request: create("", "persistentvolumeclaims", claim("2Gi")),
			wantUsage: "gold.storageclass.storage.k8s.io/persistentvolumeclaims=1," +
				"gold.storageclass.storage.k8s.io/requests.storage=2Gi,requests.storage=3Gi",
		},
		"claim grows": {
			hard:      "requests.storage=5Gi",
			used:      "requests.storage=1Gi",
			request:   update("persistentvolumeclaims", "", claim("3Gi"), claim("1Gi")),
			wantUsage: "requests.storage=3Gi",
		},
		"claim was allocated more than requested": {
			hard:      "requests.storage=2Gi",
			used:      "requests.storage=1Gi",
			request:   update("persistentvolumeclaims", "status", overAllocated, claim("1Gi")),
			wantUsage: "requests.storage=5Gi",
		},
		"subresources of other kinds are not counted": {
			hard:      "count/serviceaccounts=0",
			used:      "count/serviceaccounts=0",
			request:   createToken,
			wantUsage: "count/serviceaccounts=0",
		},
		"events are not counted": {
			hard:      "count/events=0",
			used:      "count/events=0",
			request:   create("", "events", &corev1.Event{}),
			wantUsage: "count/events=0",
		},
	} {
		t.Run(name, func(t *testing.T) {
			quotas := newStore(quota("q", test.hard, test.used))
			if got := charge(t, newPlugin(t, quotas, ""), test.request); got != test.want {
				t.Errorf("got rejection %q, want %q (empty: none)", got, test.want)
			}
			if got := quotas.used(t, "q"); got != formatAmounts(parseAmounts(test.wantUsage)) {
				t.Errorf("got usage %s, want %s", got, test.wantUsage)
			}
		})
	}
}

// TestScopesSelectPods checks that a quota for no pods rejects the pods in its scope, and only these.
func TestScopesSelectPods(t *testing.T) {
	scope := func(name corev1.ResourceQuotaScope, op corev1.ScopeSelectorOperator, values ...string) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: op, Values: values}
	}
	var seconds int64 = 5
	highPriority := pod("", "", func(p *corev1.Pod) { p.Spec.PriorityClassName = "high" })
	term := corev1.PodAffinityTerm{NamespaceSelector: &metav1.LabelSelector{}}
	crossNamespace := pod("", "", func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{PodAffinityTerm: term}},
		}}
	})
	for name, test := range map[string]struct {
		scope       corev1.ScopedResourceSelectorRequirement
		pod         *corev1.Pod
		wantInScope bool // the pod is in the scope
	}{
		"best-effort pod, scope BestEffort":  {scope: scope("BestEffort", "Exists"), pod: pod("", ""), wantInScope: true},
		"burstable pod, scope BestEffort":    {scope: scope("BestEffort", "Exists"), pod: pod("cpu=1", "")},
		"burstable pod, scope NotBestEffort": {scope: scope("NotBestEffort", "Exists"), pod: pod("cpu=1", ""), wantInScope: true},
		"pod with a deadline, scope Terminating": {scope: scope("Terminating", "Exists"),
			pod: pod("", "", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &seconds }), wantInScope: true},
		"pod without a deadline, scope NotTerminating": {scope: scope("NotTerminating", "Exists"), pod: pod("", ""), wantInScope: true},
		"pod of a listed class":                        {scope: scope("PriorityClass", "In", "low", "high"), pod: highPriority, wantInScope: true},
		"pod of a class that is not listed":            {scope: scope("PriorityClass", "In", "low"), pod: highPriority},
		"pod of a class outside NotIn":                 {scope: scope("PriorityClass", "NotIn", "low"), pod: highPriority, wantInScope: true},
		"pod of a class, DoesNotExist":                 {scope: scope("PriorityClass", "DoesNotExist"), pod: highPriority},
		"pod of any class, Exists":                     {scope: scope("PriorityClass", "Exists"), pod: highPriority, wantInScope: true},
		"pod without a class, NotIn":                   {scope: scope("PriorityClass", "NotIn", "low"), pod: pod("", ""), wantInScope: true},
		"pod with an affinity across namespaces":       {scope: scope("CrossNamespacePodAffinity", "Exists"), pod: crossNamespace, wantInScope: true},
		"pod without an affinity across namespaces":    {scope: scope("CrossNamespacePodAffinity", "Exists"), pod: highPriority},
		"scope that does not concern pods":             {scope: scope("VolumeAttributesClass", "Exists"), pod: highPriority},
	} {
		t.Run(name, func(t *testing.T) {
			quotas := newStore(quota("q", "pods=0", "pods=0", test.scope))
			if rejected := charge(t, newPlugin(t, quotas, ""), create("", "pods", test.pod)) != ""; rejected != test.wantInScope {
				t.Errorf("scope %v: rejected: %t, want %t", test.scope, rejected, test.wantInScope)
			}
		})
	}
}

// TestLimitedResourcesNeedAQuota checks that resources and scopes that the configuration limits are
// rejected without a quota that covers them.
func TestLimitedResourcesNeedAQuota(t *testing.T) {
	critical := pod("", "", func(p *corev1.Pod) { p.Spec.PriorityClassName = "critical" })
	byClass := "limitedResources: [{resource: pods, matchScopes: [{scopeName: PriorityClass, operator: In, values: [critical]}]}]"
	inClass := corev1.ScopedResourceSelectorRequirement{ScopeName: "PriorityClass", Operator: "In", Values: []string{"critical"}}
	gold := "gold"
	claim := &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: &gold}}
	byName := "limitedResources: [{resource: persistentvolumeclaims, matchContains: [.storageclass.storage.k8s.io/]}]"
	for name, test := range map[string]struct {
		configuration string
		quota         *corev1.ResourceQuota
		request       *admission.Request
		want          string // message of the rejection, or ""
	}{
		"priority class without a quota": {configuration: byClass, request: create("", "pods", critical),
			want: "insufficient quota to match these scopes: [{PriorityClass In [critical]}]"},
		"priority class with a quota": {configuration: byClass, quota: quota("q", "pods=1", "pods=0", inClass),
			request: create("", "pods", critical)},
		"pod without the limited class": {configuration: byClass, request: create("", "pods", pod("", ""))},
		"storage class without a quota": {configuration: byName, quota: quota("q", "requests.storage=1Gi", "requests.storage=0"),
			request: create("", "persistentvolumeclaims", claim),
			want:    `persistentvolumeclaims "o" is forbidden: insufficient quota to consume: gold.storageclass.storage.k8s.io/persistentvolumeclaims`},
		"storage class with a quota": {configuration: byName,
			quota:   quota("q", "gold.storageclass.storage.k8s.io/persistentvolumeclaims=1", "gold.storageclass.storage.k8s.io/persistentvolumeclaims=0"),
			request: create("", "persistentvolumeclaims", claim)},
		"update that changes no usage": {configuration: byName, request: update("persistentvolumeclaims", "", claim, claim)},
	} {
		t.Run(name, func(t *testing.T) {
			quotas := newStore()
			if test.quota != nil {
				quotas = newStore(test.quota)
			}
			if got := charge(t, newPlugin(t, quotas, test.configuration), test.request); got != test.want {
				t.Errorf("got rejection %q, want %q (empty: none)", got, test.want)
			}
		})
	}
}

// TestConfigurationIsStrict checks that Load rejects invalid configurations and names the cause.
func TestConfigurationIsStrict(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: apiserver.config.k8s.io/v1\nkind: Other\n":                                                         `no kind "Other" is registered`,
		"apiVersion: apiserver.config.k8s.io/v1\nkind: ResourceQuotaConfiguration\nlimited: []\n":                       `strict decoding error: unknown field "limited"`,
		"apiVersion: resourcequota.admission.k8s.io/v1beta1\nkind: Configuration\nlimitedResources: [{apiGroup: apps}]": "limitedResources[0].resource: Required value",
	} {
		if _, err := resourcequota.Load([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%q): got error %v, want one that contains %q", text, err, want)
		}
	}
}

// TestDryRunsAreNotCharged checks that a quota rejects a dry run like another request, but does not
// record its usage.
func TestDryRunsAreNotCharged(t *testing.T) {
	quotas := newStore(quota("q", "count/configmaps=1", "count/configmaps=0"))
	plugin := newPlugin(t, quotas, "")
	dryRun := createConfigMap()
	dryRun.DryRun = true
	for i := range 3 {
		if rejection := charge(t, plugin, dryRun); rejection != "" {
			t.Fatalf("dry run %d: got rejection %q, want none", i, rejection)
		}
	}
	if got, want := quotas.used(t, "q"), "count/configmaps=0"; got != want {
		t.Errorf("after dry runs: got usage %s, want %s", got, want)
	}
	if rejection := charge(t, plugin, createConfigMap()); rejection != "" {
		t.Fatalf("create: got rejection %q, want none", rejection)
	}
	if got, want := charge(t, plugin, dryRun), "exceeded quota: q"; !strings.Contains(got, want) {
		t.Errorf("dry run with an exhausted quota: got rejection %q, want it to contain %q", got, want)
	}
}

// TestRollbackReleasesCharges checks that a failed write, which rolls its reservation back, counts in
// no quota.
func TestRollbackReleasesCharges(t *testing.T) {
	quotas := newStore(quota("a", "count/configmaps=5", "count/configmaps=1"), quota("b", "configmaps=5", "configmaps=1"))
	plugin := newPlugin(t, quotas, "")
	requireUsage := func(when, wantA, wantB string) {
		t.Helper()
		if a, b := quotas.used(t, "a"), quotas.used(t, "b"); a != wantA || b != wantB {
			t.Fatalf("%s: got usage %s and %s, want %s and %s", when, a, b, wantA, wantB)
		}
	}
	reservation, err := plugin.Reserve(t.Context(), createConfigMap())
	if err != nil {
		t.Fatal(err)
	}
	requireUsage("after Reserve", "count/configmaps=2", "configmaps=2")
	reservation.Rollback(t.Context())
	requireUsage("after Rollback", "count/configmaps=1", "configmaps=1")
}

// TestRejectionReleasesOtherQuotas checks that if one quota rejects a request, the charges of other
// quotas are released.
func TestRejectionReleasesOtherQuotas(t *testing.T) {
	quotas := newStore(quota("a", "count/configmaps=5", "count/configmaps=1"), quota("b", "configmaps=1", "configmaps=1"))
	p := newPlugin(t, quotas, "")
	// The release of the first request is queued before the charge of the second one.
	for range 2 {
		if got, want := charge(t, p, createConfigMap()), "exceeded quota: b"; !strings.Contains(got, want) {
			t.Fatalf("got rejection %q, want it to contain %q", got, want)
		}
	}
	const want = "count/configmaps=1"
	deadline := time.Now().Add(10 * time.Second)
	for quotas.used(t, "a") != want {
		if time.Now().After(deadline) {
			t.Fatalf("10s after the rejection, quota a has the usage %s, want %s", quotas.used(t, "a"), want)
		}
		time.Sleep(time.Millisecond) // between polls
	}
}

// TestRecountAfterChargeIsNotReleased checks that Rollback does not lower a usage that a controller
// counted after the charge, because that count does not include the object that was not written. The
// managed fields of the quota show when it was counted.
func TestRecountAfterChargeIsNotReleased(t *testing.T) {
	statusWrite := func(at time.Time, fields string) metav1.ManagedFieldsEntry {
		stamp := metav1.NewTime(at)
		return metav1.ManagedFieldsEntry{
			Manager: "controller", Operation: "Update", Subresource: "status", Time: &stamp,
			FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)},
		}
	}
	start := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		after     metav1.ManagedFieldsEntry // of the quota after the charge
		wantUsage string                    // after Rollback
	}{
		"another request was charged": {
			after: statusWrite(start, `{"f:status":{"f:hard":{"f:count/configmaps":{}}}}`), wantUsage: "count/configmaps=2",
		},
		"counted later": {
			after: statusWrite(start.Add(time.Second), `{"f:status":{"f:hard":{}}}`), wantUsage: "count/configmaps=3",
		},
		"counted within the same second": {
			after: statusWrite(start, `{"f:status":{"f:used":{"f:count/configmaps":{}}}}`), wantUsage: "count/configmaps=3",
		},
		"unreadable managed fields": {after: statusWrite(start, `{`), wantUsage: "count/configmaps=3"},
	} {
		t.Run(name, func(t *testing.T) {
			q := quota("q", "count/configmaps=5", "count/configmaps=2")
			q.ManagedFields = []metav1.ManagedFieldsEntry{statusWrite(start, `{"f:status":{"f:hard":{}}}`)}
			quotas := newStore(q)
			reservation, err := newPlugin(t, quotas, "").Reserve(t.Context(), createConfigMap())
			if err != nil {
				t.Fatal(err)
			}
			quotas.mu.Lock() // another writer
			written := quotas.quotas["q"].DeepCopy()
			written.ManagedFields = []metav1.ManagedFieldsEntry{test.after}
			quotas.put(written)
			quotas.mu.Unlock()
			reservation.Rollback(t.Context())
			if got := quotas.used(t, "q"); got != test.wantUsage {
				t.Errorf("after Rollback: got usage %s, want %s", got, test.wantUsage)
			}
		})
	}
}
