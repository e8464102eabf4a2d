package patch

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

// patchedPod has one list of each type that strategic merges distinguish.
func patchedPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            "p",
			Labels:          map[string]string{"a": "b"},
			Finalizers:      []string{"a/x", "a/y"},
			OwnerReferences: []metav1.OwnerReference{{UID: "1", Name: "o"}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{
				{
					Name:  "a",
					Image: "x",
					Args:  []string{"1", "2"},
					Env:   []corev1.EnvVar{{Name: "E", Value: "v"}},
					Ports: []corev1.ContainerPort{{ContainerPort: 80}},
				},
				{Name: "b", Image: "y", VolumeMounts: []corev1.VolumeMount{{MountPath: "/m", Name: "v"}}},
			},
			Volumes:     []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
			Tolerations: []corev1.Toleration{{Key: "k"}},
			HostAliases: []corev1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"h"}}},
		},
	}
}

// unlimitedTarget returns a target that starts work of any cost.
func unlimitedTarget() *Target {
	return &Target{Estimate: func(context.Context, int) error { return nil }}
}

// TestStrategicPatchesAreChecked checks that invalid merge keys and list elements are rejected with
// the names of their fields.
func TestStrategicPatchesAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		patch string
		// wantErr lists texts in the error. It is empty if the patch is valid.
		wantErr []string
		code    int32
	}{
		"a typical patch": {
			patch: `{"spec":{"containers":[{"name":"a","image":"z"},{"name":"b","$patch":"delete"}],"$setElementOrder/containers":[{"name":"a"}]}}`,
		},
		"finalizers": {
			patch: `{"metadata":{"$deleteFromPrimitiveList/finalizers":["a/x"],"$setElementOrder/finalizers":["a/y"]}}`,
		},
		"an atomic list": {patch: `{"spec":{"tolerations":[{"key":"x"}],"containers":[{"name":"a","args":["3"]}]}}`},
		"a key that is a list": {
			patch:   `{"spec":{"containers":[{"name":[null]},{"name":[null]}]}}`,
			wantErr: []string{"spec.containers[0].name", "spec.containers[1].name"},
			code:    422,
		},
		"a key that is an object": {
			patch:   `{"spec":{"containers":[{"name":{}},{"name":{}}]}}`,
			wantErr: []string{"spec.containers[0].name"},
			code:    422,
		},
		"a nested key that is an object": {
			patch:   `{"spec":{"containers":[{"name":"a","env":[{"name":{}},{"name":{}}]}]}}`,
			wantErr: []string{"spec.containers[0].env[0].name"},
			code:    422,
		},
		"a deleted element with a key that is a list": {
			patch:   `{"spec":{"containers":[{"name":["a"],"$patch":"delete"}]}}`,
			wantErr: []string{"spec.containers[0].name"},
			code:    422,
		},
		"order with a list": {
			patch:   `{"spec":{"$setElementOrder/containers":[{"name":[1]},{"name":[1]}],"containers":[{"name":"a"}]}}`,
			wantErr: []string{"spec.$setElementOrder/containers[0].name"},
			code:    422,
		},
		"order of scalars with an object": {
			patch:   `{"metadata":{"$setElementOrder/finalizers":[{}]}}`,
			wantErr: []string{"metadata.$setElementOrder/finalizers[0]"},
			code:    422,
		},
		"order of a list without a key": {
			patch:   `{"spec":{"$setElementOrder/tolerations":["x"]}}`,
			wantErr: []string{"spec.$setElementOrder/tolerations"},
			code:    422,
		},
		"null elements": {
			patch:   `{"spec":{"containers":[null]}}`,
			wantErr: []string{"spec.containers[0]"},
			code:    422,
		},
		"null finalizers": {
			patch:   `{"metadata":{"finalizers":[null]}}`,
			wantErr: []string{"metadata.finalizers[0]"},
			code:    422,
		},
		"objects for finalizers": {
			patch:   `{"metadata":{"finalizers":[{}]}}`,
			wantErr: []string{"metadata.finalizers[0]"},
			code:    422,
		},
		"objects in an ordered list of scalars": {
			patch:   `{"spec":{"containers":[{"name":"a","args":[{}],"$setElementOrder/args":["1"]}]}}`,
			wantErr: []string{"spec.containers[0].args[0]"},
			code:    422,
		},
		"a deletion from no list": {
			patch:   `{"spec":{"$deleteFromPrimitiveList/securityContext":{}}}`,
			wantErr: []string{"spec.$deleteFromPrimitiveList/securityContext"},
			code:    422,
		},
		"a deletion of null": {
			patch:   `{"metadata":{"$deleteFromPrimitiveList/finalizers":[null]}}`,
			wantErr: []string{"metadata.$deleteFromPrimitiveList/finalizers[0]"},
			code:    422,
		},
		"retained keys that are objects": {
			patch:   `{"spec":{"volumes":[{"name":"v","$retainKeys":[{}]}]}}`,
			wantErr: []string{"spec.volumes[0].$retainKeys[0]"},
			code:    422,
		},
		"an unknown directive": {
			patch:   `{"metadata":{"labels":{"$patch":1}}}`,
			wantErr: []string{"metadata.labels.$patch"},
			code:    422,
		},
		"an element without a key": {
			patch:   `{"spec":{"containers":[{"image":"x:1"}]}}`,
			wantErr: []string{"does not contain declared merge key: name"},
			code:    422,
		},
		"lists of lists": {
			patch:   `{"spec":{"containers":[[1]]}}`,
			wantErr: []string{"spec.containers[0]", "must be an object"},
			code:    422,
		},
		"retained keys of no list": {
			patch:   `{"spec":{"volumes":[{"name":"v","$retainKeys":1}]}}`,
			wantErr: []string{"invalid patch format of retainKeys"},
			code:    400,
		},
		"an order that is no list": {
			patch:   `{"spec":{"$setElementOrder/containers":1}}`,
			wantErr: []string{"expected a"},
			code:    422,
		},
		"an order of an unknown field": {
			patch:   `{"spec":{"$setElementOrder/nothing":["x"]}}`,
			wantErr: []string{"nothing"},
			code:    422,
		},
		"an object for a list": {patch: `{"spec":{"containers":{"name":"a"}}}`}, // found by decoding
		"unknown fields":       {patch: `{"spec":{"more":[{"name":[]},null]},"other":{"x":[null]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			decoded, err := Decode(types.StrategicMergePatchType, []byte(test.patch), true)
			if err != nil {
				t.Fatal(err)
			}
			s := decoded.strategy.(*strategicPatch)
			_, err = s.mergeInto(t.Context(), unlimitedTarget(), patchedPod(), &corev1.Pod{}, s.tree)
			if len(test.wantErr) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			status, ok := err.(apierrors.APIStatus)
			if !ok || status.Status().Code != test.code {
				t.Fatalf("got %v, want code %d", err, test.code)
			}
			for _, text := range test.wantErr {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("got error %q, want it to contain %q", err, text)
				}
			}
		})
	}
}

// drawPatch draws a patch for a type. Most of its fields and values fit the type. It also draws
// directives.
func drawPatch(t *rapid.T, base reflect.Type, depth int) any {
	for base.Kind() == reflect.Pointer {
		base = base.Elem()
	}
	if depth == 0 || rapid.IntRange(0, 9).Draw(t, "odd") == 0 {
		return rapid.SampledFrom([]any{
			nil, "a", "b", int64(80), 1.5, true, map[string]any{}, []any{}, []any{nil}, []any{"a"},
			map[string]any{"name": "a"},
		}).Draw(t, "any")
	}
	switch base.Kind() {
	case reflect.Struct:
		out := map[string]any{}
		var names []string
		var kinds []reflect.Type
		for i := range base.NumField() {
			name, _, _ := strings.Cut(base.Field(i).Tag.Get("json"), ",")
			if name != "" {
				names = append(names, name)
				kinds = append(kinds, base.Field(i).Type)
			}
		}
		if len(names) == 0 {
			return "x"
		}
		for range rapid.IntRange(0, 3).Draw(t, "fields") {
			i := rapid.IntRange(0, len(names)-1).Draw(t, "field")
			value := drawPatch(t, kinds[i], depth-1)
			switch rapid.IntRange(0, 9).Draw(t, "as") {
			case 0:
				out[orderDirective+names[i]] = value
			case 1:
				out[deletionDirective+names[i]] = value
			case 2:
				out[orderDirective+names[i]] = value
				out[names[i]] = drawPatch(t, kinds[i], depth-1)
			default:
				out[names[i]] = value
			}
		}
		for i, name := range names { // merge keys
			if (name == "name" || name == "uid" || name == "containerPort" || name == "mountPath" || name == "ip") &&
				rapid.Bool().Draw(t, "keyed") {
				out[name] = drawPatch(t, kinds[i], 1)
			}
		}
		switch rapid.IntRange(0, 9).Draw(t, "directive") {
		case 0:
			out[patchDirective] = rapid.SampledFrom([]any{"delete", "replace", "merge", "x", int64(1), nil, []any{}}).Draw(t, "patch")
		case 1:
			out[retainKeysDirective] = rapid.SampledFrom([]any{[]any{"name"}, []any{[]any{}}, []any{nil}, "x", nil}).Draw(t, "retain")
		}
		return out
	case reflect.Slice:
		out := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "elements") {
			out = append(out, drawPatch(t, base.Elem(), depth-1))
		}
		return out
	case reflect.Map:
		return map[string]any{rapid.SampledFrom([]string{"a", "b", patchDirective}).Draw(t, "key"): drawPatch(t, base.Elem(), depth-1)}
	case reflect.String:
		return rapid.SampledFrom([]any{"a", "b", "v", "1"}).Draw(t, "text")
	}
	return rapid.SampledFrom([]any{int64(80), int64(443), true}).Draw(t, "scalar")
}

// TestStrategicPatchesDoNotPanic checks that the library and the converter handle all patches that
// pass the check.
func TestStrategicPatchesDoNotPanic(t *testing.T) {
	objects := []runtime.Object{
		patchedPod(),
		&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: patchedPod().Spec},
			Strategy: appsv1.DeploymentStrategy{
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &intstr.IntOrString{IntVal: 1}},
			}}},
		&corev1.Service{
			Spec: corev1.ServiceSpec{
				Ports:      []corev1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 443}},
				ClusterIPs: []string{"1.2.3.4"},
			},
		},
		&corev1.Node{Spec: corev1.NodeSpec{PodCIDRs: []string{"1.2.3.0/24"}, Taints: []corev1.Taint{{Key: "a"}}},
			Status: corev1.NodeStatus{
				Addresses:  []corev1.NodeAddress{{Type: "InternalIP", Address: "1.2.3.4"}},
				Conditions: []corev1.NodeCondition{{Type: "Ready"}},
			}},
		&corev1.ServiceAccount{
			Secrets:          []corev1.ObjectReference{{Name: "a"}},
			ImagePullSecrets: []corev1.LocalObjectReference{{Name: "a"}},
		},
		&networkingv1.Ingress{Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: "a"}}}},
	}
	rejected, merged := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		obj := rapid.SampledFrom(objects).Draw(t, "object")
		tree, ok := drawPatch(t, reflect.TypeOf(obj), 7).(map[string]any)
		if !ok {
			return
		}
		raw, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := Decode(types.StrategicMergePatchType, raw, true)
		if err != nil {
			t.Fatal(err)
		}
		shape := reflect.New(reflect.TypeOf(obj).Elem()).Interface().(runtime.Object)
		live, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			t.Fatal(err)
		}
		patch := decoded.strategy.(*strategicPatch).tree
		if _, err := checkStrategic(patch, live, shape); err != nil {
			rejected++
			return
		}
		out, err := mergeTree(live, patch, shape)
		if err != nil {
			return
		}
		merged++
		_ = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(out, shape, true)
	})
	if rejected == 0 || merged == 0 {
		t.Errorf("got %d rejected and %d merged patches, want some of both", rejected, merged)
	}
}

// TestErrorOfStrategicPatchShowsMergedPatch checks that the error of a result that cannot be
// decoded shows the patch without the nulls and directives that the merge removes.
func TestErrorOfStrategicPatchShowsMergedPatch(t *testing.T) {
	catalog, codec := builtinCodec(t)
	pods := catalog.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	for patch, want := range map[string]string{
		`{"spec":{"nodeSelector":{"a":null,"b":"c"},"hostNetwork":"x"}}`:               `"map[spec:map[hostNetwork:x nodeSelector:map[b:c]]]"`,
		`{"spec":{"$retainKeys":["hostNetwork"],"hostNetwork":"x"}}`:                   `"map[spec:map[hostNetwork:x]]"`,
		`{"spec":{"$setElementOrder/containers":[{"name":"b"}],"hostNetwork":"x"}}`:    `"map[spec:map[hostNetwork:x]]"`,
		`{"metadata":{"labels":{"a":null},"generation":"x"},"spec":{"priority":null}}`: `"map[metadata:map[generation:x labels:map[a:<nil>]] spec:map[priority:<nil>]]"`,
	} {
		decoded, err := Decode(types.StrategicMergePatchType, []byte(patch), true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = decoded.Apply(t.Context(), newTarget(codec, pods, patchedPod())); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %s", patch, err, want)
		}
	}
}

// TestLongListsAreRejected checks that long lists are rejected, because the time to merge lists is
// quadratic.
func TestLongListsAreRejected(t *testing.T) {
	names := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"name":"c%d"}`, i)
		}
		return b.String()[1:]
	}
	finalizers := func(n int) string { return strings.Repeat(`,"a/b"`, n)[1:] }
	for name, test := range map[string]struct {
		patch    string
		rejected bool
	}{
		"a long list":      {patch: `{"spec":{"containers":[` + names(1000) + `]}}`, rejected: false},
		"a too long list":  {patch: `{"spec":{"containers":[` + names(4000) + `]}}`, rejected: true},
		"values":           {patch: `{"metadata":{"finalizers":[` + finalizers(4000) + `]}}`, rejected: true},
		"values to delete": {patch: `{"metadata":{"$deleteFromPrimitiveList/finalizers":[` + finalizers(4000) + `]}}`, rejected: true},
		"an order":         {patch: `{"spec":{"$setElementOrder/containers":[` + names(4000) + `]}}`, rejected: true},
		"long lists within a list": {patch: `{"spec":{"containers":[` + strings.Repeat(`,{"name":"a","env":[`+names(500)+`]}`, 50)[1:] + `]}}`,
			rejected: true},
		"a long atomic list": {patch: `{"spec":{"tolerations":[` + strings.Repeat(`,{"key":"a"}`, 4000)[1:] + `]}}`, rejected: false},
	} {
		t.Run(name, func(t *testing.T) {
			decoded, err := Decode(types.StrategicMergePatchType, []byte(test.patch), true)
			if err != nil {
				t.Fatal(err)
			}
			s := decoded.strategy.(*strategicPatch)
			_, err = s.mergeInto(t.Context(), unlimitedTarget(), patchedPod(), &corev1.Pod{}, s.tree)
			if got := apierrors.IsRequestEntityTooLargeError(err); got != test.rejected || err != nil && !got {
				t.Errorf("got %.200v, want rejected %t", err, test.rejected)
			}
		})
	}
}
