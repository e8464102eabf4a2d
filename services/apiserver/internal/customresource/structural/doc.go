// Package structural tells whether the schema of a custom resource is
// structural: every field has a type that does not hang on logic (allOf, anyOf,
// oneOf, not), what logic speaks of exists outside of it, and metadata is left
// alone (specification: "Custom resources").
//
// It looks at definitions alone and keeps no state. The rules of definitions
// and the condition NonStructuralSchema call it.
package structural
