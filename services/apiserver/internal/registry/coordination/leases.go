package coordination

import (
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
)

func leases(coordinated bool) *registry.Kind {
	k := &registry.Kind{
		Group: group, Version: version, Resource: "leases", Singular: "lease", Kind: "Lease",
		Namespaced:         true,
		New:                declare.New[coordinationv1.Lease],
		NewList:            declare.New[coordinationv1.LeaseList],
		Stored:             registry.Stored{Prefix: "leases"},
		AnyFinalizer:       true,
		Validate:           declare.Get(validateLease),
		ValidateUpdate:     declare.GetChange(func(l, _ *coordinationv1.Lease) field.ErrorList { return validateLease(l) }),
		CreateOnUpdate:     true,
		UpdateNeedsVersion: true,
		Columns: []registry.Column{
			columns.Name(),
			columns.Text("Holder", columns.Doc(coordinationv1.LeaseSpec{}, "holderIdentity"), func(l *coordinationv1.Lease) string {
				if l.Spec.HolderIdentity == nil {
					return ""
				}
				return *l.Spec.HolderIdentity
			}),
			columns.Age(),
		},
	}
	if !coordinated {
		k.PrepareCreate = declare.Do(func(l *coordinationv1.Lease) { dropCoordinated(&l.Spec, &coordinationv1.LeaseSpec{}) })
		k.PrepareUpdate = declare.Change(func(l, old *coordinationv1.Lease) { dropCoordinated(&l.Spec, &old.Spec) })
	}
	return k
}

// dropCoordinated clears the fields of coordinated leader election; a lease that
// has them already keeps them.
func dropCoordinated(spec, old *coordinationv1.LeaseSpec) {
	if old.Strategy == nil {
		spec.Strategy = nil
	}
	if old.PreferredHolder == nil {
		spec.PreferredHolder = nil
	}
}

func validateLease(l *coordinationv1.Lease) field.ErrorList {
	var errs field.ErrorList
	spec, path := &l.Spec, field.NewPath("spec")
	if n := spec.LeaseDurationSeconds; n != nil && *n <= 0 {
		errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *n, "must be greater than 0"))
	}
	if n := spec.LeaseTransitions; n != nil && *n < 0 {
		errs = append(errs, field.Invalid(path.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
	}
	if spec.Strategy != nil {
		errs = append(errs, validateStrategy(*spec.Strategy, path.Child("strategy"))...)
	}
	if h := spec.PreferredHolder; h != nil && *h != "" && (spec.Strategy == nil || *spec.Strategy == "") {
		errs = append(errs, field.Forbidden(path.Child("preferredHolder"), "may only be specified if `strategy` is defined"))
	}
	return errs
}

// validateStrategy wants one of the platform's own strategies or a qualified
// name. Both errors are told one level too deep, as clients know them.
func validateStrategy(s coordinationv1.CoordinatedLeaseStrategy, path *field.Path) field.ErrorList {
	path = path.Child("strategy")
	if !strings.Contains(string(s), "/") {
		if s == coordinationv1.OldestEmulationVersion {
			return nil
		}
		return field.ErrorList{field.NotSupported(path, s, []coordinationv1.CoordinatedLeaseStrategy{coordinationv1.OldestEmulationVersion})}
	}
	var errs field.ErrorList
	for _, msg := range validation.IsQualifiedName(string(s)) {
		errs = append(errs, field.Invalid(path, s, msg))
	}
	return errs
}
