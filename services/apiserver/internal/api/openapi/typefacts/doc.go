// Package typefacts holds the properties of the API's Go types that only the comments of their
// source define: how lists and maps are merged, defaults, the values of enums, unions, optional
// fields, and descriptions that the types do not carry themselves.
//
// The facts are in the text file facts.txt, which `go generate` writes from the source. The file is
// part of the binary's read-only data and costs nothing until it is read. Read parses it and caches
// nothing. Package openapi calls it when it builds a document.
//
// A line has fields separated by tabs:
//
//	version <group> <version>         that the API has or had; the group may be empty
//	enum   <package>.<Type>          the string type of the following values
//	value  <text> <description>
//	type   <package>.<Type> <fact>…  of a struct: doc, mapType, union
//	field  <name in JSON> <fact>…    of the preceding struct: doc, listType, keys, mapType,
//	                                 default, required, cut
//
// A fact is <name>=<value>; doc, default and union are JSON. A cut comment of a field also hides
// the description of its enum.
package typefacts
