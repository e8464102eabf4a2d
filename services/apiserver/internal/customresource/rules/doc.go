// Package rules is the CEL of custom resources: x-kubernetes-validations.
//
// For definitions, CheckSchema compiles the rules of a schema against the
// types that the schema declares, estimates what they cost at most and returns
// what is wrong with them. For resources, Rules are compiled on the first
// write; equal expressions over equal types share one program. Values are read
// from the document's tape as the expression asks for them.
//
// A Compiler and the Rules it makes are safe for concurrent use.
package rules
