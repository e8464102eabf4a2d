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

// TestFlags compares the rules of each kind with Kubernetes 1.33. Resources that are not listed
// have the zero value.
func TestFlags(t *testing.T) {
	in := func(names ...string) map[string]bool {
		set := map[string]bool{}
		for _, n := range names {
			set[n] = true
		}
		return set
	}
	generation := in("pods", "podtemplates", "replicationcontrollers")
	createOnUpdate := in("endpoints", "events", "limitranges", "services")
	returnDeleted := in(
		"namespaces",
		"persistentvolumeclaims",
		"persistentvolumes",
		"pods",
		"podtemplates",
		"resourcequotas",
		"serviceaccounts",
		"services",
	)
	orphan := in("replicationcontrollers")
	keepStatus := in("nodes")
	for _, kind := range core.Kinds(registry.Settings{}) {
		for _, flag := range []struct {
			name      string
			got, want bool
		}{
			{name: "Generation", got: kind.Update.Generation, want: generation[kind.Resource]},
			{name: "CreateOnUpdate", got: kind.Update.AllowCreateOnUpdate, want: createOnUpdate[kind.Resource]},
			{name: "ReturnDeleted", got: kind.Delete.ReturnObject, want: returnDeleted[kind.Resource]},
			{name: "DefaultOrphan", got: kind.Delete.Orphan, want: orphan[kind.Resource]},
			{name: "KeepStatus", got: kind.Create.KeepStatus, want: keepStatus[kind.Resource]},
			{name: "UpdateNeedsVersion", got: kind.Update.RequireResourceVersion, want: false},
			{name: "GracePeriod", got: kind.Delete.GracePeriod != nil, want: kind.Resource == "pods"},
		} {
			if flag.got != flag.want {
				t.Errorf("%s: %s: got %t, want %v", kind.Resource, flag.name, flag.got, flag.want)
			}
		}
	}
}

// TestSelectableLabels checks the selectable fields of each kind.
func TestSelectableLabels(t *testing.T) {
	want := map[string]string{
		"events":                 "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason reportingComponent source type",
		"namespaces":             "status.phase",
		"nodes":                  "spec.unschedulable",
		"pods":                   "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName spec.hostNetwork status.phase status.podIP status.podIPs status.nominatedNodeName",
		"replicationcontrollers": "status.replicas",
		"secrets":                "type",
		"services":               "spec.clusterIP spec.type",
	}
	for _, k := range core.Kinds(registry.Settings{}) {
		var labels []string
		for _, f := range k.Presentation.Selectable {
			labels = append(labels, f.Label)
		}
		if got := strings.Join(labels, " "); got != want[k.Resource] {
			t.Errorf("%s: got selectable fields %s, want %s", k.Resource, got, want[k.Resource])
		}
	}
}
