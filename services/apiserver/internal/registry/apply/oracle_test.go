package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"pgregory.net/rapid"
	"sigs.k8s.io/structured-merge-diff/v4/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v4/typed"

	"binnacle/services/apiserver/internal/registry"
)

var deploymentGVK = appsv1.SchemeGroupVersion.WithKind("Deployment")

// referenceConverter adapts a Manager's rules and Go types to the field manager of apimachinery.
type referenceConverter struct{ m *Manager }

// newReferenceManager returns the field manager of apimachinery with the rules and Go types of a manager.
func newReferenceManager(t testing.TB, manager *Manager) *managedfields.FieldManager {
	t.Helper()
	p := referenceConverter{manager}
	f, err := managedfields.NewDefaultFieldManager(p, p, p, p, manager.gvk, manager.gvk.GroupVersion(), manager.subresource,
		map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(manager.gvk.GroupVersion().String()): manager.filter})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (p referenceConverter) ObjectToTyped(o runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	return p.m.asTyped(o.(registry.Object), opts...)
}

func (p referenceConverter) TypedToObject(t *typed.TypedValue) (runtime.Object, error) {
	if u, ok := t.AsValue().Unstructured().(map[string]any); ok {
		return &unstructured.Unstructured{Object: u}, nil
	}
	return nil, fmt.Errorf("no object")
}

func (p referenceConverter) New(schema.GroupVersionKind) (runtime.Object, error) {
	return p.empty(), nil
}
func (p referenceConverter) Default(runtime.Object)    {}
func (p referenceConverter) Convert(_, _, _ any) error { return fmt.Errorf("unused") }
func (p referenceConverter) ConvertFieldLabel(schema.GroupVersionKind, string, string) (string, string, error) {
	return "", "", fmt.Errorf("unused")
}

func (p referenceConverter) ConvertToVersion(in runtime.Object, _ runtime.GroupVersioner) (runtime.Object, error) {
	object, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	out := p.empty()
	return out, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, out)
}

func (p referenceConverter) empty() registry.Object {
	o := p.m.kind.New().(registry.Object)
	o.GetObjectKind().SetGroupVersionKind(p.m.gvk)
	return o
}

// deploymentManager returns the manager of deployments without defaults, which would hide removed
// fields.
func deploymentManager(t testing.TB, sub string) *Manager {
	t.Helper()
	fields, catalog := builtinFields(t)
	k := *catalog.Kind(deploymentGVK)
	k.Default = nil
	m := fields.Manager(catalog.Kind(deploymentGVK), k.Subresource(sub))
	m.view = fields.add(&k, map[string]*view{})
	return m
}

// drawDeployment draws a part of a deployment. With whole set, the parts that validation requires
// are present.
func drawDeployment(t *rapid.T, whole bool) map[string]any {
	maybe := func(name string) bool { return rapid.Bool().Draw(t, name) }
	pick := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
	some := func(name string, of ...any) []any {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(of), 0, len(of), func(v any) any { return v }).Draw(t, name)
	}
	container := func(name string) map[string]any {
		c := map[string]any{"name": name}
		if maybe("image?") {
			c["image"] = pick("image", "i:1", "i:2")
		}
		if maybe("args?") {
			c["args"] = some("args", "x", "y")
		}
		if maybe("env?") {
			env := []any{}
			for _, n := range some("env", "X", "Y") {
				env = append(env, map[string]any{"name": n, "value": pick("value", "1", "2")})
			}
			c["env"] = env
		}
		if maybe("ports?") {
			ports := []any{}
			for _, n := range some("ports", int64(80), int64(81)) {
				ports = append(ports, map[string]any{"containerPort": n, "protocol": pick("protocol", "TCP", "UDP")})
			}
			c["ports"] = ports
		}
		return c
	}
	meta := map[string]any{"name": "d", "namespace": "n"}
	spec := map[string]any{}
	if maybe("labels?") {
		labels := map[string]any{}
		for _, n := range some("labels", "a", "b") {
			labels[n.(string)] = pick("label", "1", "2")
		}
		meta["labels"] = labels
	}
	if maybe("finalizers?") {
		meta["finalizers"] = some("finalizers", "f/a", "f/b", "f/c")
	}
	if maybe("replicas?") {
		spec["replicas"] = rapid.Int64Range(0, 3).Draw(t, "replicas")
	}
	if maybe("selector?") {
		spec["selector"] = map[string]any{"matchLabels": map[string]any{"a": pick("match", "1", "2")}}
	}
	if whole || maybe("template?") {
		containers := []any{}
		for _, n := range some("containers", "c", "d") {
			containers = append(containers, container(n.(string)))
		}
		spec["template"] = map[string]any{"spec": map[string]any{"containers": containers}}
	}
	out := map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta}
	if whole || maybe("spec?") {
		out["spec"] = spec
	}
	if maybe("status?") {
		out["status"] = map[string]any{"replicas": int64(7)}
	}
	return out
}

