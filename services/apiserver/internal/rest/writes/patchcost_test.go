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
	"binnacle/services/apiserver/internal/rest/writes"
)

// TestPatchesWeighWhatTheyAreAppliedTo, whatever their form, and do nothing when that must not
// be worked on now.
func TestPatchesWeighWhatTheyAreAppliedTo(t *testing.T) {
	w := newBase(t).world(t)
	const size = 200_000
	w.put(w.kind("configmaps"), config("large", strings.Repeat("x", size)))
	for typ, body := range map[types.PatchType]string{
		types.JSONPatchType:           `[{"op":"add","path":"/data/a","value":"1"}]`,
		types.MergePatchType:          `{"data":{"a":"1"}}`,
		types.StrategicMergePatchType: `{"data":{"a":"1"}}`,
		types.ApplyYAMLPatchType:      `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}`,
	} {
		for _, may := range []bool{false, true} {
			weighed := 0
			ctx := requestinfo.Carry(t.Context(), &requestinfo.Info{Verb: "patch"})
			request.SetWeigh(ctx, func(n int) bool { weighed = max(weighed, n); return may })
			r := w.on("c")
			var err error
			if r.Patch, err = writes.DecodePatch(typ, []byte(body), false); err != nil {
				t.Fatal(err)
			}
			_, err = w.writer.Patch(ctx, r)
			if may && err != nil || !may && !apierrors.IsTooManyRequests(err) || weighed < size {
				t.Errorf("%s, may begin: %t: %d bytes are weighed, %v", typ, may, weighed, err)
			}
			if got := strings.Contains(show(w.stored(r.Kind, "c")), "a=1"); got && !may {
				t.Errorf("%s is applied, which may not begin", typ)
			}
			w.see()
		}
		w.put(w.kind("configmaps"), config("large", strings.Repeat("x", size)))
	}
}

// TestPatchesWeighWhatTheyDo: how often a document is gone through, what becomes of it, and what is
// looked for among what there is.
func TestPatchesWeighWhatTheyDo(t *testing.T) {
	const large = 64 << 10
	finalizers := config("a", "1")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	var env strings.Builder
	for i := range 400 {
		finalizers.Finalizers = append(finalizers.Finalizers, fmt.Sprintf("example.com/f%d", i))
		pod.Spec.Containers[0].Env = append(pod.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("E%d", i)})
		fmt.Fprintf(&env, `{"name":"E%d","value":"1"},`, i)
	}
	for name, tc := range map[string]struct {
		typ   types.PatchType
		body  string
		large bool
	}{
		"one operation":   {types.JSONPatchType, `[{"op":"remove","path":"/metadata/finalizers/0"}]`, false},
		"many operations": {types.JSONPatchType, "[" + strings.TrimSuffix(strings.Repeat(`{"op":"remove","path":"/metadata/finalizers/0"},`, 200), ",") + "]", true},
		"copies": {types.JSONPatchType, `[{"op":"copy","from":"/metadata/finalizers","path":"/metadata/annotations/a"},{"op":"copy","from":"/metadata","path":"/metadata/labels"},` +
			`{"op":"copy","from":"/metadata","path":"/b"},{"op":"copy","from":"/b","path":"/c"},{"op":"copy","from":"/c","path":"/metadata/d"}]`, true},
		"copies that are taken away": {types.JSONPatchType, "[" + strings.Repeat(`{"op":"copy","from":"/metadata","path":"/metadata/x"},`, 5) + `{"op":"remove","path":"/metadata/x"}]`, true},
		"few elements":               {types.StrategicMergePatchType, `{"spec":{"containers":[{"name":"c","env":[{"name":"E1","value":"1"}]}]}}`, false},
		"many elements":              {types.StrategicMergePatchType, `{"spec":{"containers":[{"name":"c","env":[` + strings.TrimSuffix(env.String(), ",") + `]}]}}`, true},
		"a status of a kubelet's, which replaces a list": {types.StrategicMergePatchType, `{"status":{"podIPs":[` + strings.TrimSuffix(strings.Repeat(`{"ip":"10.0.0.1"},`, 50), ",") + `]}}`, false},
	} {
		finalizers.Annotations, finalizers.ResourceVersion = map[string]string{"x": "y"}, ""
		kind, object := "configmaps", registry.Object(finalizers)
		if tc.typ == types.StrategicMergePatchType {
			kind, object = "pods", pod
		}
		w := newBase(t).world(t)
		w.put(w.kind(kind), object.DeepCopyObject().(registry.Object))
		weighed := 0
		ctx := requestinfo.Carry(t.Context(), &requestinfo.Info{Verb: "patch"})
		request.SetWeigh(ctx, func(n int) bool { weighed = max(weighed, n); return n < large })
		r := w.on(object.GetName())
		r.Kind = w.kind(kind)
		var err error
		if r.Patch, err = writes.DecodePatch(tc.typ, []byte(tc.body), false); err != nil {
			t.Fatal(err)
		}
		if _, err = w.writer.Patch(ctx, r); apierrors.IsTooManyRequests(err) != tc.large {
			t.Errorf("%s: %d bytes are weighed, %v", name, weighed, err)
		}
	}
}

