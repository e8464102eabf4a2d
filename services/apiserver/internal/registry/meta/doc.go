// Package meta holds the rules that every kind's metadata follows: which names
// a kind allows, what a new object's metadata must be, and what of it may
// change. It keeps no state. For every kind the endpoints call SetServerFields
// and ValidateCreate, or KeepServerFields and ValidateUpdate, before the kind's
// own rules, and GenerateName when a client left the name to the server; kinds
// pick their ValidateName from the functions here.
package meta
