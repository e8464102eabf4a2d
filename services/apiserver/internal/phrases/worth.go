//go:build !race

package phrases

const (
	// leastValue is the size from which values are packed, in bytes.
	leastValue = 256
	// worthBook is how many bytes of values there have been before there is a book.
	worthBook = 128 << 10
)
