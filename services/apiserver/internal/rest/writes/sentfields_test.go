package writes_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/request/requesttest"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestSubresourcesOfPodsOwnSentFields checks that a manager that sends other changes to a
// subresource owns their fields there, although the subresource drops the changes.
func TestSubresourcesOfPodsOwnSentFields(t *testing.T) {
	base := newBase(t)
	pod := func() *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "n"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
		}
	}
	for _, sub := range []string{"resize", "ephemeralcontainers"} {
		fixture := base.fixture(t)
		req := fixture.newRequest("pods", "")
		req.Object, req.Options = pod(), &metav1.CreateOptions{}
		if _, err := fixture.writer.Create(t.Context(), req); err != nil {
			t.Fatal(err)
		}
		fixture.syncCache()
		wanted := pod()
		wanted.Labels = map[string]string{"a": "b"}
		wanted.Spec.Containers[0].Image = "j"
		req = fixture.newRequest("pods", "n")
		req.Sub = req.Resource.Subresource(sub)
		req.Object, req.Options = wanted, &metav1.UpdateOptions{}
		if _, err := fixture.writer.Update(t.Context(), req); err != nil {
			t.Fatalf("%s: %v", sub, err)
		}
		stored := fixture.storedObject(fixture.kind("pods"), "n").(*corev1.Pod)
		if len(stored.Labels) > 0 || stored.Spec.Containers[0].Image != "i" {
			t.Errorf("%s: Update stored labels %v and image %s, want none and i", sub, stored.Labels, stored.Spec.Containers[0].Image)
		}
		owns := func(m metav1.ManagedFieldsEntry) bool {
			return m.Subresource == sub && strings.Contains(string(m.FieldsV1.Raw), `"f:a"`) && strings.Contains(
				string(m.FieldsV1.Raw),
				`"f:image"`,
			)
		}
		if !slices.ContainsFunc(stored.ManagedFields, owns) {
			t.Errorf("%s: got managedFields %v, want an entry with the label and the image", sub, stored.ManagedFields)
		}
	}
}

// TestMutatingAdmissionOfUpdateSeesSentMetadata checks that the server adds its metadata after
// mutating admission, and validating admission sees it.
func TestMutatingAdmissionOfUpdateSeesSentMetadata(t *testing.T) {
	fixture := newBase(t).fixture(t)
	live := sentConfigMap("k=v")
	live.UID, live.Generation, live.CreationTimestamp = "u", 1, metav1.NewTime(now)
	fixture.storeDirectly(fixture.kind("configmaps"), live)
	sees := func(o metav1.Object) bool {
		return o.GetUID() != "" && o.GetResourceVersion() != "" && !o.GetCreationTimestamp().Time.IsZero()
	}
	fixture.mutate = func(r *admission.Request) error {
		if o := r.Object.(metav1.Object); o.GetUID() != "" || o.GetResourceVersion() != "" || !o.GetCreationTimestamp().Time.IsZero() {
			t.Errorf("mutating admission: got metadata of the server in %v, want none", o)
		}
		if o := r.OldObject.(metav1.Object); !sees(o) {
			t.Errorf("mutating admission: got old object %v, want one with metadata of the server", o)
		}
		return nil
	}
	r := fixture.requestFor("c")
	r.Object, r.Options = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}, &metav1.UpdateOptions{}
	if _, err := fixture.writer.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if len(fixture.validated) != 1 {
		t.Fatalf("got %d requests of validating admission, want 1", len(fixture.validated))
	}
	if o := fixture.validated[0].Object.(metav1.Object); !sees(o) {
		t.Errorf("validating admission: got %v, want an object with metadata of the server", o)
	}
}

