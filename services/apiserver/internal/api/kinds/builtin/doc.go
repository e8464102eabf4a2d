// Package builtin assembles the kinds that every server serves. Catalog combines the declarations
// of all groups, Scheme registers their Go types. It has no state. The server calls both once at
// start.
package builtin
