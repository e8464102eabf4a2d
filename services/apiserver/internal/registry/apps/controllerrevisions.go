package apps

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func controllerRevisions() *registry.Kind {
	return &registry.Kind{
		Group: group, Version: version, Resource: "controllerrevisions", Singular: "controllerrevision", Kind: "ControllerRevision",
		Namespaced: true,
		New:        declare.New[appsv1.ControllerRevision],
		NewList:    declare.New[appsv1.ControllerRevisionList],
		Stored:     registry.Stored{Prefix: "controllerrevisions"},
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("Controller", "Controller of the object", controllerText),
			// Described as in an older version, as clients know it.
			columns.Of("Revision", columns.String, "", columns.Doc(appsv1beta1.ControllerRevision{}, "revision"), 0,
				func(r *appsv1.ControllerRevision) any { return r.Revision }),
			columns.Age(),
		},
	}
}

// controllerText names the controlling owner, as in "statefulset.apps/web".
func controllerText(r *appsv1.ControllerRevision) string {
	owner := metav1.GetControllerOf(r)
	if owner == nil {
		return columns.None
	}
	kind := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind()
	if kind.Empty() {
		return owner.Name
	}
	return strings.ToLower(kind.String()) + "/" + owner.Name
}
