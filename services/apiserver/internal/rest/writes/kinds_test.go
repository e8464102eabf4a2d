package writes_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/crd/kind"
	"binnacle/services/apiserver/internal/crd/rules"
	"binnacle/services/apiserver/internal/registry"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/rest/writes"
)

// newLimits returns the limit range "l". Its label "by" names the client that wrote it.
func newLimits(uid, by string) *corev1.LimitRange {
	return &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "l", UID: types.UID(uid), Labels: map[string]string{"by": by}},
	}
}

// withVersion sets the resourceVersion of a limit range.
func withVersion(limits *corev1.LimitRange, version string) *corev1.LimitRange {
	limits.ResourceVersion = version
	return limits
}

// TestUpdateCreatesMissingObject checks that an update creates a missing object of a kind that allows it,
// also with concurrent writes.
func TestUpdateCreatesMissingObject(t *testing.T) {
	base := newBase(t)
	tests := []struct {
		name        string
		sent        *corev1.LimitRange
		setup       func(*fixture)
		wantReason  metav1.StatusReason // of the error; empty for success
		wantCreated bool
		wantSwaps   int
	}{
		{name: "missing", sent: newLimits("", "me"), wantCreated: true, wantSwaps: 1},
		{name: "resourceVersion of a deleted object", sent: withVersion(newLimits("", "me"), "7"), wantCreated: true, wantSwaps: 1},
		{name: "UID of another object", sent: newLimits("u", "me"), wantReason: metav1.StatusReasonConflict},
		{
			name:       "creation forbidden",
			sent:       newLimits("", "me"),
			setup:      func(f *fixture) { f.forbidden = true },
			wantReason: metav1.StatusReasonForbidden,
		},
		{
			name: "created concurrently",
			sent: newLimits("", "me"),
			setup: func(f *fixture) {
				f.store.beforeSwap = func(n int, _ string, _ []byte) (bool, error) {
					if n == 1 {
						f.storeDirectly(f.kind("limitranges"), newLimits("", "you"))
					}
					return false, nil
				}
			},
			wantSwaps: 2,
		},
		{
			name: "deleted concurrently",
			sent: newLimits("", "me"),
			setup: func(f *fixture) {
				f.storeDirectly(f.kind("limitranges"), newLimits("", "you"))
				f.store.beforeSwap = func(n int, _ string, _ []byte) (bool, error) {
					if n == 1 {
						f.removeDirectly(f.kind("limitranges"), "l")
					}
					return false, nil
				}
			},
			wantCreated: true,
			wantSwaps:   2,
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			f := base.fixture(t)
			if tc.setup != nil {
				tc.setup(f)
			}
			r := f.newRequest("limitranges", "l")
			r.Object = tc.sent
			r.Options = &metav1.UpdateOptions{}
			result, err := f.writer.Update(context.Background(), r)
			if tc.wantReason == "" && err != nil || tc.wantReason != "" && apierrors.ReasonForError(err) != tc.wantReason {
				t.Fatalf("got error %v, want reason %q", err, tc.wantReason)
			}
			if result.Created != tc.wantCreated || f.store.swaps != tc.wantSwaps {
				t.Errorf("got created %v after %d swaps, want %v and %d", result.Created, f.store.swaps, tc.wantCreated, tc.wantSwaps)
			}
			if stored := f.storedObject(f.kind("limitranges"), "l"); err == nil && stored.GetLabels()["by"] != "me" {
				t.Errorf("got stored object %v, want the label by=me", stored)
			}
		})
	}
}

