// Package kind converts the definition of a custom resource to declarations of kinds, one per
// version. They correspond to the declarations of built-in kinds in package registry. Everything is
// compiled on first use: schemas for the first object, rules for the first write, merge rules for
// the first apply.
package kind
