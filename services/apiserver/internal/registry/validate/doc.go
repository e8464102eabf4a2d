// Package validate provides the functions that kinds declare validation rules with: required, one
// of, a DNS label, a port, not negative, unique, at most one of, unchanged. A rule takes a path and
// the name of the field below it. It records errors in the order of the rules, with the reasons and
// messages of Kubernetes 1.33:
//
//	validate.Check(func(fld validate.Field) {
//		spec := fld.Child("spec")
//		spec.CheckNonNegative("replicas", n)
//		validate.OneOf(spec, "restartPolicy", policy, "Always", "OnFailure", "Never")
//		validate.Each(spec, "ports", ports, portRules)
//	})
//
// Paths are built only for errors and for nested objects. The package has no state and does not
// depend on any kind.
package validate