// TestGracePeriodCanOnlyBeShortened checks that a running pod gets its grace period, which later
// deletions can only shorten. A pod that ends immediately is written with its deletion time (first swap) before
// it is removed (second swap).
func TestGracePeriodCanOnlyBeShortened(t *testing.T) {
	type step struct {
		after          time.Duration // since the previous step
		requestedGrace *int64        // in seconds
		grace          int64         // expected grace period in seconds; removed if the pod was removed
		ends           int64         // expected end in seconds since the first step
		swaps          int           // expected number of swaps
	}
	const removed = -1
	graceSeconds := func(seconds int64) *int64 { return &seconds }
	start := now.Truncate(time.Second)
	base := newBase(t)
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		steps  []step
	}{
		"running": {steps: []step{
			{after: 0, grace: 20, ends: 20, swaps: 1},
			{after: 0, requestedGrace: graceSeconds(50), grace: 20, ends: 20, swaps: 0},
			{after: 0, requestedGrace: graceSeconds(5), grace: 5, ends: 5, swaps: 1},
			{after: 0, grace: 5, ends: 5, swaps: 0},
			{after: 0, requestedGrace: graceSeconds(0), grace: removed, ends: 0, swaps: 2},
		}},
		"shortened to less than has passed": {
			steps: []step{
				{after: 0, grace: 20, ends: 20, swaps: 1},
				{after: 4 * time.Second, requestedGrace: graceSeconds(2), grace: 1, ends: 4, swaps: 1},
				{after: 0, requestedGrace: graceSeconds(1), grace: 1, ends: 4, swaps: 0},
				{after: 0, requestedGrace: graceSeconds(0), grace: removed, ends: 0, swaps: 2},
			}},
		"shortened by a negative period": {
			steps: []step{{after: 0, grace: 20, ends: 20, swaps: 1}, {after: 0, requestedGrace: graceSeconds(-5), grace: 1, ends: 1, swaps: 1}},
		},
		"without a node": {
			change: func(pod *corev1.Pod) { pod.Spec.NodeName = "" },
			steps:  []step{{after: 0, grace: removed, ends: 0, swaps: 2}},
		},
		"finished": {change: func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded },
			steps: []step{{after: 0, requestedGrace: graceSeconds(7), grace: removed, ends: 0, swaps: 2}}},
		"already marked with period 0": {change: func(pod *corev1.Pod) {
			pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			pod.DeletionGracePeriodSeconds = graceSeconds(0)
		}, steps: []step{{after: 0, grace: removed, ends: 0, swaps: 1}}},
		"finished while terminating": {change: func(pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodFailed
			pod.DeletionTimestamp = &metav1.Time{Time: start.Add(20 * time.Second)}
			pod.DeletionGracePeriodSeconds = graceSeconds(20)
		}, steps: []step{{after: 0, grace: 20, ends: 20, swaps: 0}}},
		"held by a finalizer": {change: func(pod *corev1.Pod) { pod.Finalizers = []string{"a/b"} },
			steps: []step{
				{after: 0, requestedGrace: graceSeconds(0), grace: 0, ends: 0, swaps: 1},
				{after: 0, requestedGrace: graceSeconds(0), grace: 0, ends: 0, swaps: 0},
			}},
	} {
		t.Run(name, func(t *testing.T) {
			fixture := base.fixture(t)
			clock := start
			fixture.writer.Now = func() time.Time { return clock }
			pods := fixture.kind("pods")
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Generation: 1},
				Spec:       corev1.PodSpec{NodeName: "n", TerminationGracePeriodSeconds: ptr.To(int64(20))},
			}
			pod.Status.Phase = corev1.PodRunning
			if tc.change != nil {
				tc.change(pod)
			}
			fixture.storeDirectly(pods, pod)
			for i, step := range tc.steps {
				clock = clock.Add(step.after)
				r := fixture.newRequest("pods", "p")
				r.Options = &metav1.DeleteOptions{GracePeriodSeconds: step.requestedGrace}
				fixture.store.swaps = 0
				result, err := fixture.writer.Delete(context.Background(), r)
				if err != nil {
					t.Fatal(err)
				}
				grace, ends := int64(removed), int64(0)
				if stored := fixture.storedObject(pods, "p"); stored != nil {
					grace = *stored.GetDeletionGracePeriodSeconds()
					ends = int64(stored.GetDeletionTimestamp().Sub(start) / time.Second)
				}
				if grace != step.grace || ends != step.ends || result.Deleted != (step.grace < 0) || fixture.store.swaps != step.swaps {
					t.Errorf("step %d: got grace period %d, end %d, removed %v, %d swaps, want %+v", i,
						grace, ends, result.Deleted, fixture.store.swaps, step)
				}
			}
		})
	}
}

// TestPodDeletionWithConcurrentChange checks that a deletion completes if the pod is changed, removed or
// replaced between its two writes. A new pod with the same name stays.
func TestPodDeletionWithConcurrentChange(t *testing.T) {
	pod := func(uid, label string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(uid), Labels: map[string]string{"a": label}},
		}
	}
	base := newBase(t)
	for name, tc := range map[string]struct {
		meanwhile func(f *fixture, pods *apiset.Resource)
		wantStays bool
	}{
		"changed":  {meanwhile: func(f *fixture, pods *apiset.Resource) { f.storeDirectly(pods, pod("u", "2")) }, wantStays: false},
		"removed":  {meanwhile: func(f *fixture, pods *apiset.Resource) { f.removeDirectly(pods, "p") }, wantStays: false},
		"replaced": {meanwhile: func(f *fixture, pods *apiset.Resource) { f.storeDirectly(pods, pod("v", "2")) }, wantStays: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := base.fixture(t)
			pods := f.kind("pods")
			f.storeDirectly(pods, pod("u", "1"))
			f.store.beforeSwap = func(n int, _ string, _ []byte) (bool, error) {
				if n == 2 {
					tc.meanwhile(f, pods)
				}
				return true, nil
			}
			r := f.newRequest("pods", "p")
			r.Options = &metav1.DeleteOptions{}
			result, err := f.writer.Delete(context.Background(), r)
			if err != nil || !result.Deleted || result.Object.GetDeletionTimestamp() == nil {
				t.Errorf("got removed %v, %v, want true", result.Deleted, err)
			}
			if stays := f.storedObject(pods, "p") != nil; stays != tc.wantStays {
				t.Errorf("pod exists: got %v, want %v", stays, tc.wantStays)
			}
		})
	}
}

