//go:build race

package phrases

// The race detector build packs every value with a match, so that tests of all readers cover packed
// values.
const leastValue, worthBook = 64, 1

func worthOf(int) int64 { return 0 }
