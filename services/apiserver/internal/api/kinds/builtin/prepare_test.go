package builtin_test

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry"
)

// metaOf returns metadata of an object named x.
func metaOf(generation int64, labels, annotations map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: "x", Generation: generation, Labels: labels, Annotations: annotations}
}

// TestMetadataChangeIncreasesGenerationOfSomeKinds checks that for some kinds, changes of metadata
// increase the generation.
func TestMetadataChangeIncreasesGenerationOfSomeKinds(t *testing.T) {
	a, b := map[string]string{"k": "a"}, map[string]string{"k": "b"}
	tests := []struct {
		name     string
		kind     string
		obj, old registry.Object
		want     int64
	}{
		{name: "deployment, annotations", kind: "apps/v1/deployments", obj: &appsv1.Deployment{ObjectMeta: metaOf(4, nil, b)},
			old: &appsv1.Deployment{ObjectMeta: metaOf(4, nil, a)}, want: 5},
		{name: "deployment, labels", kind: "apps/v1/deployments", obj: &appsv1.Deployment{ObjectMeta: metaOf(4, b, a)},
			old: &appsv1.Deployment{ObjectMeta: metaOf(4, a, a)}, want: 4},
		{name: "endpoint slice, annotations", kind: "discovery.k8s.io/v1/endpointslices",
			obj: &discoveryv1.EndpointSlice{ObjectMeta: metaOf(4, a, b)},
			old: &discoveryv1.EndpointSlice{ObjectMeta: metaOf(4, a, a)}, want: 4},
	}
	kinds := byName(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kinds[tt.kind].Update.Prepare(tt.obj, tt.old)
			if got := tt.obj.GetGeneration(); got != tt.want {
				t.Errorf("got generation %d, want %d", got, tt.want)
			}
		})
	}

	slice := kinds["discovery.k8s.io/v1/endpointslices"].Parts.SpecChanged
	if !slice(&discoveryv1.EndpointSlice{ObjectMeta: metaOf(4, b, a)}, &discoveryv1.EndpointSlice{ObjectMeta: metaOf(4, a, a)}) {
		t.Error("SpecChanged of an endpoint slice with other labels = false, want true")
	}
	class := &schedulingv1.PriorityClass{ObjectMeta: metaOf(7, nil, nil)}
	kinds["scheduling.k8s.io/v1/priorityclasses"].Create.Prepare(class)
	if class.Generation != 1 {
		t.Errorf("priority class: got initial generation %d, want 1", class.Generation)
	}
}

// TestOnlyExistingEndpointsKeepDeprecatedTopology checks that only existing endpoints keep the
// deprecated topology.
func TestOnlyExistingEndpointsKeepDeprecatedTopology(t *testing.T) {
	kind := byName(t)["discovery.k8s.io/v1/endpointslices"]
	slice := func(address string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}, DeprecatedTopology: map[string]string{"zone": "z"}}},
		}
	}
	created := slice("a")
	kind.Create.Prepare(created)
	changed := slice("b")
	kind.Update.Prepare(changed, slice("a"))
	same := slice("a")
	kind.Update.Prepare(same, slice("a"))
	if created.Endpoints[0].DeprecatedTopology != nil || changed.Endpoints[0].DeprecatedTopology != nil {
		t.Error("new endpoint: got the deprecated topology, want none")
	}
	if same.Endpoints[0].DeprecatedTopology == nil {
		t.Error("existing endpoint: got no deprecated topology, want the live one")
	}
}