// newVersions returns the versions v1 and v2 of the custom resource "things". stored is the version
// in which objects are stored. In v1, the field d has a default. Both reject "wrong" in the field a.
func newVersions(t *testing.T, stored string) []*registry.Kind {
	t.Helper()
	read := func() (*apiextensionsv1.CustomResourceDefinition, error) {
		definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"}}
		names := apiextensionsv1.CustomResourceDefinitionNames{
			Plural:   "things",
			Singular: "thing",
			Kind:     "Thing",
			ListKind: "ThingList",
		}
		definition.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com",
			Names: names,
			Scope: apiextensionsv1.NamespaceScoped,
		}
		definition.Status.AcceptedNames = names
		wrong := []apiextensionsv1.ValidationRule{{Rule: "self != 'wrong'"}}
		for _, name := range []string{"v1", "v2"} {
			definition.Spec.Versions = append(definition.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
				Name:    name,
				Served:  true,
				Storage: name == stored,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"a": {Type: "string", XValidations: wrong}, "b": {Type: "string"},
					},
				}},
			})
		}
		definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["d"] = apiextensionsv1.JSONSchemaProps{
			Type:    "string",
			Default: &apiextensionsv1.JSON{Raw: []byte(`"filled"`)},
		}
		definition.Spec.Versions[1].Schema.OpenAPIV3Schema.Properties["d"] = apiextensionsv1.JSONSchemaProps{Type: "string"}
		return definition, nil
	}
	crd, err := kind.NewCRD(read, read)
	if err != nil {
		t.Fatal(err)
	}
	return (&kind.Maker{Rules: rules.NewCompiler()}).All(crd)
}

// TestPatchUsesObjectOfNewerDefinition checks that a patch is applied to an object that a server with a
// newer definition concurrently writes in another version.
func TestPatchUsesObjectOfNewerDefinition(t *testing.T) {
	base := newBase(t)
	fixture := base.fixture(t, newVersions(t, "v1")...)
	things := fixture.kind("things")
	thing := func(version, field, value string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/" + version, "kind": "Thing", "metadata": map[string]any{
				"namespace": "ns", "name": "x", "uid": "u",
			}, field: value,
		}}
	}
	storeThing := func(o *unstructured.Unstructured) {
		raw, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fixture.store.swap(things.Key("ns", "x"), raw, anyRevision); err != nil {
			t.Fatal(err)
		}
	}
	storeThing(thing("v1", "a", "1"))
	fixture.store.beforeSwap = func(n int, _ string, _ []byte) (bool, error) {
		if n == 1 {
			storeThing(thing("v2", "a", "2"))
		}
		return false, nil
	}
	r := fixture.newRequest("things", "x")
	res, err := mergePatch(`{"b":"1"}`)(fixture, r)
	if err != nil {
		t.Fatal(err)
	}
	obj, err := things.Coder.DecodeStored(res.Stored, res.Revision)
	if err != nil {
		t.Fatal(err)
	}
	patched := obj.(*unstructured.Unstructured)
	if patched.Object["a"] != "2" || patched.Object["b"] != "1" || patched.GetAPIVersion() != "example.com/v1" || fixture.store.swaps != 2 {
		t.Errorf("got %s after %d swaps, want both fields in v1 after 2", res.Stored, fixture.store.swaps)
	}
	// A value that cannot be decoded in the requested version fails the write.
	fixture.store.beforeSwap = func(int, string, []byte) (bool, error) {
		_, err := fixture.store.swap(things.Key("ns", "x"), []byte(`[]`), anyRevision)
		return false, err
	}
	fixture.store.swaps = 0
	if _, err := mergePatch(`{"b":"2"}`)(fixture, fixture.newRequest("things", "x")); err == nil || fixture.store.swaps != 1 {
		t.Errorf("invalid live value: got %v after %d swaps, want an error after 1", err, fixture.store.swaps)
	}
}

