package apiregistration

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// Kinds returns the kinds of the group.
func Kinds() []*registry.Kind {
	return []*registry.Kind{apiServices()}
}

// apiServices declares the cluster-scoped kind APIService.
func apiServices() *registry.Kind {
	return declare.Kind[v1.APIService, v1.APIServiceList](&registry.Kind{
		Names: registry.Names{
			Group:      v1.GroupName,
			Version:    "v1",
			Resource:   "apiservices",
			Kind:       "APIService",
			Categories: []string{"api-extensions"},
			// The name for the core group is "v1.".
			ValidateObjectName:         validateName,
			AllowUnqualifiedFinalizers: true,
		},
		Parts:  declare.SpecStatusAccessors(func(a *v1.APIService) (*v1.APIServiceSpec, *v1.APIServiceStatus) { return &a.Spec, &a.Status }),
		Stored: registry.StorageForm{Prefix: "apiregistration.k8s.io/apiservices", JSON: true},
		Default: declare.Adapt(func(a *v1.APIService) {
			if a.Spec.Service != nil {
				declare.SetDefaultPtr(&a.Spec.Service.Port, 443)
			}
		}),
		Create: registry.Create{
			// A local APIService is available from its creation, as its status records.
			KeepStatus: true,
			Prepare: declare.Adapt(func(a *v1.APIService) {
				a.Status = v1.APIServiceStatus{}
				if a.Spec.Service == nil {
					a.Status.Conditions = []v1.APIServiceCondition{LocalAvailable()}
				}
			}),
			Validate: declare.AdaptValidation(validateAPIService),
		},
		Update: registry.Update{
			Order:                  registry.Order{registry.MetaUpdateRules, registry.MetaRules, registry.UpdateRules},
			RequireResourceVersion: true,
			Validate: declare.AdaptUpdateValidation(
				func(fld validate.Field, a, _ *v1.APIService) { validateAPIService(fld, a) },
			),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text("Service", "The reference to the service that hosts this API endpoint.", serviceText),
			columns.Text("Available", "Whether this service is available.", availableText),
			columns.Age(),
		}},
		Subresources: []registry.Subresource{
			declare.WithoutTable(declare.WithResetFields(declare.ValidatedView("status", "APIService", func(a, old *v1.APIService) {
				a.Spec = old.Spec
				declare.ResetMetaForStatus(a, old)
			}, func(fld validate.Field, a, _ *v1.APIService) {
				validateAPIServiceStatus(fld.Child("status"), &a.Status)
			}), "metadata", "spec")),
		},
	})
}

// LocalAvailable returns the condition of an APIService that this server serves.
func LocalAvailable() v1.APIServiceCondition {
	return v1.APIServiceCondition{
		Type: v1.Available, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now(),
		Reason: "Local", Message: "Local APIServices are always available",
	}
}

// serviceText returns the service of an API, or Local.
func serviceText(a *v1.APIService) string {
	if s := a.Spec.Service; s != nil {
		return s.Namespace + "/" + s.Name
	}
	return "Local"
}

// availableText returns the state of the condition Available, with its reason if it is not true.
func availableText(a *v1.APIService) string {
	for _, condition := range a.Status.Conditions {
		if condition.Type != v1.Available {
			continue
		}
		if condition.Status == v1.ConditionTrue {
			return string(condition.Status)
		}
		return fmt.Sprintf("%s (%s)", condition.Status, condition.Reason)
	}
	return string(v1.ConditionUnknown)
}
