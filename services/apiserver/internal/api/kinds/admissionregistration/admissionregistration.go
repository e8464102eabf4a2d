// Package admissionregistration declares the kinds of the group admissionregistration.k8s.io, with
// one file for each kind. It has no state. Kinds returns new values for the catalog of built-in
// kinds.
package admissionregistration

import (
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"binnacle/services/apiserver/internal/cel/expressions"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

const (
	group   = admissionregistrationv1.GroupName
	version = "v1"
	beta    = "v1beta1"
	alpha   = "v1alpha1"
)

// Kinds returns the kinds of the group, ordered by resource.
func Kinds() []*registry.Kind {
	compile := compiler(sync.OnceValues(expressions.New))
	return []*registry.Kind{
		mutatingWebhookConfigurations(compile),
		validatingAdmissionPolicies(compile),
		validatingAdmissionPolicyBindings(),
		validatingWebhookConfigurations(compile),
		declare.AdditionalVersion(beta, validatingAdmissionPolicies(compile)),
		declare.AdditionalVersion(beta, validatingAdmissionPolicyBindings()),
		mutatingAdmissionPolicies(compile),
		mutatingAdmissionPolicyBindings(),
	}
}

// complete sets what all kinds of the group share in a declaration. rules validate new objects, whose
// old is nil, and changes.
func complete[T registry.Object](kind *registry.Kind, rules func(fld validate.Field, obj, old T)) *registry.Kind {
	kind.Group, kind.Categories, kind.AllowUnqualifiedFinalizers = group, []string{"api-extensions"}, true
	// As in Kubernetes, changes validate the metadata only like the metadata of a new object.
	kind.Update.Order = registry.Order{registry.MetaRules, registry.UpdateRules}
	kind.Update.Generation, kind.Update.RequireResourceVersion = true, true
	declare.SetValidation(kind, rules)
	return kind
}

// webhookColumns returns the columns of both kinds of webhook configurations.
func webhookColumns[T registry.Object](count func(T) int) []registry.Column {
	return []registry.Column{
		columns.Name(),
		columns.Int("Webhooks", "Webhooks indicates the number of webhooks registered in this configuration", func(o T) int64 {
			return int64(count(o))
		}),
		columns.Age(),
	}
}
