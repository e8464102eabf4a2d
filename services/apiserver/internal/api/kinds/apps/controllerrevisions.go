package apps

import (
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	appsv1beta1 "k8s.io/api/apps/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// controllerRevisions declares the namespaced kind ControllerRevision.
func controllerRevisions() *registry.Kind {
	return declare.Kind[appsv1.ControllerRevision, appsv1.ControllerRevisionList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "controllerrevisions", Kind: "ControllerRevision", Namespaced: true,
		},
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, r *appsv1.ControllerRevision) {
				fld.CheckNonNegative("revision", r.Revision)
				validateRevisionData(fld, r.Data.Raw)
			}),
		},
		Update: registry.Update{
			Order: registry.Order{registry.MetaUpdateRules, registry.MetaRules, registry.UpdateRules},
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, r, old *appsv1.ControllerRevision) {
				fld.CheckNonNegative("revision", r.Revision)
				fld.CheckImmutable("data", r.Data, old.Data)
			}),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text("Controller", "Controller of the object", controllerText),
			// The description is that of an older version, as in Kubernetes.
			columns.New("Revision", columns.String, "", columns.Doc(appsv1beta1.ControllerRevision{}, "revision"), 0,
				func(r *appsv1.ControllerRevision) any { return r.Revision }),
			columns.Age(),
		}},
	})
}

func validateRevisionData(fld validate.Field, data []byte) {
	if len(data) == 0 {
		fld.Required("data", "data is mandatory")
		return
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		fld.Required("data", "data must be a valid JSON object")
	}
}

// controllerText returns the controlling owner, as in "statefulset.apps/web".
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
