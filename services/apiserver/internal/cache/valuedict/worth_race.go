//go:build race

package valuedict

// minValue and worthDictionary are so small in a race detector build that every value with a match
// is compressed, so that tests of all readers cover compressed values.
const minValue, worthDictionary = 64, 1

// worthOf returns 0: every dictionary is justified.
func worthOf(int) int64 { return 0 }
