package core_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry"
)

// TestPodGracePeriodIsOwnOrRequested checks the grace period of the deletion of a pod.
func TestPodGracePeriodIsOwnOrRequested(t *testing.T) {
	kind := kindOf(t, "pods")
	seconds := func(n int64) *int64 { return &n }
	const scheduled = "spec: {nodeName: node, terminationGracePeriodSeconds: 60}\n"
	for _, test := range []struct {
		name, object string
		requested    *int64
		want         int64
	}{
		{name: "own grace period", object: scheduled, requested: nil, want: 60},
		{name: "requested", object: scheduled, requested: seconds(5), want: 5},
		{name: "requested zero", object: scheduled, requested: seconds(0), want: 0},
		{name: "requested negative", object: scheduled, requested: seconds(-7), want: 1},
		{name: "own is negative", object: "spec: {nodeName: node, terminationGracePeriodSeconds: -1}", requested: nil, want: 1},
		{name: "neither own nor requested", object: "spec: {nodeName: node}", requested: nil, want: 30},
		{name: "not scheduled", object: "spec: {terminationGracePeriodSeconds: 60}", requested: seconds(5), want: 0},
		{name: "succeeded", object: scheduled + "status: {phase: Succeeded}", requested: nil, want: 0},
		{name: "failed", object: scheduled + "status: {phase: Failed}", requested: seconds(9), want: 0},
	} {
		if got := kind.Delete.GracePeriod(parse(t, kind, test.object), test.requested); got != test.want {
			t.Errorf("%s: got %d seconds, want %d", test.name, got, test.want)
		}
	}
}