// TestScaleReadsReplicasAndSelector checks which values the scale subresources of workloads have.
func TestScaleReadsReplicasAndSelector(t *testing.T) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	objects := map[string]registry.Object{
		"apps/v1/deployments": &appsv1.Deployment{
			Spec:   appsv1.DeploymentSpec{Selector: selector},
			Status: appsv1.DeploymentStatus{Replicas: 3},
		},
		"apps/v1/replicasets": &appsv1.ReplicaSet{
			Spec:   appsv1.ReplicaSetSpec{Selector: selector},
			Status: appsv1.ReplicaSetStatus{Replicas: 3},
		},
		"apps/v1/statefulsets": &appsv1.StatefulSet{
			Spec:   appsv1.StatefulSetSpec{Selector: selector},
			Status: appsv1.StatefulSetStatus{Replicas: 3},
		},
	}
	kinds := byName(t)
	for name, obj := range objects {
		subresource := kinds[name].Subresource("scale")
		if subresource == nil {
			t.Fatalf("%s: no scale, want one", name)
		}
		if _, ok := subresource.New().(*autoscalingv1.Scale); !ok {
			t.Errorf("%s: got scale type %T, want *v1.Scale", name, subresource.New())
		}
		if n := subresource.Scale.Replicas(obj); n != 1 {
			t.Errorf("%s: got %d desired replicas, want 1 by default", name, n)
		}
		if n, text := subresource.Scale.Status(obj); n != 3 || text != "app=x" {
			t.Errorf("%s: got %d replicas, selector %q, want 3, %q", name, n, text, "app=x")
		}
	}
}

// TestStatusWriteKeepsLiveMetadata checks which metadata a write of the status may change.
func TestStatusWriteKeepsLiveMetadata(t *testing.T) {
	kinds := byName(t)
	prepareStatus := func(name string) func(obj, old registry.Object) {
		return kinds[name].Subresource("status").Prepare
	}
	labels := map[string]string{"k": "live"}

	deployment, liveDeployment := &appsv1.Deployment{
		ObjectMeta: metaOf(9, nil, map[string]string{"a": "sent"}),
	}, &appsv1.Deployment{
		ObjectMeta: metaOf(9, labels, nil),
	}
	prepareStatus("apps/v1/deployments")(deployment, liveDeployment)
	if deployment.Labels["k"] != "live" || deployment.Annotations["a"] != "sent" {
		t.Errorf("Deployment: got metadata %+v, want the live label and the sent annotation", deployment.ObjectMeta)
	}

	volumeAttachment, liveAttachment := &storagev1.VolumeAttachment{
		ObjectMeta: metaOf(1, nil, map[string]string{"a": "sent"}),
	}, &storagev1.VolumeAttachment{
		ObjectMeta: metaOf(1, labels, nil),
	}
	prepareStatus("storage.k8s.io/v1/volumeattachments")(volumeAttachment, liveAttachment)
	if volumeAttachment.Labels["k"] != "live" || volumeAttachment.Annotations != nil {
		t.Errorf("VolumeAttachment: got metadata %+v, want that of the live object", volumeAttachment.ObjectMeta)
	}

	flowSchema, liveFlowSchema := &flowcontrolv1.FlowSchema{
		ObjectMeta: metaOf(1, nil, map[string]string{"a": "sent"}),
	}, &flowcontrolv1.FlowSchema{
		ObjectMeta: metaOf(1, labels, nil),
	}
	flowSchema.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "sent"}}
	liveFlowSchema.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "live"}}
	prepareStatus("flowcontrol.apiserver.k8s.io/v1/flowschemas")(flowSchema, liveFlowSchema)
	want := metaOf(1, labels, nil)
	want.ManagedFields = flowSchema.ManagedFields
	if !equality.Semantic.DeepEqual(flowSchema.ObjectMeta, want) || flowSchema.ManagedFields[0].Manager != "sent" {
		t.Errorf("FlowSchema: got metadata %+v, want that of the live object with the sent managers", flowSchema.ObjectMeta)
	}
}

