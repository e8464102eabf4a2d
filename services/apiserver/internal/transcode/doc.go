// Package transcode makes the JSON of an object from its protobuf message, without
// making the object: a Program, compiled once from a Go type, walks the message and
// appends what encoding/json would make of the decoded object, byte for byte.
//
//	Go type, its tags ─► Compile ─► Program ─► Append(dst, message) ─► dst, true
//	                                                              └► _, false: not mine
//
// A message is scanned once per level: where each field stands is noted by its place
// in the Go type, then the fields are written in that order, which is that of
// encoding/json. Nothing is allocated and nothing is kept, but for what the objects of
// one answer have in common (memo.go).
//
// A Program says "not mine" to whatever it does not make exactly: messages that are
// malformed, or give a field twice, maps that are not sorted, quantities that are not
// in their canonical form, embedded JSON with white space, and objects that defaults
// would change (Rules). The caller decodes and encodes these as ever; that answer, or
// error, is the answer. What this server, or kube-apiserver, has stored is none of
// these, unless an older version has stored it before a default was there.
//
// The files: program.go compiles types, rules.go what defaults ask for, run.go walks
// messages, which scan.go takes apart, lists.go lists and maps, memo.go remembers
// pieces, values.go writes times, quantities and other types with a form of their own,
// text.go strings and embedded JSON.
package transcode
