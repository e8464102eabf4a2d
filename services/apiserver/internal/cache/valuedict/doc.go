// Package valuedict compresses similar values, such as pods of one template, which have the same
// probes and the same managed fields. Each of them needs a few hundred bytes plus a share of one
// dictionary.
//
// A Pool compresses values of one type. It finds byte sequences that several values share and adds
// them to a Dictionary. A compressed value consists of the bytes that are not in the dictionary,
// called its own bytes, and of references to the dictionary. Decompression copies both. It costs
// little more than reading the original: the dictionary is in the processor's caches, so only the
// compressed compressed value is loaded from memory.
//
// # Search for sequences
//
// A Pool keeps the own bytes of recent values. It compares the own bytes of a new value with them.
// A sequence that occurs in both is added to the dictionary (learn.go). The search of a value
// costs about as much as its compression. Therefore a Pool samples values after many searches
// without a result: it skips some values and then searches a few. If it finds nothing there
// either, it skips more, up to maxPause values at a time.
//
// # Full dictionaries
//
// A dictionary only grows, so that existing compressed values stay valid. When a dictionary is
// full, the Pool replaces it for new values. If the total size of all values justifies it, the new
// dictionary is larger and starts with a copy of the old text. If the old one already has the
// largest justified size, the new one is empty. The total size of all values also limits how many
// dictionaries are in use. At that limit, the Pool keeps the full dictionary and adds no
// sequences. A dictionary is freed when no value refers to it.
//
// # Format
//
// A compressed value is its uncompressed size, followed by alternating own bytes (length and
// bytes) and references (length, and position as the signed distance from the end of the previous
// reference). Numbers are varints as in encoding/binary. The format is valid within one process
// and for one dictionary only.
package valuedict
