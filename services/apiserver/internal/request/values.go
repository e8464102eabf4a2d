package request

import "bytes"

// PerValue is how many bytes of text a value of a document counts: as long as it takes to make,
// check and store or refuse one.
const PerValue = 128

// LargeBody is the size in bytes from which a body is worked on in turns. Smaller ones are looked
// at for what else makes them large.
const LargeBody = 64 << 10

// Values is about how many values a document of JSON or YAML has: those in a row, or below each
// other, whichever are more, and commas in its texts.
func Values(doc []byte) int {
	return max(bytes.Count(doc, []byte{','}), bytes.Count(doc, []byte{'{'})+bytes.Count(doc, []byte{'['}))
}

// ValuesWithin tells whether a document of JSON has so many values at most, as Values counts
// them, but for what is within its texts.
func ValuesWithin(doc []byte, most int) bool {
	return Values(doc) <= most || valuesOfJSON(doc) <= most
}

// WeightOfJSON is what a document of JSON counts, by its size and its values.
func WeightOfJSON(doc []byte) int {
	values := Values(doc)
	if len(doc) < LargeBody && PerValue*values >= LargeBody {
		values = valuesOfJSON(doc)
	}
	return max(len(doc), PerValue*values)
}

// valuesOfJSON is Values without what is within texts.
func valuesOfJSON(body []byte) int {
	more, inner, text := 0, 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case c == '"':
			text = !text
		case text && c == '\\':
			i++
		case text:
		case c == ',':
			more++
		case c == '[' || c == '{':
			inner++
		}
	}
	return max(more, inner)
}

// CostlyKind is how many times as much what is compiled counts: schemas, patterns, expressions.
const CostlyKind = 16

// Compiled tells whether what is sent of a group is compiled before it is stored.
func Compiled(group string) bool {
	return group == "apiextensions.k8s.io" || group == "admissionregistration.k8s.io"
}
