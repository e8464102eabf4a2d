package meta_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
)

func errorTexts(errs field.ErrorList) string {
	out := make([]string, len(errs))
	for i, e := range errs {
		out[i] = e.Error()
	}
	return strings.Join(out, "\n")
}

const (
	badSubdomain = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
	badQualified = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
	badValue     = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

// TestValidateCreateReturnsMetadataErrors checks the errors of the metadata of new objects.
func TestValidateCreateReturnsMetadataErrors(t *testing.T) {
	namespaced := &registry.Kind{
		Names: registry.Names{
			Namespaced: true,
		},
	}
	yes := true
	for _, test := range []struct {
		name string
		kind *registry.Kind
		meta metav1.ObjectMeta
		want string
	}{
		{
			name: "valid metadata",
			kind: namespaced,
			meta: metav1.ObjectMeta{Name: "a", Namespace: "n", Labels: map[string]string{"x/y": "z"}},
		},
		{
			name: "neither name nor generateName",
			kind: namespaced,
			meta: metav1.ObjectMeta{Namespace: "n"},
			want: "metadata.name: Required value: name or generateName is required",
		},
		{
			name: "invalid name",
			kind: namespaced,
			meta: metav1.ObjectMeta{Name: "Bad_Name", Namespace: "n"},
			want: `metadata.name: Invalid value: "Bad_Name": ` + badSubdomain,
		},
		{
			name: "invalid generateName with a generated name",
			kind: namespaced,
			meta: metav1.ObjectMeta{Name: "Bad_abcde", GenerateName: "Bad_", Namespace: "n"},
			want: `metadata.generateName: Invalid value: "Bad_": ` + badSubdomain + "\n" +
				`metadata.name: Invalid value: "Bad_abcde": ` + badSubdomain,
		},
		{
			name: "invalid label key and annotation key",
			kind: namespaced,
			meta: metav1.ObjectMeta{
				Name:        "a",
				Namespace:   "n",
				Labels:      map[string]string{"bad key": "x"},
				Annotations: map[string]string{"/x": "1"},
			},
			want: `metadata.labels: Invalid value: "bad key": ` + badQualified + "\n" +
				`metadata.annotations: Invalid value: "/x": prefix part must be non-empty`,
		},
		{
			name: "invalid label value",
			kind: namespaced,
			meta: metav1.ObjectMeta{Name: "a", Namespace: "n", Labels: map[string]string{"good": "not ok!"}},
			want: `metadata.labels: Invalid value: "not ok!": ` + badValue,
		},
		{
			name: "unqualified finalizer and owner without a uid",
			kind: namespaced,
			meta: metav1.ObjectMeta{
				Name:            "a",
				Namespace:       "n",
				Finalizers:      []string{"noslash"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "o"}},
			},
			want: `metadata.ownerReferences.uid: Invalid value: "": uid must not be empty` + "\n" +
				`metadata.finalizers[0]: Invalid value: "noslash": name is neither a standard finalizer name nor is it fully qualified`,
		},
		{
			name: "standard finalizers",
			kind: namespaced,
			meta: metav1.ObjectMeta{Name: "a", Namespace: "n", Finalizers: []string{"kubernetes", "orphan", "example.com/x"}},
		},
		{
			name: "unqualified finalizer, if the kind allows it",
			kind: &registry.Kind{
				Names: registry.Names{
					Namespaced:                 true,
					AllowUnqualifiedFinalizers: true,
				},
			},
			meta: metav1.ObjectMeta{Name: "a", Namespace: "n", Finalizers: []string{"noslash"}},
		},
		{
			name: "conflicting finalizers",
			kind: namespaced,
			meta: metav1.ObjectMeta{Name: "a", Namespace: "n", Finalizers: []string{"orphan", "foregroundDeletion"}},
			want: `metadata.finalizers: Invalid value: []string{"orphan", "foregroundDeletion"}: finalizer orphan and foregroundDeletion cannot be both set`,
		},
		{
			name: "two controllers",
			kind: namespaced,
			meta: metav1.ObjectMeta{Name: "a", Namespace: "n", OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "A", Name: "o", UID: "1", Controller: &yes},
				{APIVersion: "v1", Kind: "B", Name: "p", UID: "2", Controller: &yes},
			}},
			want: "metadata.ownerReferences: Invalid value: *",
		},
		{
			name: "cluster-scoped object with a namespace",
			kind: &registry.Kind{},
			meta: metav1.ObjectMeta{Name: "a", Namespace: "n"},
			want: "metadata.namespace: Forbidden: not allowed on this type",
		},
		{
			name: "namespaced object without a namespace",
			kind: namespaced,
			meta: metav1.ObjectMeta{Name: "a"},
			want: "metadata.namespace: Required value",
		},
		{
			name: "name that breaks a rule of the kind",
			kind: &registry.Kind{
				Names: registry.Names{
					ValidateName: meta.DNSLabel,
				},
			},
			meta: metav1.ObjectMeta{Name: "a.b"},
			want: `metadata.name: Invalid value: "a.b": must not contain dots`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := errorTexts(meta.ValidateCreate(test.kind, &corev1.ConfigMap{ObjectMeta: test.meta}))
			// A star stands for a Go value, whose text is not specified.
			if start, cut := strings.CutSuffix(test.want, "*"); cut && strings.HasPrefix(got, start) {
				return
			}
			if got != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", got, test.want)
			}
		})
	}
}

