package apiregistration

import (
	"testing"

	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

// TestAPIService checks the defaults, errors and cells of API services.
func TestAPIService(t *testing.T) {
	kind := Kinds()[0]
	cells := func(a *v1.APIService) (service, available any) {
		return kind.Presentation.Columns[1].Cell(a), kind.Presentation.Columns[2].Cell(a)
	}
	local := kind.New().(*v1.APIService)
	local.Status.Conditions = []v1.APIServiceCondition{{Type: v1.Available, Status: v1.ConditionFalse}}
	kind.Default(local)
	kind.Create.Prepare(local)
	if s, a := cells(local); s != "Local" || a != "True" {
		t.Errorf("local: got %v, %v, want %q, %q", s, a, "Local", "True")
	}
	remote := kind.New().(*v1.APIService)
	remote.Spec.Service = &v1.ServiceReference{Namespace: "n", Name: "s"}
	kind.Default(remote)
	if *remote.Spec.Service.Port != 443 {
		t.Errorf("got port %d, want 443", *remote.Spec.Service.Port)
	}
	kind.Create.Prepare(remote)
	if s, a := cells(remote); s != "n/s" || a != "Unknown" {
		t.Errorf("remote: got %v, %v, want %q, %q", s, a, "n/s", "Unknown")
	}
	remote.Status.Conditions = []v1.APIServiceCondition{{Type: v1.Available, Status: v1.ConditionFalse, Reason: "MissingEndpoints"}}
	if _, a := cells(remote); a != "False (MissingEndpoints)" {
		t.Errorf("remote: got %v, want %q", a, "False (MissingEndpoints)")
	}
	if _, err := registry.NewCatalog([]registry.Group{{Name: v1.GroupName, Versions: []string{"v1"}}}, Kinds()); err != nil {
		t.Error(err)
	}
}
