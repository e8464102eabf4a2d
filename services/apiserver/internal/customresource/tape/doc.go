// Package tape reads a JSON document into a flat list of its values, so that
// schemas, rules and comparisons walk it without decoding it.
//
// A Doc owns the list; a Ref is a place in it. The list has the values in the
// order of the text, and in objects a key before each value:
//
//	{"a":[1,"x"]}   →   object, key a, array, 1, "x"
//
// Each entry tells where its text stands and which entry follows the value as
// a whole, so that siblings are found without looking into values. Numbers are
// int64 where the text is an integer that fits, else float64, as Kubernetes
// decodes them; their text is kept.
//
// Memory is 16 bytes per entry, pooled: Parse takes a list from the pool and
// Release returns it. Documents deeper than MaxDepth or longer than MaxBytes
// are refused.
//
// A Doc is immutable and safe for concurrent use until it is released.
package tape
