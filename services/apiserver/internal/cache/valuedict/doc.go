// Package valuedict stores similar values in compressed form: pods of one template, with the same
// probes and the same managed fields, need a few hundred bytes each plus one shared text.
//
// A Pool compresses values of one type. It finds byte sequences that several values share, called
// phrases, and adds them to a Dictionary. A packed value consists of its own bytes and of
// references to the dictionary. Unpacking copies both and costs little more than reading the
// original: the dictionary is in the processor's caches, so only the small packed value must be
// loaded from memory.
//
// # How phrases are found
//
// The parts of a value that are not in the dictionary are compared with such parts of recent
// values. A part that occurs in both becomes a phrase (learn.go). The search costs as much as
// packing. The longer it finds nothing, the fewer values it examines.
//
// A dictionary only grows, so that values packed with it stay valid. A full dictionary is followed
// by a larger one that begins with the same text, as long as the size of all values justifies it,
// and then by an empty one, while the number of dictionaries in use is limited.
//
// # Format
//
// A packed value is its unpacked size, followed by alternating own bytes (length and bytes) and
// phrases (length, and position as the signed distance from the end of the previous phrase).
// Numbers are varints as in encoding/binary. The format is valid within one process and for one
// dictionary only.
package valuedict
