package registry

// LazyField describes the lazily decoded field of kinds that are stored as JSON and have a large
// part that few requests need. That part is copied between texts, or decoded without reflection. If
// the object has an unusual layout, a function returns false for ok, and the caller decodes the
// full object. The functions are safe for concurrent use.
type LazyField struct {
	// ToServed returns the JSON of a stored object in the served version. encode does the same for
	// a stored text without its large part.
	ToServed func(stored []byte, encode func(stored []byte) ([]byte, error)) (served []byte, ok bool)
	// WithPlaceholders returns a stored text with placeholders in place of the large part. The text
	// can be decoded, changed and encoded. restore puts the part back into the encoded text.
	WithPlaceholders func(stored []byte) (data []byte, restore func(stored []byte) ([]byte, bool), ok bool)
	// Decode decodes an object from the JSON of the served version. decode decodes a text without
	// its large part. It returns an error for unknown or duplicate fields.
	Decode func(data []byte, decode func(data []byte) (Object, error)) (o Object, ok bool)
}
