package core_test

import (
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/api/kinds/core"
	"binnacle/services/apiserver/internal/registry"
)

// kindOf returns the kind of a resource of the core group.
func kindOf(t *testing.T, resource string) *registry.Kind {
	t.Helper()
	for _, k := range core.Kinds(registry.Settings{}) {
		if k.Resource == resource {
			return k
		}
	}
	t.Fatalf("no kind for %s", resource)
	return nil
}

// TestKindFlagsEqualReference compares the settings of each kind with Kubernetes 1.33. Resources that
// are not listed have the zero value.
func TestKindFlagsEqualReference(t *testing.T) {
	setOf := func(names ...string) map[string]bool {
		set := map[string]bool{}
		for _, n := range names {
			set[n] = true
		}
		return set
	}
	generation := setOf("pods", "podtemplates", "replicationcontrollers")
	createOnUpdate := setOf("endpoints", "events", "limitranges", "services")
	returnDeleted := setOf(
		"namespaces",
		"persistentvolumeclaims",
		"persistentvolumes",
		"pods",
		"podtemplates",
		"resourcequotas",
		"serviceaccounts",
		"services",
	)
	orphan := setOf("replicationcontrollers")
	keepStatus := setOf("nodes")
	for _, kind := range core.Kinds(registry.Settings{}) {
		for _, flag := range []struct {
			name      string
			got, want bool
		}{
			{name: "Generation", got: kind.Update.Generation, want: generation[kind.Resource]},
			{name: "AllowCreateOnUpdate", got: kind.Update.AllowCreateOnUpdate, want: createOnUpdate[kind.Resource]},
			{name: "ReturnObject", got: kind.Delete.ReturnObject, want: returnDeleted[kind.Resource]},
			{name: "Orphan", got: kind.Delete.Orphan, want: orphan[kind.Resource]},
			{name: "KeepStatus", got: kind.Create.KeepStatus, want: keepStatus[kind.Resource]},
			{name: "RequireResourceVersion", got: kind.Update.RequireResourceVersion, want: false},
			{name: "GracePeriod", got: kind.Delete.GracePeriod != nil, want: kind.Resource == "pods"},
		} {
			if flag.got != flag.want {
				t.Errorf("%s: %s: got %t, want %v", kind.Resource, flag.name, flag.got, flag.want)
			}
		}
	}
}

// TestSelectableFieldsEqualReference checks the selectable fields of each kind.
func TestSelectableFieldsEqualReference(t *testing.T) {
	want := map[string]string{
		"events":                 "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason reportingComponent source type",
		"namespaces":             "status.phase",
		"nodes":                  "spec.unschedulable",
		"pods":                   "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork status.phase status.podIP status.podIPs status.nominatedNodeName",
		"replicationcontrollers": "status.replicas",
		"secrets":                "type",
		"services":               "spec.clusterIP spec.type",
	}
	for _, kind := range core.Kinds(registry.Settings{}) {
		var labels []string
		for _, f := range kind.Presentation.Selectable {
			labels = append(labels, f.Label)
		}
		if got := strings.Join(labels, " "); got != want[kind.Resource] {
			t.Errorf("%s: got selectable fields %s, want %s", kind.Resource, got, want[kind.Resource])
		}
	}
}
