// Package structural checks whether the schema of a custom resource is structural (specification:
// "Custom resources"). A structural schema satisfies these conditions:
//
//   - Every field has a type, which is defined outside of the junctors allOf, anyOf, oneOf and not.
//   - Every field within a junctor is also defined outside of the junctor.
//   - The schema does not restrict metadata, except for the name and generateName.
//
// The package only inspects definitions, and has no state. The validation of definitions and the
// controller of the condition NonStructuralSchema use it.
package structural