// comparison sends the same requests to the manager and to apimachinery's field manager.
type comparison struct {
	t             *rapid.T
	manager       *Manager
	reference     *managedfields.FieldManager
	live          registry.Object
	referenceLive registry.Object
}

func (s *comparison) drawManager() string {
	return rapid.SampledFrom([]string{
		"kubectl", "m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "m9", "m10", "m11", "m12",
	}).Draw(s.t, "manager")
}

// applyToBoth applies a random patch through both implementations and compares the results.
func (s *comparison) applyToBoth() {
	patch, manager, force := drawDeployment(s.t, false), s.drawManager(), rapid.Bool().Draw(s.t, "force")
	before := s.live.DeepCopyObject()
	got, gotErr := s.manager.Apply(context.Background(), s.live, runtime.DeepCopyJSON(patch), manager, force)
	if !sameJSON(before, s.live) {
		s.t.Fatalf("live object is changed, want it unchanged:\n%s", toJSON(s.live))
	}
	other := s.referenceLive.DeepCopyObject()
	want, wantErr := s.reference.Apply(other, &unstructured.Unstructured{Object: runtime.DeepCopyJSON(patch)}, manager, force)
	if (gotErr == nil) != (wantErr == nil) {
		s.t.Fatalf("apply: error %v, want %v", gotErr, wantErr)
	}
	if gotErr != nil {
		if apierrors.IsConflict(gotErr) != apierrors.IsConflict(wantErr) {
			s.t.Fatalf("apply: error %v, want %v", gotErr, wantErr)
		}
		s.compareConflicts(gotErr, wantErr)
		return
	}
	if force {
		s.checkSoleOwner(before.(registry.Object), got, manager)
	}
	s.acceptResults(got, want.(registry.Object))
	s.checkIdempotence(patch, manager)
}

// compareConflicts compares the causes of two conflicts as sets, because apimachinery returns them
// in random order.
func (s *comparison) compareConflicts(got, want error) {
	causes := func(err error) map[metav1.StatusCause]bool {
		out := map[metav1.StatusCause]bool{}
		if status, ok := err.(apierrors.APIStatus); ok && apierrors.IsConflict(err) {
			for _, c := range status.Status().Details.Causes {
				out[c] = true
			}
		}
		return out
	}
	if g, w := fmt.Sprint(causes(got)), fmt.Sprint(causes(want)); g != w {
		s.t.Fatalf("conflicts %s, want %s", g, w)
	}
}

// checkIdempotence repeats an apply and checks that it changes nothing, not even a time. It skips
// patches with empty lists or maps: objects omit them, so applying them is a change each time.
func (s *comparison) checkIdempotence(patch map[string]any, manager string) {
	if text := toJSON(patch); strings.Contains(text, "[]") || strings.Contains(text, "{}") {
		return
	}
	time.Sleep(time.Minute)
	got, err := s.manager.Apply(context.Background(), s.live, runtime.DeepCopyJSON(patch), manager, false)
	if err != nil || !EqualExceptTimes(got.GetManagedFields(), s.live.GetManagedFields()) || !s.manager.Equal(got, s.live) {
		s.t.Fatalf("same apply again: got %v\n%s\nwant\n%s", err, toJSON(got), toJSON(s.live))
	}
}

// checkSoleOwner checks that no other manager owns fields that a forced apply changed.
func (s *comparison) checkSoleOwner(before, after registry.Object, manager string) {
	d, err := s.manager.differences(before, after)
	if err != nil {
		s.t.Fatal(err)
	}
	for o, e := range s.manager.decodeOrNone(after.GetManagedFields()) {
		if both := e.Intersection(d.set); !(o.Manager == manager && o.isApply()) && !both.Empty() {
			s.t.Fatalf("%s: got forced fields %s, want none of them", o, both)
		}
	}
}

// updateBoth updates the object with random content through both implementations and compares the
// results.
func (s *comparison) updateBoth() {
	manager := s.drawManager()
	tree := drawDeployment(s.t, true)
	obj := s.manager.kind.New().(registry.Object)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(tree, obj); err != nil {
		s.t.Fatal(err)
	}
	obj.SetUID(s.live.GetUID())
	switch rapid.IntRange(0, 5).Draw(s.t, "managedFields") {
	case 0:
		obj.SetManagedFields(s.live.GetManagedFields())
	case 1: // malformed, and ignored
		obj.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "x", Operation: "Apply", APIVersion: "apps/v1"}})
	}
	want := obj.DeepCopyObject()
	want.GetObjectKind().SetGroupVersionKind(s.manager.gvk)
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	live := s.live
	if live.GetUID() == "" {
		live = nil
	}
	if err := s.manager.Update(context.Background(), live, obj, manager); err != nil {
		s.t.Fatal(err)
	}
	other, err := s.reference.Update(s.referenceLive.DeepCopyObject(), want, manager)
	if err != nil {
		s.t.Fatal(err)
	}
	s.acceptResults(obj, other.(registry.Object))
}