// TestSigningRequestPathsChangeOnlyTheirFields checks what each path of a certificate signing
// request can change.
func TestSigningRequestPathsChangeOnlyTheirFields(t *testing.T) {
	kind := byName(t)["certificates.k8s.io/v1/certificatesigningrequests"]
	type request = certificatesv1.CertificateSigningRequest
	condition := func(typ certificatesv1.RequestConditionType, reason string, at int64) certificatesv1.CertificateSigningRequestCondition {
		c := certificatesv1.CertificateSigningRequestCondition{Type: typ, Status: "True", Reason: reason}
		if at != 0 {
			c.LastUpdateTime, c.LastTransitionTime = metav1.Unix(at, 0), metav1.Unix(at, 0)
		}
		return c
	}

	t.Run("creation records the requester", func(t *testing.T) {
		r := &request{Spec: certificatesv1.CertificateSigningRequestSpec{Username: "fake", UID: "fake", Groups: []string{"fake"},
			Extra: map[string]certificatesv1.ExtraValue{"fake": {"x"}}, SignerName: "s"}}
		kind.Create.Prepare(r)
		if r.Spec.Username != "" || r.Spec.UID != "" || r.Spec.Groups != nil || r.Spec.Extra != nil || r.Spec.SignerName != "s" {
			t.Errorf("got spec %+v, want signer s and no requester of the client", r.Spec)
		}
		kind.Create.RecordCreator(
			r,
			registry.Requester{Name: "u", UID: "1", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}},
		)
		if r.Spec.Username != "u" || r.Spec.UID != "1" || !slices.Equal(r.Spec.Groups, []string{"g"}) ||
			!slices.Equal(r.Spec.Extra["k"], []string{"v"}) {
			t.Errorf("got requester %+v, want that of the request, u", r.Spec)
		}
	})

	t.Run("an update keeps the spec", func(t *testing.T) {
		r, live := &request{}, &request{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: "s"}}
		kind.Update.Prepare(r, live)
		if r.Spec.SignerName != "s" {
			t.Errorf("got spec %+v, want the live one with signer s", r.Spec)
		}
	})

	t.Run("an approval changes only conditions", func(t *testing.T) {
		live := &request{Status: certificatesv1.CertificateSigningRequestStatus{Certificate: []byte("c"),
			Conditions: []certificatesv1.CertificateSigningRequestCondition{condition(certificatesv1.CertificateApproved, "old", 5)}}}
		r := &request{Status: certificatesv1.CertificateSigningRequestStatus{Certificate: []byte("forged"),
			Conditions: []certificatesv1.CertificateSigningRequestCondition{
				condition(certificatesv1.CertificateApproved, "new", 0),
				condition("Other", "new", 0),
			}}}
		kind.Subresource("approval").Prepare(r, live)
		if string(r.Status.Certificate) != "c" || len(r.Status.Conditions) != 2 || r.Status.Conditions[0].Reason != "new" {
			t.Errorf("got status %+v, want the live certificate and the two sent conditions", r.Status)
		}
		if at := r.Status.Conditions[0].LastTransitionTime; !at.Equal(&live.Status.Conditions[0].LastTransitionTime) {
			t.Errorf("got transition time %v, want the live one", at)
		}
		for _, c := range r.Status.Conditions {
			if c.LastUpdateTime.IsZero() || c.LastTransitionTime.IsZero() {
				t.Errorf("got condition %+v, want update and transition times", c)
			}
		}
		if live.Status.Conditions[0].Reason != "old" {
			t.Error("got a modified live object, want it unchanged")
		}
	})

	t.Run("a signer neither approves nor denies", func(t *testing.T) {
		live := &request{Status: certificatesv1.CertificateSigningRequestStatus{
			Conditions: []certificatesv1.CertificateSigningRequestCondition{condition(certificatesv1.CertificateApproved, "live", 5)}}}
		r := &request{Status: certificatesv1.CertificateSigningRequestStatus{Certificate: []byte("c"),
			Conditions: []certificatesv1.CertificateSigningRequestCondition{
				condition(
					certificatesv1.CertificateFailed,
					"sent",
					0,
				), condition(certificatesv1.CertificateApproved, "sent", 0), condition(certificatesv1.CertificateDenied, "sent", 0),
			}}}
		kind.Subresource("status").Prepare(r, live)
		reasons := []string{}
		for _, c := range r.Status.Conditions {
			reasons = append(reasons, c.Reason)
		}
		// Validation rejects the added denial.
		if !slices.Equal(reasons, []string{"sent", "live", "sent"}) || string(r.Status.Certificate) != "c" {
			t.Errorf("got status %+v, want the sent certificate and conditions, except for the live approval", r.Status)
		}
	})
}
