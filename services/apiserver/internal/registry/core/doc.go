// Package core declares the kinds of the core group, v1, one file per kind:
// names, storage, defaults, validation, table columns and sub-resources. It
// keeps no state; Kinds makes fresh values. The catalog of the built-in kinds
// calls Kinds; the events.k8s.io group, which shares its storage with the Event
// here, calls ValidateEvent and EventColumns.
package core