// acceptResults compares the results and makes them the live objects.
func (s *comparison) acceptResults(got, want registry.Object) {
	time.Sleep(time.Second)
	want = want.DeepCopyObject().(registry.Object)
	want.GetObjectKind().SetGroupVersionKind(s.manager.gvk)
	a := got.DeepCopyObject()
	a.GetObjectKind().SetGroupVersionKind(s.manager.gvk)
	if !sameJSON(a, want) {
		s.t.Fatalf("got\n%s, want\n%s", toJSON(a), toJSON(want))
	}
	got.SetUID(types.UID("u"))
	want.SetUID(types.UID("u"))
	s.live = got
	s.referenceLive = want
	s.checkOwnedFieldsExist()
}

// mayBeEmpty holds the fields that drawDeployment may set to an empty list or map.
var mayBeEmpty = map[string]bool{"labels": true, "finalizers": true, "args": true, "env": true, "ports": true, "containers": true}

// checkOwnedFieldsExist checks that every owned field exists in the object.
func (s *comparison) checkOwnedFieldsExist() {
	obj := s.live.DeepCopyObject().(registry.Object)
	obj.SetManagedFields(nil)
	value, err := s.manager.asTyped(obj, typed.AllowDuplicates)
	if err != nil {
		s.t.Fatal(err)
	}
	all, err := value.ToFieldSet()
	if err != nil {
		s.t.Fatal(err)
	}
	for owner, entry := range s.manager.decodeOrNone(s.live.GetManagedFields()) {
		if entry.Empty() {
			s.t.Fatalf("%s: got an entry without fields, want none", owner)
		}
		t := s.manager.typed()
		entry.Leaves().Difference(all.EnsureNamedFieldsAreMembers(t.Schema, t.TypeRef)).Iterate(func(p fieldpath.Path) {
			// Fields that were applied empty are omitted.
			if last := p[len(p)-1]; last.FieldName == nil || !mayBeEmpty[*last.FieldName] {
				s.t.Fatalf("%s: got the missing field %s, want only existing ones", owner, p)
			}
		})
	}
}

func toJSON(o any) string {
	data, err := json.Marshal(o)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func sameJSON(a, b any) bool { return toJSON(a) == toJSON(b) }

// noDeadline hides the deadline of a test, which has no meaning in a synctest bubble.
type noDeadline struct{ *testing.T }

func (noDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// TestSequencesMatchApimachinery checks that several managers apply to and update the same object.
// The object and the owners equal those of apimachinery's field manager, owned fields exist, a
// forced apply leaves no conflict, and a repeated apply changes nothing.
func TestSequencesMatchApimachinery(t *testing.T) {
	manager := deploymentManager(t, "")
	field := newReferenceManager(t, manager)
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(noDeadline{t}, func(t *rapid.T) {
			compared := &comparison{
				t:             t,
				manager:       manager,
				reference:     field,
				live:          manager.kind.New().(registry.Object),
				referenceLive: referenceConverter{manager}.empty(),
			}
			for range rapid.IntRange(1, 4).Draw(t, "requests") {
				if rapid.Bool().Draw(t, "apply?") {
					compared.applyToBoth()
				} else {
					compared.updateBoth()
				}
			}
		})
	})
}

// TestOwnershipComparesTextOfQuantities checks that quantities with equal value and different text
// are different values for ownership.
func TestOwnershipComparesTextOfQuantities(t *testing.T) {
	manager := deploymentManager(t, "")
	for _, texts := range [][2]string{
		{"1", "+1"},
		{"1", "001"},
		{"1e3", "1E3"},
		{"100", "1e2"},
		{"1e2", "100e0"},
		{"1Gi", "01Gi"},
		{"1", "2"},
	} {
		deploymentWithCPU := func(q string) *appsv1.Deployment {
			deployment := &appsv1.Deployment{}
			deployment.Name = "a"
			deployment.UID = "u"
			deployment.Spec.Template.Spec.Containers = []corev1.Container{
				{Name: "c", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse(q)}}},
			}
			deployment.GetObjectKind().SetGroupVersionKind(manager.gvk)
			return deployment
		}
		live := deploymentWithCPU(texts[0])
		obj := deploymentWithCPU(texts[1])
		updateAs(t, manager, nil, live, "one")
		other := obj.DeepCopy()
		live.SetUID("u")
		want, err := newReferenceManager(t, manager).Update(live.DeepCopy(), other, "two")
		if err != nil {
			t.Fatal(err)
		}
		if err := manager.Update(t.Context(), live, obj, "two"); err != nil {
			t.Fatal(err)
		}
		if got, want := formatOwners(obj), formatOwners(want.(registry.Object)); got != want {
			t.Errorf("%v:\n%s\nwant\n%s", texts, got, want)
		}
	}
}