// TestValidateUpdateReturnsErrorsOfChange checks the errors of changed metadata, which Kubernetes reports twice.
func TestValidateUpdateReturnsErrorsOfChange(t *testing.T) {
	kind := &registry.Kind{
		Names: registry.Names{
			Namespaced: true,
		},
	}
	deleted := metav1.NewTime(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC))
	live := metav1.ObjectMeta{Name: "a", Namespace: "n", UID: "u", ResourceVersion: "5", Generation: 3}
	for _, test := range []struct {
		name   string
		before func(*metav1.ObjectMeta)
		change func(*metav1.ObjectMeta)
		want   string
	}{
		{name: "no change", change: func(*metav1.ObjectMeta) {}},
		{name: "changed labels", change: func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": "b"} }},
		{
			name:   "no resourceVersion",
			change: func(m *metav1.ObjectMeta) { m.ResourceVersion = "" },
			want:   `metadata.resourceVersion: Invalid value: "": must be specified for an update`,
		},
		{
			name:   "changed name",
			change: func(m *metav1.ObjectMeta) { m.Name = "b" },
			want:   `metadata.name: Invalid value: "b": field is immutable`,
		},
		{
			name:   "lower generation",
			change: func(m *metav1.ObjectMeta) { m.Generation = 2 },
			want:   "metadata.generation: Invalid value: 2: must not be decremented",
		},
		{
			name:   "unqualified finalizer",
			change: func(m *metav1.ObjectMeta) { m.Finalizers = []string{"x"} },
			want:   `metadata.finalizers[0]: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified`,
		},
		{
			name:   "new finalizer of an object that is being deleted",
			before: func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &deleted; m.Finalizers = []string{"a/b"} },
			change: func(m *metav1.ObjectMeta) { m.Finalizers = append(m.Finalizers, "a/c") },
			want:   `metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"a/c"}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			old := live.DeepCopy()
			if test.before != nil {
				test.before(old)
			}
			changed := old.DeepCopy()
			test.change(changed)
			got := errorTexts(meta.ValidateUpdate(
				kind,
				nil,
				&corev1.ConfigMap{ObjectMeta: *changed},
				&corev1.ConfigMap{ObjectMeta: *old},
				noRules,
			))
			// The change is validated twice, its finalizers once.
			want := test.want
			if want != "" && !strings.Contains(want, "metadata.finalizers[") {
				want += "\n" + want
			}
			if got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// TestUpdateValidatesUnchangedGenerateName checks that a kind that validates the metadata of each
// update like that of a new object rejects a generateName that was written through a subresource.
func TestUpdateValidatesUnchangedGenerateName(t *testing.T) {
	kind := &registry.Kind{Names: registry.Names{Kind: "ConfigMap", Namespaced: true}}
	object := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", GenerateName: "A_b", ResourceVersion: "1"}}
	}
	for _, test := range []struct {
		order registry.Order
		want  string
	}{
		{order: nil},
		{
			order: registry.Order{registry.MetaRules, registry.UpdateRules},
			want:  `metadata.generateName: Invalid value: "A_b": ` + badSubdomain,
		},
	} {
		if got := errorTexts(meta.ValidateUpdate(kind, test.order, object(), object(), noRules)); got != test.want {
			t.Errorf("ValidateUpdate(order %v) = %s, want %s", test.order, got, test.want)
		}
	}
}

func noRules(field.ErrorList) field.ErrorList { return nil }

// TestServerFieldsOverwriteThoseOfClient checks which metadata of the client the server overwrites, and which it keeps.
func TestServerFieldsOverwriteThoseOfClient(t *testing.T) {
	at := metav1.NewTime(time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC))
	other := metav1.NewTime(time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC))
	five, six := int64(5), int64(6)
	sent := metav1.ObjectMeta{
		Name:                       "a",
		UID:                        "mine",
		CreationTimestamp:          other,
		DeletionTimestamp:          &other,
		DeletionGracePeriodSeconds: &five,
		Generation:                 9,
		SelfLink:                   "/x",
	}
	t.Run("create", func(t *testing.T) {
		obj := &corev1.ConfigMap{ObjectMeta: *sent.DeepCopy()}
		meta.SetServerFields(obj, "given", at)
		metadata := obj.ObjectMeta
		if metadata.UID != "given" || !metadata.CreationTimestamp.Equal(&at) || metadata.DeletionTimestamp != nil ||
			metadata.DeletionGracePeriodSeconds != nil || metadata.SelfLink != "" {
			t.Errorf("got server fields %+v, want uid given, the server's creation time, and no others", metadata)
		}
		if metadata.Generation != 9 || metadata.Name != "a" {
			t.Errorf("got fields of the client %+v, want generation 9, name a", metadata)
		}
	})
	old := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		UID:                        "u",
		CreationTimestamp:          at,
		DeletionTimestamp:          &at,
		DeletionGracePeriodSeconds: &six,
	}}
	t.Run("update", func(t *testing.T) {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: other, SelfLink: "/x"}}
		meta.KeepServerFields(obj, old)
		metadata := obj.ObjectMeta
		if metadata.UID != "u" || !metadata.CreationTimestamp.Equal(&at) || !metadata.DeletionTimestamp.Equal(&at) ||
			*metadata.DeletionGracePeriodSeconds != 6 || metadata.SelfLink != "" {
			t.Errorf("got server fields %+v, want those of the live object", metadata)
		}
	})
	t.Run("update with a uid and a grace period", func(t *testing.T) {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{UID: "wrong", DeletionGracePeriodSeconds: &five}}
		meta.KeepServerFields(obj, old)
		if obj.UID != types.UID("wrong") || *obj.DeletionGracePeriodSeconds != 5 {
			t.Errorf("got %+v, want the fields of the client", obj.ObjectMeta)
		}
	})
}

// TestNameRulesAcceptOnlyValidNames checks which names and name prefixes each rule allows.
func TestNameRulesAcceptOnlyValidNames(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, test := range []struct {
		name   string
		rule   func(name string, prefix bool) []string
		value  string
		prefix bool
		ok     bool
	}{
		{name: "subdomain", rule: meta.DNSSubdomain, value: "a.b-c", ok: true},
		{name: "subdomain", rule: meta.DNSSubdomain, value: "A"},
		{name: "subdomain", rule: meta.DNSSubdomain, value: "a-"},
		{name: "subdomain", rule: meta.DNSSubdomain, value: "a-", prefix: true, ok: true},
		{name: "label", rule: meta.DNSLabel, value: long, ok: true},
		{name: "label", rule: meta.DNSLabel, value: long + "a"},
		{name: "label", rule: meta.DNSLabel, value: "a.b"},
		{name: "1035 label", rule: meta.DNS1035Label, value: "1a"},
		{name: "1035 label", rule: meta.DNS1035Label, value: "a1", ok: true},
		{name: "segment", rule: meta.PathSegment, value: "system:x y", ok: true},
		{name: "segment", rule: meta.PathSegment, value: "a/b"},
		{name: "segment", rule: meta.PathSegment, value: "a%b"},
		{name: "segment", rule: meta.PathSegment, value: ".."},
	} {
		if got := test.rule(test.value, test.prefix); (len(got) == 0) != test.ok {
			t.Errorf("%s %q (prefix %t): got errors %v, want valid: %t", test.name, test.value, test.prefix, got, test.ok)
		}
	}
}

// TestGenerateNameKeepsPrefixWithinLimit checks that generated names keep the prefix, have at most 63 characters, and
// differ.
func TestGenerateNameKeepsPrefixWithinLimit(t *testing.T) {
	for prefix, kept := range map[string]string{
		"job-":                  "job-",
		"":                      "",
		strings.Repeat("a", 70): strings.Repeat("a", 58),
	} {
		got := meta.GenerateName(prefix)
		if !strings.HasPrefix(got, kept) || len(got) != len(kept)+5 {
			t.Errorf("GenerateName(%q) = %q, want it to begin with %q and 5 more characters", prefix, got, kept)
		}
		if again := meta.GenerateName(prefix); again == got {
			t.Errorf("GenerateName(%q): got %q twice, want different names", prefix, got)
		}
	}
}
