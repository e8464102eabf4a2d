//go:build !race

package valuedict

const (
	// leastValue is the minimum size in bytes of values that are packed.
	leastValue = 256
	// worthBook is the total size of values in bytes from which there is a book.
	worthBook = 128 << 10
	// worthPerByte is the number of bytes of values that justify one byte of a larger book.
	worthPerByte = 8
)

// worthOf returns the total size of values in bytes that justifies books of the given size.
func worthOf(size int) int64 { return worthPerByte * int64(size) }
