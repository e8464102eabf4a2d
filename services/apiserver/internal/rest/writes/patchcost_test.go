package writes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/rest/patch"
)

// TestPatchCostIncludesPatchedObject sends small patches of all types to a large object. The estimate
// covers the object, and a patch that is rejected because of it changes nothing.
func TestPatchCostIncludesPatchedObject(t *testing.T) {
	fixture := newBase(t).fixture(t)
	const size = 200_000
	fixture.storeDirectly(fixture.kind("configmaps"), storedConfigMap("large", strings.Repeat("x", size)))
	for typ, body := range map[types.PatchType]string{
		types.JSONPatchType:           `[{"op":"add","path":"/data/a","value":"1"}]`,
		types.MergePatchType:          `{"data":{"a":"1"}}`,
		types.StrategicMergePatchType: `{"data":{"a":"1"}}`,
		types.ApplyYAMLPatchType:      `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`,
	} {
		for _, admitted := range []bool{false, true} {
			estimate := 0
			ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "patch"})
			request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: func(n int) bool { estimate = max(estimate, n); return admitted }}
			r := fixture.requestFor("c")
			var err error
			if r.Patch, err = patch.Decode(typ, []byte(body), false); err != nil {
				t.Fatal(err)
			}
			_, err = fixture.writer.Patch(ctx, r)
			if admitted && err != nil || !admitted && !apierrors.IsTooManyRequests(err) || estimate < size {
				t.Errorf("%s, admitted: %t: got estimate %d, error %v, want at least %d bytes, and TooManyRequests unless admitted",
					typ, admitted, estimate, err, size)
			}
			if got := strings.Contains(summarize(fixture.storedObject(r.Resource, "c")), "a=1"); got && !admitted {
				t.Errorf("rejected %s: got it applied, want it rejected without effect", typ)
			}
			fixture.syncCache()
		}
		fixture.storeDirectly(fixture.kind("configmaps"), storedConfigMap("large", strings.Repeat("x", size)))
	}
}

// TestPatchCostIncludesWork checks that the cost of a patch includes passes over the document, the
// size of the result, and searches in lists.
func TestPatchCostIncludesWork(t *testing.T) {
	const large = 64 << 10
	finalizers := storedConfigMap("a", "1")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	var env strings.Builder
	for i := range 400 {
		finalizers.Finalizers = append(finalizers.Finalizers, fmt.Sprintf("example.com/f%d", i))
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("E%d", i)})
		fmt.Fprintf(&env, `{"name":"E%d","value":"1"},`, i)
	}
	for name, tc := range map[string]struct {
		typ  types.PatchType
		body string
		// isLarge means that the estimate reaches large.
		isLarge bool
	}{
		"one operation": {typ: types.JSONPatchType, body: `[{"op":"remove","path":"/metadata/finalizers/0"}]`},
		"many operations": {
			typ:     types.JSONPatchType,
			body:    "[" + strings.TrimSuffix(strings.Repeat(`{"op":"remove","path":"/metadata/finalizers/0"},`, 200), ",") + "]",
			isLarge: true,
		},
		"copies": {
			typ: types.JSONPatchType,
			body: `[{"op":"copy","from":"/metadata/finalizers","path":"/metadata/annotations/a"},{"op":"copy","from":"/metadata","path":"/metadata/labels"},` +
				`{"op":"copy","from":"/metadata","path":"/b"},{"op":"copy","from":"/b","path":"/c"},{"op":"copy","from":"/c","path":"/metadata/d"}]`,
			isLarge: true,
		},
		"copies that are removed": {
			typ:     types.JSONPatchType,
			body:    "[" + strings.Repeat(`{"op":"copy","from":"/metadata","path":"/metadata/x"},`, 5) + `{"op":"remove","path":"/metadata/x"}]`,
			isLarge: true,
		},
		"few elements": {
			typ:  types.StrategicMergePatchType,
			body: `{"spec":{"containers":[{"name":"c","env":[{"name":"E1","value":"1"}]}]}}`,
		},
		"many elements": {
			typ:     types.StrategicMergePatchType,
			body:    `{"spec":{"containers":[{"name":"c","env":[` + strings.TrimSuffix(env.String(), ",") + `]}]}}`,
			isLarge: true,
		},
		"a kubelet's status with an atomic list": {
			typ:  types.StrategicMergePatchType,
			body: `{"status":{"podIPs":[` + strings.TrimSuffix(strings.Repeat(`{"ip":"10.0.0.1"},`, 50), ",") + `]}}`,
		},
	} {
		finalizers.Annotations = map[string]string{"x": "y"}
		finalizers.ResourceVersion = ""
		kind := "configmaps"
		object := registry.Object(finalizers)
		if tc.typ == types.StrategicMergePatchType {
			kind = "pods"
			object = pod
		}
		fixture := newBase(t).fixture(t)
		fixture.storeDirectly(fixture.kind(kind), object.DeepCopyObject().(registry.Object))
		estimate := 0
		ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "patch"})
		request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: func(n int) bool { estimate = max(estimate, n); return n < large }}
		r := fixture.requestFor(object.GetName())
		r.Resource = fixture.kind(kind)
		var err error
		if r.Patch, err = patch.Decode(tc.typ, []byte(tc.body), false); err != nil {
			t.Fatal(err)
		}
		_, err = fixture.writer.Patch(ctx, r)
		if apierrors.IsTooManyRequests(err) != tc.isLarge {
			t.Errorf("%s: estimate %d bytes, got %v, want rejected %t", name, estimate, err, tc.isLarge)
		}
	}
}

