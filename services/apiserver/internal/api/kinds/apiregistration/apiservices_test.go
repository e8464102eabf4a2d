package apiregistration

import (
	"testing"

	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

// cellsOf returns the cells of the service and of the availability.
func cellsOf(apiService *v1.APIService) (service, available any) {
	columns := Kinds()[0].Presentation.Columns
	return columns[1].Cell(apiService), columns[2].Cell(apiService)
}

// TestLocalAPIServiceIsAvailable checks that creation sets the condition of an APIService without a
// service, whatever the client sent.
func TestLocalAPIServiceIsAvailable(t *testing.T) {
	kind := Kinds()[0]
	local := kind.New().(*v1.APIService)
	local.Status.Conditions = []v1.APIServiceCondition{{Type: v1.Available, Status: v1.ConditionFalse}}
	kind.Default(local)
	kind.Create.Prepare(local)
	if service, available := cellsOf(local); service != "Local" || available != "True" {
		t.Errorf("got cells %v and %v, want Local and True", service, available)
	}
}

// TestRemoteAPIServiceShowsServiceAndReason checks the default port and the cells of an APIService
// with a service.
func TestRemoteAPIServiceShowsServiceAndReason(t *testing.T) {
	kind := Kinds()[0]
	remote := kind.New().(*v1.APIService)
	remote.Spec.Service = &v1.ServiceReference{Namespace: "n", Name: "s"}
	kind.Default(remote)
	if port := *remote.Spec.Service.Port; port != 443 {
		t.Errorf("got port %d, want 443", port)
	}
	kind.Create.Prepare(remote)
	if service, available := cellsOf(remote); service != "n/s" || available != "Unknown" {
		t.Errorf("after creation: got cells %v and %v, want n/s and Unknown", service, available)
	}
	remote.Status.Conditions = []v1.APIServiceCondition{{Type: v1.Available, Status: v1.ConditionFalse, Reason: "MissingEndpoints"}}
	if _, available := cellsOf(remote); available != "False (MissingEndpoints)" {
		t.Errorf("after a check: got cell %v, want %q", available, "False (MissingEndpoints)")
	}
}

// TestCatalogAcceptsKind checks that the declaration of the kind is complete.
func TestCatalogAcceptsKind(t *testing.T) {
	if _, err := registry.NewCatalog([]registry.Group{{Name: v1.GroupName, Versions: []string{"v1"}}}, Kinds()); err != nil {
		t.Error(err)
	}
}
