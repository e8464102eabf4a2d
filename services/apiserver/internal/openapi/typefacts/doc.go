// Package typefacts owns what is said of the API's Go types in the comments of their
// source alone: how lists and maps are merged, defaults, the values of enums, unions,
// what need not be given, and descriptions that types do not carry themselves.
//
// The facts are a text, facts.txt, which `go generate` writes from the source; it is
// part of the binary's read-only data and costs nothing until it is read. Read parses
// it; nothing is kept. Package openapi calls it when it makes a document.
//
// A line has fields with tabs between them:
//
//	version <group> <version>         that the API has or had; the group may be empty
//	enum   <package>.<Type>          the type of strings that the next values are of
//	value  <text> <description>
//	type   <package>.<Type> <fact>…  of a struct: doc, mapType, union
//	field  <name in JSON> <fact>…    of the struct before: doc, listType, keys, mapType,
//	                                 default, required, cut
//
// A fact is <name>=<value>; doc, default and union are JSON. What is cut in a field's
// comment also hides the description of its enum.
package typefacts
