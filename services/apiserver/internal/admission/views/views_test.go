package views_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/views"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/codec"
)

var (
	autoscalerV1 = autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler")
	autoscalerV2 = autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler")
)

// Replicas and CPU targets, in percent, of the objects that newAutoscalerViews returns.
const (
	newReplicas, newTarget = 5, 50
	oldReplicas, oldTarget = 3, 30
)

// newAutoscalerViews returns the views of a request in version v1 for a kind that is also served in
// v2.
func newAutoscalerViews(t *testing.T, op admission.Operation) (*views.Views, *admission.Request) {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	objectCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	var family []*apiset.Resource
	for _, gv := range []schema.GroupVersion{autoscalingv1.SchemeGroupVersion, autoscalingv2.SchemeGroupVersion} {
		k := catalog.Resource(gv.WithResource("horizontalpodautoscalers"))
		family = append(family, &apiset.Resource{Kind: k, Coder: objectCodec.ForKind(k)})
	}
	newAutoscaler := func(maxReplicas, cpu int32) runtime.Object {
		return &autoscalingv1.HorizontalPodAutoscaler{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", ResourceVersion: "7"},
			Spec:       autoscalingv1.HorizontalPodAutoscalerSpec{MaxReplicas: maxReplicas, TargetCPUUtilizationPercentage: &cpu},
		}
	}
	req := &admission.Request{Operation: op, Resource: family[0].Kind, Kind: autoscalerV1, Namespace: "ns", Name: "a"}
	if op != admission.Delete {
		req.Object = newAutoscaler(newReplicas, newTarget)
	}
	if op != admission.Create {
		req.OldObject = newAutoscaler(oldReplicas, oldTarget)
	}
	return views.NewViews(t.Context(), objectCodec, &views.StructEncodings{}, req, func() []*apiset.Resource { return family }), req
}

