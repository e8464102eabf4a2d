package endpoints

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/apply"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

func TestFieldManager(t *testing.T) {
	for _, c := range []struct{ asked, agent, want string }{
		{"me", "kubectl/v1", "me"},
		{"", "kubectl/v1.33.0 (linux/amd64)", "kubectl"},
		{"", "no slash", "no slash"},
		{"", "", ""},
		{"", "a\x01b\u200bc/1", "abc"},
		{"", strings.Repeat("x", 200) + "/1", strings.Repeat("x", 128)},
		{"", strings.Repeat("ä", 100), strings.Repeat("ä", 64)},
	} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header["User-Agent"] = []string{c.agent}
		if got := fieldManager(r, c.asked); got != c.want {
			t.Errorf("%q, %q: %q, want %q", c.asked, c.agent, got, c.want)
		}
	}
}

// mutator is an admission plugin.
type mutator func(*admission.Attributes)

func (m mutator) Admit(_ context.Context, a *admission.Attributes) error { m(a); return nil }

// What admission makes of managedFields counts where it can be read.
func TestManagedFieldsAfterAdmission(t *testing.T) {
	catalog, _ := builtinCodec(t)
	k := catalog.Kind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	fields := apply.New(catalog, time.Now)
	for _, c := range []struct {
		name  string
		does  func(registry.Object)
		want  string // the manager afterwards
		warns bool
	}{
		{"nothing", func(registry.Object) {}, "creator", false},
		{"another entry", func(o registry.Object) { o.GetManagedFields()[0].Manager = "plugin" }, "plugin", false},
		{"no operation", func(o registry.Object) { o.GetManagedFields()[0].Operation = "" }, "creator", true},
		{"no fields", func(o registry.Object) {
			o.GetManagedFields()[0].FieldsV1 = &metav1.FieldsV1{Raw: []byte(`{"f:`)}
		}, "creator", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &API{Config: Config{Admission: admission.NewChain(admission.Plugin{
				Name: "plugin", Plugin: mutator(func(a *admission.Attributes) { c.does(a.Object.(registry.Object)) }),
			})}}
			ctx, warnings := request.WithWarnings(t.Context())
			cl := &call{resource: &resource{Kind: k, managers: managers(fields, k)}, r: httptest.NewRequest(http.MethodPost, "/", nil).WithContext(ctx)}
			obj := &corev1.ConfigMap{Data: map[string]string{"a": "b"}}
			a.own(cl, nil, obj, &writeOptions{fieldManager: "creator"})
			if err := a.mutate(cl, obj, &admission.Attributes{Object: obj}); err != nil {
				t.Fatal(err)
			}
			if len(obj.ManagedFields) != 1 || obj.ManagedFields[0].Manager != c.want || obj.ManagedFields[0].Operation != "Update" {
				t.Errorf("managedFields %v", obj.ManagedFields)
			}
			warned := slices.ContainsFunc(warnings.Headers(), func(h string) bool { return strings.Contains(h, "was in an invalid state after admission") })
			if warned != c.warns {
				t.Errorf("warnings %q", warnings.Headers())
			}
		})
	}
}
