//go:build !race

package valuedict

const (
	// minValue is the minimum size in bytes of values that are compressed.
	minValue = 256
	// worthDictionary is the total size of values in bytes from which there is a dictionary.
	worthDictionary = 128 << 10
	// worthPerByte is the size of values in bytes that justifies one more byte of dictionary.
	worthPerByte = 8
)

// worthOf returns the total size of values in bytes that justifies dictionaries of the given size.
func worthOf(size int) int64 { return worthPerByte * int64(size) }
