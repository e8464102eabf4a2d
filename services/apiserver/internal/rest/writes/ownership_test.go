package writes

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/request/requesttest"
)

type mutator func(*admission.Request)

func (m mutator) Admit(_ context.Context, a *admission.Request) error { m(a); return nil }

// TestAdmissionMayChangeManagedFields checks that changes of managedFields by admission are used if
// they are valid.
func TestAdmissionMayChangeManagedFields(t *testing.T) {
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	configMaps := apiset.Builder{
		Fields: apply.New(catalog, time.Now),
	}.Set(catalog, 0).Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	for _, test := range []struct {
		name   string
		change func(registry.Object)
		want   string // the manager afterwards
		warns  bool
	}{
		{name: "nothing", change: func(registry.Object) {}, want: "creator"},
		{
			name:   "another entry",
			change: func(o registry.Object) { o.GetManagedFields()[0].Manager = "plugin" },
			want:   "plugin",
		},
		{
			name:   "no operation",
			change: func(o registry.Object) { o.GetManagedFields()[0].Operation = "" },
			want:   "creator",
			warns:  true,
		},
		{
			name: "no fields",
			change: func(o registry.Object) {
				o.GetManagedFields()[0].FieldsV1 = &metav1.FieldsV1{Raw: []byte(`{"f:`)}
			},
			want:  "creator",
			warns: true,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := &Writer{Config: Config{Admission: admission.NewChain(nil, admission.Plugin{
				Name: "plugin", Plugin: mutator(func(a *admission.Request) { test.change(a.Object.(registry.Object)) }),
			})}}
			ctx, warnings := requesttest.WithWarnings(t.Context())
			r := &Request{Resource: configMaps, Manager: "creator"}
			obj := &corev1.ConfigMap{Data: map[string]string{"a": "b"}}
			if err := w.recordOwnership(t.Context(), r, nil, obj); err != nil {
				t.Fatal(err)
			}
			if err := w.runMutation(ctx, r, obj, &admission.Request{Object: obj}); err != nil {
				t.Fatal(err)
			}
			if len(obj.ManagedFields) != 1 || obj.ManagedFields[0].Manager != test.want || obj.ManagedFields[0].Operation != "Update" {
				t.Errorf("got managedFields %v, want manager %q", obj.ManagedFields, test.want)
			}
			warned := slices.ContainsFunc(warnings.Headers(), func(h string) bool {
				return strings.Contains(h, "was in an invalid state after admission")
			})
			if warned != test.warns {
				t.Errorf("got warnings %q, want %t", warnings.Headers(), test.warns)
			}
		})
	}
}