// TestUpdatesWeighWhatTheyReplace: the new object may be small.
func TestUpdatesWeighWhatTheyReplace(t *testing.T) {
	w := newBase(t).world(t)
	const size = 200_000
	w.put(w.kind("configmaps"), config("large", strings.Repeat("x", size)))
	for _, may := range []bool{false, true} {
		weighed := 0
		ctx := requestinfo.Carry(t.Context(), &requestinfo.Info{Verb: "update"})
		request.SetWeigh(ctx, func(n int) bool { weighed = max(weighed, n); return may })
		r := w.on("c")
		r.Object = config("a", "1")
		_, err := w.writer.Update(ctx, r)
		if may && err != nil || !may && !apierrors.IsTooManyRequests(err) || weighed < size {
			t.Errorf("may begin: %t: %d bytes are weighed, %v", may, weighed, err)
		}
	}
}

// TestOthersWorkWhileItSettles: who waits until the server has acted on a write works on nothing.
func TestOthersWorkWhileItSettles(t *testing.T) {
	w := newBase(t).world(t)
	away, settled := 0, -1
	w.writer.Settled = map[schema.GroupResource]func(context.Context, int64){
		{Resource: "configmaps"}: func(context.Context, int64) { settled = away },
	}
	ctx := requestinfo.Carry(t.Context(), &requestinfo.Info{Verb: "create"})
	request.SetAside(ctx, func() func() { away++; return func() { away-- } })
	r := w.on("c")
	r.Object = config("a", "1")
	if _, err := w.writer.Create(ctx, r); err != nil {
		t.Fatal(err)
	}
	if settled != 1 || away != 0 {
		t.Errorf("it is aside %d times while it settles, %d times afterwards", settled, away)
	}
}

// TestScalesWeighTheirObjects: their patches are small, what they change may not be.
func TestScalesWeighTheirObjects(t *testing.T) {
	w := newBase(t).world(t)
	const size = 200_000
	k := w.kind("replicationcontrollers")
	w.put(k, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "ns", Annotations: map[string]string{"large": strings.Repeat("x", size)}}})
	weighed := 0
	ctx := requestinfo.Carry(t.Context(), &requestinfo.Info{Verb: "patch"})
	request.SetWeigh(ctx, func(n int) bool { weighed = n; return false })
	r := w.on("c")
	r.Kind = k
	for i := range k.Subresources {
		if k.Subresources[i].Scale != nil {
			r.Sub = &k.Subresources[i]
		}
	}
	var err error
	if r.Patch, err = writes.DecodePatch(types.MergePatchType, []byte(`{"spec":{"replicas":2}}`), false); err != nil {
		t.Fatal(err)
	}
	if _, err = w.writer.Patch(ctx, r); !apierrors.IsTooManyRequests(err) || weighed < size {
		t.Errorf("%d bytes are weighed, %v", weighed, err)
	}
}

// TestPatchesOfManyValues: what is there may be small, and still have many values.
func TestPatchesOfManyValues(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "many", Namespace: "ns"}, Spec: corev1.PodSpec{Tolerations: make([]corev1.Toleration, 3000)}}
	for _, typ := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType, types.ApplyYAMLPatchType} {
		w := newBase(t).world(t)
		r := w.on("many")
		r.Kind = w.kind("pods")
		w.put(r.Kind, pod.DeepCopyObject().(registry.Object))
		ctx := requestinfo.Carry(t.Context(), &requestinfo.Info{Verb: "patch"})
		request.SetWeigh(ctx, func(n int) bool { return n < request.LargeBody })
		var err error
		body := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"many","labels":{"a":"b"}}}`
		if r.Patch, err = writes.DecodePatch(typ, []byte(body), false); err != nil {
			t.Fatal(err)
		}
		r.Manager = "me"
		if _, err = w.writer.Patch(ctx, r); !apierrors.IsTooManyRequests(err) {
			t.Errorf("%s: %v", typ, err)
		}
	}
}