// TestPodCreationResetsStatus checks that a new pod is pending, with the QoS class of its resources
// and a condition about its scheduling gates.
func TestPodCreationResetsStatus(t *testing.T) {
	kind := kindOf(t, "pods")
	for _, test := range []struct{ name, spec, wantQOS string }{
		{name: "no resources", spec: "containers: [{name: a}]", wantQOS: "BestEffort"},
		{name: "a request", spec: "containers: [{name: a, resources: {requests: {cpu: 1}}}]", wantQOS: "Burstable"},
		{name: "other resources", spec: "containers: [{name: a, resources: {limits: {example.com/gpu: 1}}}]", wantQOS: "BestEffort"},
		{name: "all limited", spec: "containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1000m, memory: 1Gi}}}]", wantQOS: "Guaranteed"},
		{name: "limits are requests", spec: "containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Gi}}}]", wantQOS: "Guaranteed"},
		{name: "a request below the limit", spec: "containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2, memory: 1Gi}}}]", wantQOS: "Burstable"},
		{name: "a request of zero", spec: "containers: [{name: a, resources: {requests: {cpu: 0}, limits: {cpu: 2, memory: 1Gi}}}]", wantQOS: "Burstable"},
		{name: "one limit", spec: "containers: [{name: a, resources: {limits: {cpu: 1}}}]", wantQOS: "Burstable"},
		{name: "an init container without limits", spec: "initContainers: [{name: i}]\n  containers: [{name: a, resources: {limits: {cpu: 1, memory: 1Gi}}}]", wantQOS: "Burstable"},
	} {
		pod := parse(t, kind, "spec:\n  "+test.spec+"\nstatus: {phase: Running, podIP: 1.2.3.4}").(*corev1.Pod)
		kind.Create.Prepare(pod)
		want := corev1.PodStatus{Phase: corev1.PodPending, QOSClass: corev1.PodQOSClass(test.wantQOS)}
		if !equalObjects(&corev1.Pod{Status: pod.Status}, &corev1.Pod{Status: want}) {
			t.Errorf("%s: got status %+v, want %+v", test.name, pod.Status, want)
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

// TestPodSubresourceChangesOnlyItsFields checks which fields each subresource of pods can change.
func TestPodSubresourceChangesOnlyItsFields(t *testing.T) {
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
	for subresource, isExpected := range map[string]func(got *corev1.Pod) bool{
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
		kind.Subresource(subresource).Prepare(got, old)
		if !isExpected(got) {
			t.Errorf("%s: got %+v", subresource, got)
		}
		if !equalObjects(old, live()) {
			t.Errorf("%s modified the live object", subresource)
		}
	}

	renamed := sent()
	renamed.Spec.Containers[0].Name = "b"
	kind.Subresource("resize").Prepare(renamed, live())
	if renamed.Spec.Containers[0].Name != "b" || renamed.Spec.NodeName != "other" {
		t.Errorf("resize with a renamed container: got spec %+v, want the change kept for validation", renamed.Spec)
	}
}

// TestVolumePhaseChangeRecordsTime checks the phase of a new volume, and the time that is recorded for
// a change of the phase.
func TestVolumePhaseChangeRecordsTime(t *testing.T) {
	kind := kindOf(t, "persistentvolumes")
	persistentVolume := parse(t, kind, "metadata: {name: v}\nstatus: {phase: Bound}").(*corev1.PersistentVolume)
	kind.Create.Prepare(persistentVolume)
	if persistentVolume.Status.Phase != corev1.VolumePending || persistentVolume.Status.LastPhaseTransitionTime.IsZero() {
		t.Errorf("after creation: got status %+v, want Pending with a transition time", persistentVolume.Status)
	}
	liveTime := metav1.NewTime(persistentVolume.Status.LastPhaseTransitionTime.Add(-1e9))
	sentTime := metav1.NewTime(liveTime.Add(-1e9))
	persistentVolume.Status.LastPhaseTransitionTime = &liveTime
	for _, test := range []struct {
		name  string
		phase corev1.PersistentVolumePhase
		time  *metav1.Time
		want  *metav1.Time // nil: the current time
	}{
		{name: "same phase", phase: corev1.VolumePending, time: &liveTime, want: &liveTime},
		{name: "new phase", phase: corev1.VolumeBound, time: &liveTime, want: nil},
		{name: "new phase without a time", phase: corev1.VolumeBound, time: nil, want: nil},
		{name: "new phase with its time", phase: corev1.VolumeBound, time: &sentTime, want: &sentTime},
	} {
		changed := persistentVolume.DeepCopy()
		changed.Spec.StorageClassName = "lost"
		changed.Status.Phase, changed.Status.LastPhaseTransitionTime = test.phase, test.time
		kind.Subresource("status").Prepare(changed, persistentVolume)
		got := changed.Status.LastPhaseTransitionTime
		if changed.Spec.StorageClassName != "" {
			t.Errorf("%s: got another spec", test.name)
		}
		if test.want != nil && !got.Equal(test.want) {
			t.Errorf("%s: got time %v, want %v", test.name, got, test.want)
		}
		if test.want == nil && (got == nil || !got.After(liveTime.Time)) {
			t.Errorf("%s: got time %v, want a new one", test.name, got)
		}
	}
}

// TestClaimDataSourceIsCopiedToOtherField checks that each field of the data source is copied to the
// other one.
func TestClaimDataSourceIsCopiedToOtherField(t *testing.T) {
	kind := kindOf(t, "persistentvolumeclaims")
	for _, test := range []struct {
		object                    string
		wantSource, wantSourceRef bool
	}{
		{object: "spec: {}", wantSource: false, wantSourceRef: false},
		{object: "spec: {dataSource: {kind: VolumeSnapshot, apiGroup: snapshot.storage.k8s.io, name: s}}", wantSource: true, wantSourceRef: true},
		{object: "spec: {dataSourceRef: {kind: VolumeSnapshot, apiGroup: snapshot.storage.k8s.io, name: s}}", wantSource: true, wantSourceRef: true},
		{object: "spec: {dataSourceRef: {kind: VolumeSnapshot, apiGroup: snapshot.storage.k8s.io, name: s, namespace: ns}}", wantSource: false, wantSourceRef: false},
	} {
		for operation, prepare := range map[string]func(registry.Object){
			"create": kind.Create.Prepare,
			"update": func(o registry.Object) { kind.Update.Prepare(o, kind.New().(registry.Object)) },
		} {
			claim := parse(t, kind, test.object).(*corev1.PersistentVolumeClaim)
			prepare(claim)
			if (claim.Spec.DataSource != nil) != test.wantSource || (claim.Spec.DataSourceRef != nil) != test.wantSourceRef {
				t.Errorf("%s of %s: got spec %+v, want dataSource: %t, dataSourceRef: %t", operation, test.object, claim.Spec, test.wantSource, test.wantSourceRef)
				continue
			}
			source, ref := claim.Spec.DataSource, claim.Spec.DataSourceRef
			if source != nil && (*source.APIGroup != *ref.APIGroup || source.Kind != ref.Kind || source.Name != ref.Name) {
				t.Errorf("%s of %s: got %+v and %+v, want equal references", operation, test.object, source, ref)
			}
		}
	}
}

// TestServiceAccountReferencesKeepOnlyNames checks that references of service accounts keep only their
// names.
func TestServiceAccountReferencesKeepOnlyNames(t *testing.T) {
	kind := kindOf(t, "serviceaccounts")
	created := parse(t, kind, "secrets: [{name: s, namespace: elsewhere, kind: Secret}]").(*corev1.ServiceAccount)
	updated := created.DeepCopy()
	kind.Create.Prepare(created)
	kind.Update.Prepare(updated, created)
	for _, got := range []*corev1.ServiceAccount{created, updated} {
		if len(got.Secrets) != 1 || got.Secrets[0] != (corev1.ObjectReference{Name: "s"}) {
			t.Errorf("got secrets %v, want only s", got.Secrets)
		}
	}
}

// TestUnnamedLimitRangeGetsName checks that a limit range without a name gets one.
func TestUnnamedLimitRangeGetsName(t *testing.T) {
	k := kindOf(t, "limitranges")
	unnamed, named := &corev1.LimitRange{}, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	k.Create.Prepare(unnamed)
	k.Create.Prepare(named)
	if unnamed.Name == "" || named.Name != "a" {
		t.Errorf("got names %q and %q, want a generated one and %q", unnamed.Name, named.Name, "a")
	}
}

// TestScaleReadsAndSetsReplicas checks the scale subresource of replication controllers.
func TestScaleReadsAndSetsReplicas(t *testing.T) {
	k := kindOf(t, "replicationcontrollers")
	controller := parse(t, k, "spec: {replicas: 3, selector: {a: b, c: d}}\nstatus: {replicas: 2}").(*corev1.ReplicationController)
	scale := k.Subresource("scale").Scale
	if n := scale.Replicas(controller); n != 3 {
		t.Errorf("got %d replicas, want 3", n)
	}
	if n, selector := scale.Status(controller); n != 2 || selector != "a=b,c=d" {
		t.Errorf("got status %d, %q, want 2, %q", n, selector, "a=b,c=d")
	}
	scale.SetReplicas(controller, 7)
	if n := scale.Replicas(controller); n != 7 {
		t.Errorf("got %d replicas after setting 7, want 7", n)
	}
	if n := scale.Replicas(&corev1.ReplicationController{}); n != 1 {
		t.Errorf("got %d replicas by default, want 1", n)
	}
}

// TestEventSourceFallsBackToReportingComponent checks the selectable field source of events.
func TestEventSourceFallsBackToReportingComponent(t *testing.T) {
	kind := kindOf(t, "events")
	for object, want := range map[string]string{
		"source: {component: a}\nreportingComponent: b": "a",
		"reportingComponent: b":                         "b",
		"metadata: {name: x}":                           "",
	} {
		for _, selectableField := range kind.Presentation.Selectable {
			if selectableField.Label != "source" {
				continue
			}
			if got := selectableField.Value(parse(t, kind, object)); got != want {
				t.Errorf("%s: got source %q, want %q", object, got, want)
			}
		}
	}
}
