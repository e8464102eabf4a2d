// Package builtin puts the kinds together that every server serves: Catalog
// assembles the declarations of all groups, Scheme knows their Go types. It
// keeps no state; the server calls both once, at start, and tests wherever they
// need the whole.
package builtin
