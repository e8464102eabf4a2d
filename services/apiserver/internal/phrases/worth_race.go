//go:build race

package phrases

// With the race detector all that has anything in common is packed, so that whatever reads values
// is tested with such.
const leastValue, worthBook = 64, 1

func worthOf(int) int64 { return 0 }