// TestMutatingAdmissionOfScaleSeesNamespace sends a scale without its namespace.
func TestMutatingAdmissionOfScaleSeesNamespace(t *testing.T) {
	fixture := newBase(t).fixture(t)
	resource := fixture.kind("replicationcontrollers")
	fixture.storeDirectly(
		resource,
		&corev1.ReplicationController{
			ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns"},
			Spec:       corev1.ReplicationControllerSpec{Replicas: new(int32)},
		},
	)
	namespace := ""
	fixture.mutate = func(req *admission.Request) error {
		namespace = req.Object.(metav1.Object).GetNamespace()
		return nil
	}
	req := fixture.requestFor("c")
	req.Resource, req.Options = resource, &metav1.UpdateOptions{}
	for i := range resource.Subresources {
		if resource.Subresources[i].Scale != nil {
			req.Sub = &resource.Subresources[i]
		}
	}
	req.Object = &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	_, _ = fixture.writer.Update(t.Context(), req) // the controller itself is incomplete
	if namespace != "ns" {
		t.Errorf("mutating admission: got namespace %q, want ns", namespace)
	}
	req.Object = &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "other"}}
	if _, err := fixture.writer.Update(t.Context(), req); !apierrors.IsBadRequest(err) {
		t.Errorf("scale of another namespace: got error %v, want a bad request", err)
	}
}

// TestUpdateThatRemovesObjectReturnsItsLastVersion removes the last finalizer of an object that is
// being deleted.
func TestUpdateThatRemovesObjectReturnsItsLastVersion(t *testing.T) {
	fixture := newBase(t).fixture(t)
	live := storedConfigMap()
	live.DeletionTimestamp, live.Finalizers = &metav1.Time{Time: now}, []string{"example.com/f"}
	version := fixture.storeDirectly(fixture.kind("configmaps"), live)
	r := fixture.requestFor("c")
	r.Object, r.Options = sentConfigMap(), &metav1.UpdateOptions{}
	result, err := fixture.writer.Update(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if fixture.storedObject(fixture.kind("configmaps"), "c") != nil {
		t.Error("the object still exists")
	}
	if result.Item.Revision != version {
		t.Errorf("got version %d, want %d", result.Item.Revision, version)
	}
}

// TestUpdateOfAbsentObjectWarnsOfDuplicateOwners checks that duplicate owner references are found
// before the object is.
func TestUpdateOfAbsentObjectWarnsOfDuplicateOwners(t *testing.T) {
	fixture := newBase(t).fixture(t)
	r := fixture.requestFor("c")
	obj := sentConfigMap()
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "u"}
	obj.OwnerReferences = []metav1.OwnerReference{owner, owner}
	r.Object, r.Options = obj, &metav1.UpdateOptions{}
	ctx, warnings := requesttest.WithWarnings(t.Context())
	if _, err := fixture.writer.Update(ctx, r); !apierrors.IsNotFound(err) {
		t.Errorf("got error %v, want not found", err)
	}
	if got := warnings.Headers(); len(got) != 1 || !strings.Contains(got[0], "duplicate entries") {
		t.Errorf("got warnings %q, want one of duplicate entries", got)
	}
}

// TestMutatingAdmissionOfApplySeesSentCreationTimestamp checks that mutating admission sees the
// creationTimestamp of an apply that creates an object, as in Kubernetes, and that the stored object
// has the time of the server.
func TestMutatingAdmissionOfApplySeesSentCreationTimestamp(t *testing.T) {
	fixture := newBase(t).fixture(t)
	var seen metav1.Time
	fixture.mutate = func(r *admission.Request) error {
		seen = r.Object.(*corev1.ConfigMap).CreationTimestamp
		return nil
	}
	apply := applyPatch(types.ApplyYAMLPatchType,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","creationTimestamp":"2020-01-01T00:00:00Z"}}`)
	if _, err := apply(fixture, fixture.requestFor("c")); err != nil {
		t.Fatal(err)
	}
	if want := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC); !seen.Time.Equal(want) {
		t.Errorf("admission saw the creationTimestamp %v, want %v", seen, want)
	}
	stored := fixture.storedObject(fixture.kind("configmaps"), "c").GetCreationTimestamp()
	if want := now.Truncate(time.Second); !stored.Time.Equal(want) {
		t.Errorf("the stored creationTimestamp is %v, want %v", stored, want)
	}
}
