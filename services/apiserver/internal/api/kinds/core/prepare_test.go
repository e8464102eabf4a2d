package core_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry"
)

// TestPodGracePeriod checks the grace period of the deletion of a pod.
func TestPodGracePeriod(t *testing.T) {
	kind := kindOf(t, "pods")
	n := func(v int64) *int64 { return &v }
	const placed = "spec: {nodeName: node, terminationGracePeriodSeconds: 60}\n"
	for _, test := range []struct {
		name, object string
		asked        *int64
		want         int64
	}{
		{name: "its own", object: placed, asked: nil, want: 60},
		{name: "asked", object: placed, asked: n(5), want: 5},
		{name: "requested none", object: placed, asked: n(0), want: 0},
		{name: "negative", object: placed, asked: n(-7), want: 1},
		{name: "its own is negative", object: "spec: {nodeName: node, terminationGracePeriodSeconds: -1}", asked: nil, want: 1},
		{name: "none of its own", object: "spec: {nodeName: node}", asked: nil, want: 30},
		{name: "runs nowhere", object: "spec: {terminationGracePeriodSeconds: 60}", asked: n(5), want: 0},
		{name: "succeeded", object: placed + "status: {phase: Succeeded}", asked: nil, want: 0},
		{name: "failed", object: placed + "status: {phase: Failed}", asked: n(9), want: 0},
	} {
		if got := kind.Delete.GracePeriod(parse(t, kind, test.object), test.asked); got != test.want {
			t.Errorf("%s: got %d seconds, want %d", test.name, got, test.want)
		}
	}
}

// TestPodCreate checks the fields that creation resets.
func TestPodCreate(t *testing.T) {
	kind := kindOf(t, "pods")
	for _, test := range []struct{ name, spec, qos string }{
		{name: "nothing", spec: "containers: [{name: a}]", qos: "BestEffort"},
		{name: "a request", spec: "containers: [{name: a, resources: {requests: {cpu: 1}}}]", qos: "Burstable"},
		{name: "other resources", spec: "containers: [{name: a, resources: {limits: {example.com/gpu: 1}}}]", qos: "BestEffort"},
		{name: "all limited", spec: "containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1000m, memory: 1Gi}}}]", qos: "Guaranteed"},
		{name: "limits are requests", spec: "containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Gi}}}]", qos: "Guaranteed"},
		{name: "a request below the limit", spec: "containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}}]", qos: "Burstable"},
		{name: "a request of none", spec: "containers: [{name: a, resources: {requests: {cpu: 0}, limits: {cpu: 2, memory: 1Gi}}}]", qos: "Burstable"},
		{name: "one limit", spec: "containers: [{name: a, resources: {limits: {cpu: 1}}}]", qos: "Burstable"},
		{name: "an init container without", spec: "initContainers: [{name: i}]\n  containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Gi}}}]", qos: "Burstable"},
	} {
		p := parse(t, kind, "spec:\n  "+test.spec+"\nstatus: {phase: Running, podIP: 1.2.3.4}").(*corev1.Pod)
		kind.Create.Prepare(p)
		want := corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSClass(test.qos)}
		if !equalObjects(&corev1.Pod{Status: p.Status}, &corev1.Pod{Status: want}) {
			t.Errorf("%s: got status %+v, want %+v", test.name, p.Status, want)
		}
	}

	gated := parse(t, kind, "spec: {schedulingGates: [{name: g}]}").(*corev1.Pod)
	kind.Create.Prepare(gated)
	want := corev1.PodCondition{
		Type:    "PodScheduled",
		Status:  "False",
		Reason:  "SchedulingGated",
		Message: "Scheduling is blocked due to non-empty scheduling gates",
	}
	if c := gated.Status.Conditions; len(c) != 1 || c[0] != want {
		t.Errorf("gated pod: got conditions %v, want %v", c, want)
	}
}

