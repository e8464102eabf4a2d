package coordination

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// leases declares the namespaced kind Lease.
func leases(coordinated bool) *registry.Kind {
	kind := declare.Kind[coordinationv1.Lease, coordinationv1.LeaseList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "leases", Kind: "Lease", Namespaced: true,
			AllowUnqualifiedFinalizers: true,
		},
		Create: registry.Create{Validate: declare.AdaptValidation(validateLease)},
		Update: registry.Update{
			AllowCreateOnUpdate:    true,
			RequireResourceVersion: true,
			Validate: declare.AdaptUpdateValidation(
				func(fld validate.Field, lease, _ *coordinationv1.Lease) { validateLease(fld, lease) },
			),
		},
		Presentation: registry.Presentation{Columns: []registry.Column{
			columns.Name(),
			columns.Text("Holder", columns.Doc(coordinationv1.LeaseSpec{}, "holderIdentity"), func(lease *coordinationv1.Lease) string {
				if lease.Spec.HolderIdentity == nil {
					return ""
				}
				return *lease.Spec.HolderIdentity
			}),
			columns.Age(),
		}},
	})
	if !coordinated {
		kind.Create.Prepare = declare.Adapt(func(lease *coordinationv1.Lease) { dropCoordinated(&lease.Spec, &coordinationv1.LeaseSpec{}) })
		kind.Update.Prepare = declare.AdaptUpdate(func(lease, old *coordinationv1.Lease) { dropCoordinated(&lease.Spec, &old.Spec) })
	}
	return kind
}

// dropCoordinated clears the fields of coordinated leader election, unless the stored lease has
// them.
func dropCoordinated(spec, old *coordinationv1.LeaseSpec) {
	if old.Strategy == nil {
		spec.Strategy = nil
	}
	if old.PreferredHolder == nil {
		spec.PreferredHolder = nil
	}
}

func validateLease(fld validate.Field, l *coordinationv1.Lease) {
	s, spec := &l.Spec, fld.Child("spec")
	if n := s.LeaseDurationSeconds; n != nil && *n <= 0 {
		spec.Invalid("leaseDurationSeconds", *n, "must be greater than 0")
	}
	validate.OptionalNonNegative(spec, "leaseTransitions", s.LeaseTransitions)
	if s.Strategy != nil {
		validateStrategy(spec.Child("strategy"), *s.Strategy)
	}
	if declare.Deref(s.PreferredHolder) != "" && declare.Deref(s.Strategy) == "" {
		spec.Forbidden("preferredHolder", "may only be specified if `strategy` is defined")
	}
}

// validateStrategy requires a standard strategy or a qualified name. Both errors are reported one
// path level too deep, as in Kubernetes.
func validateStrategy(fld validate.Field, s coordinationv1.CoordinatedLeaseStrategy) {
	if strings.Contains(string(s), "/") {
		fld.Child("strategy").InvalidMessages("", s, validate.QualifiedName(string(s)))
		return
	}
	validate.OneOf(fld, "strategy", s, coordinationv1.OldestEmulationVersion)
}
