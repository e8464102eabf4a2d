// Package tape parses a JSON document into a flat list of its values, so that schemas, rules and
// comparisons walk it without decoding it.
//
// A Doc owns the list. A Ref is an index into it. The list holds the values in the order of the
// text. In objects, a key precedes each value:
//
//	{"a":[1,"x"]}   →   object, key a, array, 1, "x"
//
// Each entry records the position of its text and the entry that follows the whole value. So
// siblings are found without visiting nested values. Like in Kubernetes, a number is an int64 if
// its text is an integer that fits, else a float64. Its text is kept.
//
// An entry takes 16 bytes. Parse takes a list from a pool and Release returns it. Documents deeper
// than MaxDepth or longer than MaxBytes are rejected.
//
// A Doc is immutable and safe for concurrent use until it is released.
package tape