// TestPodSubresources checks which fields each subresource of pods can change.
func TestPodSubresources(t *testing.T) {
	kind := kindOf(t, "pods")
	live := func() *corev1.Pod {
		return parse(t, kind, `
metadata: {name: p, labels: {a: b}, ownerReferences: [{kind: X, name: x, uid: u, apiVersion: v1}], deletionTimestamp: '2024-01-01T00:00:00Z'}
spec: {nodeName: node, containers: [{name: a, image: i, resources: {requests: {cpu: 1}}}]}
status: {phase: Running, qosClass: Burstable}`).(*corev1.Pod)
	}
	sent := func() *corev1.Pod {
		return parse(t, kind, `
metadata: {name: p, labels: {a: c}}
spec: {nodeName: other, containers: [{name: a, image: j, resources: {requests: {cpu: 2}}, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]}], ephemeralContainers: [{name: e}]}
status: {phase: Failed}`).(*corev1.Pod)
	}
	for name, check := range map[string]func(got *corev1.Pod) bool{
		"status": func(got *corev1.Pod) bool {
			return got.Labels["a"] == "c" && len(got.OwnerReferences) == 1 && got.DeletionTimestamp != nil &&
				got.Spec.NodeName == "node" && got.Status.Phase == corev1.PodFailed && got.Status.QOSClass == corev1.PodQOSBurstable
		},
		"ephemeralcontainers": func(got *corev1.Pod) bool {
			return got.Labels["a"] == "b" && len(got.Spec.EphemeralContainers) == 1 && got.Spec.Containers[0].Image == "i" &&
				got.Status.Phase == corev1.PodRunning
		},
		"resize": func(got *corev1.Pod) bool {
			c := got.Spec.Containers[0]
			return c.Image == "i" && c.Resources.Requests.Cpu().Value() == 2 && len(c.ResizePolicy) == 1 &&
				len(got.Spec.EphemeralContainers) == 0 && got.Spec.NodeName == "node" && got.Status.Phase == corev1.PodRunning
		},
	} {
		old, got := live(), sent()
		kind.Subresource(name).Prepare(got, old)
		if !check(got) {
			t.Errorf("%s: got %+v", name, got)
		}
		if !equalObjects(old, live()) {
			t.Errorf("%s modified the live object", name)
		}
	}

	renamed := sent()
	renamed.Spec.Containers[0].Name = "b"
	kind.Subresource("resize").Prepare(renamed, live())
	if renamed.Spec.Containers[0].Name != "b" || renamed.Spec.NodeName != "other" {
		t.Errorf("resize with a renamed container: got spec %+v, want the change kept for validation", renamed.Spec)
	}
}

// TestVolumePhases checks the phase of a new volume, and the time that is recorded for a change of
// the phase.
func TestVolumePhases(t *testing.T) {
	kind := kindOf(t, "persistentvolumes")
	persistentVolume := parse(t, kind, "metadata: {name: v}\nstatus: {phase: Bound}").(*corev1.PersistentVolume)
	kind.Create.Prepare(persistentVolume)
	if persistentVolume.Status.Phase != corev1.VolumePending || persistentVolume.Status.LastPhaseTransitionTime.IsZero() {
		t.Errorf("after creation: got status %+v, want Pending with a transition time", persistentVolume.Status)
	}
	then := metav1.NewTime(persistentVolume.Status.LastPhaseTransitionTime.Add(-1e9))
	said := metav1.NewTime(then.Add(-1e9))
	persistentVolume.Status.LastPhaseTransitionTime = &then
	for _, test := range []struct {
		name  string
		phase corev1.PersistentVolumePhase
		time  *metav1.Time
		kept  *metav1.Time
	}{
		{name: "same phase", phase: corev1.VolumePending, time: &then, kept: &then},
		{name: "new phase", phase: corev1.VolumeBound, time: &then, kept: nil},
		{name: "new phase without a time", phase: corev1.VolumeBound, time: nil, kept: nil},
		{name: "new phase with its time", phase: corev1.VolumeBound, time: &said, kept: &said},
	} {
		changed := persistentVolume.DeepCopy()
		changed.Spec.StorageClassName = "lost"
		changed.Status.Phase, changed.Status.LastPhaseTransitionTime = test.phase, test.time
		kind.Subresource("status").Prepare(changed, persistentVolume)
		got := changed.Status.LastPhaseTransitionTime
		if changed.Spec.StorageClassName != "" {
			t.Errorf("%s: got another spec", test.name)
		}
		if test.kept != nil && !got.Equal(test.kept) {
			t.Errorf("%s: got time %v, want %v", test.name, got, test.kept)
		}
		if test.kept == nil && (got == nil || !got.After(then.Time)) {
			t.Errorf("%s: got time %v, want a new one", test.name, got)
		}
	}
}