// TestPatchOfLabelsAppliesDefaults checks that a patch of labels applies the defaults of its
// version, as other patches do.
func TestPatchOfLabelsAppliesDefaults(t *testing.T) {
	base := newBase(t)
	for _, patch := range []string{`{"metadata":{"labels":{"x":"y"}}}`, `{"metadata":{"labels":{"x":"y"}},"a":"1"}`} {
		fixture := base.fixture(t, newVersions(t, "v2")...)
		things := fixture.kind("things")
		if _, err := fixture.store.swap(
			things.Key("ns", "x"),
			[]byte(`{"apiVersion":"example.com/v2","kind":"Thing","metadata":{"namespace":"ns","name":"x","uid":"u"},"a":"1"}`),
			anyRevision,
		); err != nil {
			t.Fatal(err)
		}
		res, err := mergePatch(patch)(fixture, fixture.newRequest("things", "x"))
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			APIVersion, D string
			Metadata      struct{ Labels map[string]string }
		}
		if err := json.Unmarshal(res.Stored, &got); err != nil {
			t.Fatal(err)
		}
		if got.APIVersion != "example.com/v2" || got.D != "filled" || got.Metadata.Labels["x"] != "y" {
			t.Errorf("%s: got %s, want version v2, d filled, label x=y", patch, res.Stored)
		}
	}
}

// TestMissingOrTooLongMetadataSkipsRules checks that CEL rules of a custom resource are not
// evaluated if its metadata has missing or too long values, as for other fields. Other invalid
// metadata does not matter.
func TestMissingOrTooLongMetadataSkipsRules(t *testing.T) {
	fixture := newBase(t).fixture(t, newVersions(t, "v1")...)
	long := map[string]any{"long": strings.Repeat("x", 300<<10)}
	for _, tt := range []struct {
		name     string
		update   bool // instead of a creation
		metadata map[string]any
		// wantFields are the fields of the causes. "<nil>" stands for the skipped rules.
		wantFields string
	}{
		{name: "no name", metadata: map[string]any{}, wantFields: "metadata.name <nil>"},
		{
			name:       "long annotations",
			metadata:   map[string]any{"name": "x", "annotations": long},
			wantFields: "metadata.annotations <nil>",
		},
		{
			name:       "an invalid label",
			metadata:   map[string]any{"name": "x", "labels": map[string]any{"a": "-"}},
			wantFields: "metadata.labels a",
		},
		{
			name:       "an update with long annotations",
			update:     true,
			metadata:   map[string]any{"name": "x", "annotations": long},
			wantFields: "metadata.annotations <nil>",
		},
		{name: "an update with valid metadata", update: true, metadata: map[string]any{"name": "x"}, wantFields: "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			things := fixture.kind("things")
			if _, err := fixture.store.swap(
				things.Key("ns", "x"),
				[]byte(`{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"namespace":"ns","name":"x","uid":"u"},"a":"1"}`),
				anyRevision,
			); err != nil {
				t.Fatal(err)
			}
			req := fixture.newRequest("things", "x")
			write := fixture.writer.Create
			obj := &unstructured.Unstructured{
				Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": tt.metadata, "a": "wrong"},
			}
			req.Object = obj
			req.Options = &metav1.UpdateOptions{}
			if tt.update {
				obj.SetResourceVersion(fixture.storedObject(things, "x").GetResourceVersion())
				write = fixture.writer.Update
			} else {
				req.Options = &metav1.CreateOptions{}
				req.Name = ""
			}
			_, err := write(t.Context(), req)
			var rejection *apierrors.StatusError
			if !errors.As(err, &rejection) || rejection.ErrStatus.Details == nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range rejection.ErrStatus.Details.Causes {
				if !slices.Contains(got, c.Field) {
					got = append(got, c.Field)
				}
			}
			if strings.Join(got, " ") != tt.wantFields {
				t.Errorf("got causes of the fields %q, want %q", got, tt.wantFields)
			}
		})
	}
}

// TestWriteReportsStartedWhileStoreBlocks checks that a write reports that it only waits for the
// store.
func TestWriteReportsStartedWhileStoreBlocks(t *testing.T) {
	fixture := newBase(t).fixture(t)
	for name, write := range map[string]func(context.Context, *writes.Request) (writes.Result, error){
		"create": fixture.writer.Create, "update": fixture.writer.Update,
	} {
		waits := make(chan struct{})
		fixture.store.beforeSwap = func(int, string, []byte) (bool, error) {
			select {
			case <-waits:
			case <-t.Context().Done():
			case <-time.After(30 * time.Second):
				t.Errorf("%s: got no report within 30 s, want one", name)
			}
			return false, nil
		}
		req := fixture.newRequest("limitranges", name)
		wanted := newLimits("", "me")
		wanted.Name = name
		req.Object = wanted
		if name == "update" { // creates the missing object
			req.Options = &metav1.UpdateOptions{}
		} else {
			req.Options = &metav1.CreateOptions{}
			req.Name = ""
		}
		once := sync.OnceFunc(func() { close(waits) })
		if _, err := write(
			(&requesttest.Work{OnSuspend: func() func() { once(); return func() {} }}).With(t.Context()),
			req,
		); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