// viewIn returns the view of the objects in a version.
func viewIn(t *testing.T, requestViews *views.Views, kind schema.GroupVersionKind) *views.View {
	t.Helper()
	view, err := requestViews.ForKind(kind)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// TestSameVersionReturnsTheRequestObject checks that the view in the version of the request is not
// a copy.
func TestSameVersionReturnsTheRequestObject(t *testing.T) {
	requestViews, req := newAutoscalerViews(t, admission.Update)
	view := viewIn(t, requestViews, autoscalerV1)
	if view.Object != req.Object || view.Old != req.OldObject || viewIn(t, requestViews, autoscalerV1) != view {
		t.Error("got other objects, want those of the request")
	}
	if err := requestViews.WriteBack(); err != nil {
		t.Errorf("WriteBack: got error %v, want none", err)
	}
}

// TestOtherVersionIsConverted checks the objects, the JSON and the tree of a view in another version.
func TestOtherVersionIsConverted(t *testing.T) {
	requestViews, _ := newAutoscalerViews(t, admission.Update)
	view := viewIn(t, requestViews, autoscalerV2)
	o, ok := view.Object.(*autoscalingv2.HorizontalPodAutoscaler)
	if !ok || o.Spec.MaxReplicas != newReplicas || len(o.Spec.Metrics) != 1 || *o.Spec.Metrics[0].Resource.Target.AverageUtilization != newTarget ||
		o.ResourceVersion != "7" {
		t.Errorf("got object %+v, want v2 at version 7 with %d replicas and a target of %d", view.Object, newReplicas, newTarget)
	}
	if old, ok := view.Old.(*autoscalingv2.HorizontalPodAutoscaler); !ok || old.Spec.MaxReplicas != oldReplicas {
		t.Errorf("got old object %+v, want v2 with %d replicas", view.Old, oldReplicas)
	}
	b, err := view.ObjectJSON()
	if err != nil || !strings.HasPrefix(string(b), `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2",`) {
		t.Errorf("got JSON %s and error %v, want no error and the prefix `{\"kind\":\"HorizontalPodAutoscaler\",\"apiVersion\":\"autoscaling/v2\",`",
			b, err)
	}
	if again, _ := view.ObjectJSON(); &again[0] != &b[0] {
		t.Error("JSON was encoded twice")
	}
	tree, ok := view.ObjectTree().(traits.Mapper)
	if !ok || tree.Get(types.String("apiVersion")) != types.String("autoscaling/v2") ||
		tree.Get(types.String("kind")) != types.String("HorizontalPodAutoscaler") {
		t.Errorf("got tree %v, want apiVersion autoscaling/v2, kind HorizontalPodAutoscaler", tree)
	}
	if _, err := requestViews.ForKind(schema.GroupVersionKind{Group: "autoscaling", Version: "v3", Kind: "HorizontalPodAutoscaler"}); err == nil ||
		!strings.Contains(err.Error(), "unknown conversion") {
		t.Errorf("version that is not served: got %v; want the error: unknown conversion", err)
	}
}

// TestMissingObjectsAreNull checks the old object of a create and the object of a delete.
func TestMissingObjectsAreNull(t *testing.T) {
	created, _ := newAutoscalerViews(t, admission.Create)
	deleted, _ := newAutoscalerViews(t, admission.Delete)
	for _, kind := range []schema.GroupVersionKind{autoscalerV1, autoscalerV2} {
		if b, err := viewIn(t, created, kind).OldJSON(); string(b) != "null" || err != nil {
			t.Errorf("old object of a create in %s: got %s and error %v, want null and no error", kind.Version, b, err)
		}
		view := viewIn(t, deleted, kind)
		if b, err := view.ObjectJSON(); string(b) != "null" || err != nil || view.Object != nil {
			t.Errorf("object of a delete in %s: got %s and error %v, want null, no error and a nil object", kind.Version, b, err)
		}
		if tree := view.ObjectTree(); tree != nil {
			t.Errorf("object of a delete in %s: got tree %v, want nil", kind.Version, tree)
		}
	}
}

// TestChangesAreConvertedBack checks that a change in one version is visible in the next view, and
// in the object of the request at the end.
func TestChangesAreConvertedBack(t *testing.T) {
	for name, kinds := range map[string][]schema.GroupVersionKind{
		"own version":          {autoscalerV1},
		"other version":        {autoscalerV2},
		"alternating versions": {autoscalerV2, autoscalerV1, autoscalerV2},
		"other version twice":  {autoscalerV2, autoscalerV2},
	} {
		requestViews, req := newAutoscalerViews(t, admission.Update)
		want := int32(newReplicas)
		for _, kind := range kinds {
			view := viewIn(t, requestViews, kind)
			before, err := view.ObjectJSON()
			if err != nil {
				t.Fatal(err)
			}
			want++
			doc := strings.Replace(
				string(before),
				fmt.Sprintf(`"maxReplicas":%d`, want-1),
				fmt.Sprintf(`"bogus":1,"maxReplicas":%d`, want),
				1,
			)
			obj, err := view.Decode([]byte(doc))
			if err != nil {
				t.Fatal(err)
			}
			if !view.Replace(obj) {
				t.Errorf("%s: Replace reported no change in %s, want one: %s", name, kind.Version, doc)
			}
			after, err := view.ObjectJSON()
			if err != nil || string(after) == string(before) || strings.Contains(string(after), "bogus") {
				t.Errorf("%s: got view %s, %v, want it changed from %s, without the field bogus", name, after, err, before)
			}
			if view.Replace(obj.DeepCopyObject()) {
				t.Errorf("%s: Replace reported a change for an equal document, want none", name)
			}
		}
		if err := requestViews.WriteBack(); err != nil {
			t.Fatal(err)
		}
		o := req.Object.(*autoscalingv1.HorizontalPodAutoscaler)
		if o.Spec.MaxReplicas != want || *o.Spec.TargetCPUUtilizationPercentage != newTarget || o.ResourceVersion != "7" {
			t.Errorf("%s: got %+v, want %d replicas, the target %d and version 7", name, o.Spec, want, newTarget)
		}
	}
}

// TestDecodeRejectsOtherKindsAndInvalidJSON checks that a view decodes only valid objects of its kind.
func TestDecodeRejectsOtherKindsAndInvalidJSON(t *testing.T) {
	requestViews, _ := newAutoscalerViews(t, admission.Create)
	view := viewIn(t, requestViews, autoscalerV2)
	for doc, want := range map[string]string{
		`{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1","metadata":{"name":"a"}}`:       "the kind changed from autoscaling/v2, Kind=HorizontalPodAutoscaler to autoscaling/v1",
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`:                                       "the kind changed from autoscaling/v2",
		`{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2","spec":{"maxReplicas":"many"}}`: "maxReplicas",
		`{`:  "",
		`[]`: "",
	} {
		if obj, err := view.Decode([]byte(doc)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Decode(%s): got object %v and error %v, want an error that contains %q", doc, obj, err, want)
		}
	}
}

// TestKindErrorHasKubernetesMessage checks that a patched object of another kind is rejected
// with the message of Kubernetes' conversion.
func TestKindErrorHasKubernetesMessage(t *testing.T) {
	thing := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	named := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "a"}}}
	for want, kindError := range map[string]*views.KindError{
		"converting (v1.Secret) to (core.ConfigMap): unknown conversion": {
			From:   corev1.SchemeGroupVersion.WithKind("ConfigMap"),
			To:     corev1.SchemeGroupVersion.WithKind("Secret"),
			Object: &corev1.Secret{},
		},
		"converting (v1.Secret) to (rbac.Role): unknown conversion": {
			From:   rbacv1.SchemeGroupVersion.WithKind("Role"),
			To:     corev1.SchemeGroupVersion.WithKind("Secret"),
			Object: &corev1.Secret{},
		},
		`Other.example.com "a" is invalid: kind: Invalid value: "Other": must be Thing`: {
			From: thing, To: thing.GroupVersion().WithKind("Other"), Object: named,
		},
		`/v2, Kind=Thing is unstructured and is not suitable for converting to "example.com/v1"`: {
			From: thing, To: schema.GroupVersionKind{Version: "v2", Kind: "Thing"}, Object: named,
		},
	} {
		if got := kindError.Status().Error(); got != want {
			t.Errorf("KindError from %v to %v: got message %q, want %q", kindError.From, kindError.To, got, want)
		}
	}
}
