package registry

// Apart is for kinds whose objects are stored as JSON and have a large part that few
// look at: it is put from one text into the other, or read without reflection. Its
// functions return false for objects that are not laid out as usual, which go the general
// way. They are safe for concurrent use.
type Apart struct {
	// Served makes the JSON of the served form from the stored text. encode makes that of
	// another stored text.
	Served func(stored []byte, encode func(stored []byte) ([]byte, error)) ([]byte, bool)
	// Marked makes of a stored text one with marks in place of the large part, which is
	// decoded and encoded as any; restore puts that part back into what was encoded.
	Marked func(stored []byte) (text []byte, restore func(stored []byte) ([]byte, bool), ok bool)
	// Read reads the JSON of the served form. decode reads another one; it fails for what
	// has unknown or repeated fields.
	Read func(text []byte, decode func(text []byte) (Object, error)) (Object, bool)
}
