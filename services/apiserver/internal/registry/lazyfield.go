package registry

// LazyField describes the lazily decoded field of kinds that are stored as JSON and have a
// large part that few requests need. The part is copied between texts, or decoded without
// reflection. The functions return false for objects with an unusual layout, which take the
// general path. They are safe for concurrent use.
type LazyField struct {
	// Served returns the JSON of the served form of a stored text. encode converts other stored
	// texts.
	Served func(stored []byte, encode func(stored []byte) ([]byte, error)) ([]byte, bool)
	// WithMarks returns a stored text with marks in place of the large part. The text is decoded and
	// encoded like any other. restore puts the part back into the encoded text.
	WithMarks func(stored []byte) (text []byte, restore func(stored []byte) ([]byte, bool), ok bool)
	// Read decodes the JSON of the served form. decode decodes other texts; it fails for unknown or
	// duplicate fields.
	Read func(text []byte, decode func(text []byte) (Object, error)) (Object, bool)
}
