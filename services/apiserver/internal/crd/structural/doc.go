// Package structural reports whether the schema of a custom resource is structural: every field has
// a type that does not depend on junctors (allOf, anyOf, oneOf, not), every field in a junctor is also
// defined outside of it, and metadata is not restricted (specification: "Custom resources").
//
// It inspects definitions only and keeps no state. The validation of definitions and the condition
// NonStructuralSchema use it.
package structural
