// Package core declares the kinds of the core group, v1, with one file for each kind: names,
// storage, defaults, validation, table columns and subresources. It has no state. Kinds returns new
// values for the catalog of built-in kinds. The group events.k8s.io, which shares its storage with
// the Event here, uses ValidateEvent and EventColumns.
package core