// TestClaimDataSources checks that each field of the data source is copied to the other one.
func TestClaimDataSources(t *testing.T) {
	kind := kindOf(t, "persistentvolumeclaims")
	for _, test := range []struct {
		object   string
		old, ref bool
	}{
		{object: "spec: {}", old: false, ref: false},
		{object: "spec: {dataSource: {kind: VolumeSnapshot, apiGroup: snapshot.storage.k8s.io, name: s}}", old: true, ref: true},
		{object: "spec: {dataSourceRef: {kind: VolumeSnapshot, apiGroup: snapshot.storage.k8s.io, name: s}}", old: true, ref: true},
		{object: "spec: {dataSourceRef: {kind: VolumeSnapshot, apiGroup: snapshot.storage.k8s.io, name: s, namespace: ns}}", old: false, ref: false},
	} {
		for name, prepare := range map[string]func(registry.Object){
			"create": kind.Create.Prepare,
			"update": func(o registry.Object) { kind.Update.Prepare(o, kind.New().(registry.Object)) },
		} {
			c := parse(t, kind, test.object).(*corev1.PersistentVolumeClaim)
			prepare(c)
			if (c.Spec.DataSource != nil) != test.old || (c.Spec.DataSourceRef != nil) != test.ref {
				t.Errorf("%s of %s: got spec %+v, want dataSource: %t, dataSourceRef: %t", name, test.object, c.Spec, test.old, test.ref)
				continue
			}
			d, r := c.Spec.DataSource, c.Spec.DataSourceRef
			if d != nil && (*d.APIGroup != *r.APIGroup || d.Kind != r.Kind || d.Name != r.Name) {
				t.Errorf("%s of %s: got %+v and %+v, want equal references", name, test.object, d, r)
			}
		}
	}
}

// TestServiceAccountReferences checks that references of service accounts keep only their names.
func TestServiceAccountReferences(t *testing.T) {
	k := kindOf(t, "serviceaccounts")
	a := parse(t, k, "secrets: [{name: s, namespace: elsewhere, kind: Secret}]").(*corev1.ServiceAccount)
	b := a.DeepCopy()
	k.Create.Prepare(a)
	k.Update.Prepare(b, a)
	for _, got := range []*corev1.ServiceAccount{a, b} {
		if len(got.Secrets) != 1 || got.Secrets[0] != (corev1.ObjectReference{Name: "s"}) {
			t.Errorf("got secrets %v, want only s", got.Secrets)
		}
	}
}

// TestLimitRangeName checks that a limit range without a name gets one.
func TestLimitRangeName(t *testing.T) {
	k := kindOf(t, "limitranges")
	unnamed, named := &corev1.LimitRange{}, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	k.Create.Prepare(unnamed)
	k.Create.Prepare(named)
	if unnamed.Name == "" || named.Name != "a" {
		t.Errorf("got names %q and %q, want %q", unnamed.Name, named.Name, "a")
	}
}

// TestScale checks the scale subresource of replication controllers.
func TestScale(t *testing.T) {
	k := kindOf(t, "replicationcontrollers")
	rc := parse(t, k, "spec: {replicas: 3, selector: {a: b, c: d}}\nstatus: {replicas: 2}").(*corev1.ReplicationController)
	scale := k.Subresource("scale").Scale
	if n := scale.Replicas(rc); n != 3 {
		t.Errorf("got %d replicas, want 3", n)
	}
	if n, selector := scale.Status(rc); n != 2 || selector != "a=b,c=d" {
		t.Errorf("got status %d, %q, want 2, %q", n, selector, "a=b,c=d")
	}
	scale.SetReplicas(rc, 7)
	if n := scale.Replicas(rc); n != 7 {
		t.Errorf("got %d replicas after setting 7, want 7", n)
	}
	if n := scale.Replicas(&corev1.ReplicationController{}); n != 1 {
		t.Errorf("got %d replicas by default, want 1", n)
	}
}

// TestEventSourceField checks the selectable field source of events.
func TestEventSourceField(t *testing.T) {
	k := kindOf(t, "events")
	for object, want := range map[string]string{
		"source: {component: a}\nreportingComponent: b": "a",
		"reportingComponent: b":                         "b",
		"metadata: {name: x}":                           "",
	} {
		for _, f := range k.Presentation.Selectable {
			if f.Label != "source" {
				continue
			}
			if got := f.Value(parse(t, k, object)); got != want {
				t.Errorf("%s: got source %q, want %q", object, got, want)
			}
		}
	}
}
