// Package kind makes the declaration of a kind out of the definition of a custom
// resource: what the folders of package registry say of built-in kinds, for each
// served version. Nothing is compiled before it is needed: schemas on the first
// object, rules on the first write, the merge rules on the first apply.
package kind
