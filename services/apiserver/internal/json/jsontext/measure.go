package jsontext

// Size describes the structure of a JSON text.
type Size struct {
	Depth      int // levels of nested lists and objects
	Containers int // lists and objects
	Commas     int // outside strings: one precedes each value but the first of a list or object
	Key        int // bytes of the longest key as it is written
	Indent     int // bytes of indentation by two spaces per level
}

// Measure returns the size of a document. It reads the document once and does not validate it.
func Measure(doc []byte) (size Size) {
	depth, text := 0, 0 // text is the length of the last string
	for i := 0; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			end, err := skipString(doc, i)
			if err != nil {
				return size
			}
			text = end - i - 2
			i = end - 1
		case ':':
			size.Key = max(size.Key, text)
		case '{', '[':
			depth++
			size.Depth = max(size.Depth, depth)
			size.Containers++
			size.Indent += 2 * depth
		case '}', ']':
			depth--
		case ',':
			size.Commas++
			size.Indent += 2 * depth
		}
	}
	return size
}