// TestUpdateCostIncludesReplacedObject updates a large object with a small one.
func TestUpdateCostIncludesReplacedObject(t *testing.T) {
	fixture := newBase(t).fixture(t)
	const size = 200_000
	fixture.storeDirectly(fixture.kind("configmaps"), storedConfigMap("large", strings.Repeat("x", size)))
	for _, admitted := range []bool{false, true} {
		estimate := 0
		ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "update"})
		request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: func(n int) bool { estimate = max(estimate, n); return admitted }}
		r := fixture.requestFor("c")
		r.Object = storedConfigMap("a", "1")
		_, err := fixture.writer.Update(ctx, r)
		if admitted && err != nil || !admitted && !apierrors.IsTooManyRequests(err) || estimate < size {
			t.Errorf("admitted: %t: got estimate %d, error %v, want at least %d bytes, and TooManyRequests unless admitted",
				admitted, estimate, err, size)
		}
	}
}

// TestWriteIsSuspendedWhileItSettles checks that a request releases its work limit while it waits
// until the server has acted on the write.
func TestWriteIsSuspendedWhileItSettles(t *testing.T) {
	fixture := newBase(t).fixture(t)
	suspended, settled := 0, -1
	fixture.writer.WaitForRevision = map[schema.GroupResource]func(context.Context, int64){
		{Resource: "configmaps"}: func(context.Context, int64) { settled = suspended },
	}
	ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "create"})
	request.FromContext(ctx).Work = &requesttest.Work{OnSuspend: func() func() { suspended++; return func() { suspended-- } }}
	r := fixture.requestFor("c")
	r.Object = storedConfigMap("a", "1")
	if _, err := fixture.writer.Create(ctx, r); err != nil {
		t.Fatal(err)
	}
	if settled != 1 || suspended != 0 {
		t.Errorf("suspended %d times during Settled and %d times afterwards, want 1 and 0", settled, suspended)
	}
}

// TestScaleCostIncludesScaledObject sends a small patch to the scale of a large object.
func TestScaleCostIncludesScaledObject(t *testing.T) {
	fixture := newBase(t).fixture(t)
	const size = 200_000
	kind := fixture.kind("replicationcontrollers")
	fixture.storeDirectly(kind, &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns", Annotations: map[string]string{"large": strings.Repeat("x", size)}},
	})
	estimate := 0
	ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "patch"})
	request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: func(n int) bool { estimate = n; return false }}
	r := fixture.requestFor("c")
	r.Resource = kind
	for i := range kind.Subresources {
		if kind.Subresources[i].Scale != nil {
			r.Sub = &kind.Subresources[i]
		}
	}
	var err error
	if r.Patch, err = patch.Decode(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), false); err != nil {
		t.Fatal(err)
	}
	_, err = fixture.writer.Patch(ctx, r)
	if !apierrors.IsTooManyRequests(err) || estimate < size {
		t.Errorf("got estimate %d, error %v, want at least %d bytes and TooManyRequests", estimate, err, size)
	}
}

// TestPatchCostIncludesValues patches a small object with many values.
func TestPatchCostIncludesValues(t *testing.T) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "many", Namespace: "ns"},
		Spec:       corev1.PodSpec{Tolerations: make([]corev1.Toleration, 3000)},
	}
	for _, typ := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType} {
		fixture := newBase(t).fixture(t)
		r := fixture.requestFor("many")
		r.Resource = fixture.kind("pods")
		fixture.storeDirectly(r.Resource, pod.DeepCopyObject().(registry.Object))
		ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "patch"})
		request.FromContext(ctx).Work = &requesttest.Work{OnEstimate: func(n int) bool { return n < request.LargeBody }}
		var err error
		body := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"many","labels":{"a":"b"}}}`
		if r.Patch, err = patch.Decode(typ, []byte(body), false); err != nil {
			t.Fatal(err)
		}
		r.Manager = "me"
		_, err = fixture.writer.Patch(ctx, r)
		if !apierrors.IsTooManyRequests(err) {
			t.Errorf("%s: got %v, want TooManyRequests", typ, err)
		}
	}
}

// TestWaitingRequestHoldsNoValue checks that a write of a large object waits for other large work
// before it reads the object from the store. Hundreds of requests admitted wait.
func TestWaitingRequestHoldsNoValue(t *testing.T) {
	fixture := newBase(t).fixture(t)
	fixture.storeDirectly(fixture.kind("configmaps"), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: "ns"},
		Data:       map[string]string{"a": strings.Repeat("x", request.LargeBody)},
	})
	ctx := (&requesttest.Work{
		OnEstimate: func(int) bool { return false },
	}).With(requesttest.WithInfo(t.Context(), &requestinfo.Info{Verb: "patch"}))
	fixture.syncCache()
	before := fixture.store.reads
	r := fixture.requestFor("large")
	r.Resource = fixture.kind("configmaps")
	if _, err := fixture.writer.Read(ctx, r); !apierrors.IsTooManyRequests(err) || fixture.store.reads != before {
		t.Errorf("got %v after %d reads of the store, want TooManyRequests and none", err, fixture.store.reads-before)
	}
}
