// Package meta has the rules for the metadata of all kinds: the names that a kind allows, the
// metadata of a new object, and the metadata that may change. It has no state. For every kind,
// package writes calls SetServerFields and ValidateCreate, or KeepServerFields and ValidateUpdate,
// before the kind's own rules, and GenerateName if the client omits the name. Kinds choose their
// ValidateName from the functions here.
package meta
