// Package transcode writes the JSON of an object from its protobuf message, without decoding the
// object. A Program, compiled once from a Go type, walks the message and appends the JSON that
// encoding/json would write for the decoded object, byte for byte.
//
//	Go type, its tags ─► Compile ─► Program ─► Append(dst, message) ─► dst, true
//	                                                              └► _, false: not supported
//
// Append scans a message once per level. It records the position of each field and then writes the
// fields in the order of the Go type, which is that of encoding/json. It allocates nothing and
// retains nothing, except for a cache of the common parts of the objects of one response (memo.go).
//
// Append returns false for every message whose JSON it cannot write exactly: malformed messages,
// repeated fields, maps that are not sorted, quantities that are not canonical, embedded JSON with
// white space, and objects that defaults would change (Rules). The caller then decodes and encodes
// the object, and that result or error is the response. Values that this server or kube-apiserver
// stored are none of these, unless an older version stored them before a default existed.
//
// The files: program.go compiles types, rules.go compiles the conditions of defaults, run.go walks
// messages, scan.go splits them into fields, lists.go writes lists and maps, memo.go caches pieces,
// values.go writes times, quantities, embedded JSON and other types with their own JSON form.
package transcode
