// Package rules implements the CEL rules of custom resources: x-kubernetes-validations.
//
// For definitions, CheckSchema compiles the rules of a schema against the types that the schema
// declares, estimates their maximum cost and returns their errors. For resources, Rules are
// compiled on the first write. Equal expressions over equal types share one program. Expressions
// read values lazily from the document's tape.
//
// A Compiler and its Rules are safe for concurrent use.
package rules
