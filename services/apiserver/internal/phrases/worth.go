//go:build !race

package phrases

const (
	// leastValue is the size from which values are packed, in bytes.
	leastValue = 256
	// worthBook is how many bytes of values there are before there is a book.
	worthBook = 128 << 10
	// worthPerByte is for how many bytes of values there is one of a larger text.
	worthPerByte = 8
)

// worthOf is from how many bytes of values on texts of a size are worth it.
func worthOf(size int) int64 { return worthPerByte * int64(size) }
