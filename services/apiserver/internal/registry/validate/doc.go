// Package validate has the words in which the files of the kinds say what an
// object must be: required, one of, a DNS label, a port, not negative, unique,
// at most one of, unchanged. A rule takes the place where it applies and the
// name of the field below it, and records what is wrong in the order of the
// rules, with the reasons and messages of Kubernetes 1.33:
//
//	validate.Check(func(at validate.At) {
//		spec := at.Child("spec")
//		spec.NonNegative("replicas", n)
//		validate.OneOf(spec, "restartPolicy", policy, "Always", "OnFailure", "Never")
//		validate.Each(spec, "ports", ports, portRules)
//	})
//
// Paths are built only for what is wrong and for the objects within an object.
// The package keeps no state and knows no kind.
package validate
