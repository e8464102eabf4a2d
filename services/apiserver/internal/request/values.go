package request

import (
	"bytes"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// PerValue is the cost of one value of a document in bytes of text: about the time to decode, check
// and store or reject it.
const PerValue = 128

// LargeBody is the size in bytes from which the work on a body is subject to a concurrency limit.
// Smaller bodies may exceed it by their other costs.
const LargeBody = 64 << 10

// Values estimates the number of values in a JSON or YAML document. It is the larger of the number
// of commas and the number of opening braces and brackets, even those inside strings.
func Values(doc []byte) int {
	return max(bytes.Count(doc, []byte{','}), bytes.Count(doc, []byte{'{'})+bytes.Count(doc, []byte{'['}))
}

// ValuesWithin reports whether the number of values in a JSON document does not exceed a maximum.
// It counts as Values does, but ignores the contents of strings if that count is too high.
func ValuesWithin(doc []byte, maximum int) bool {
	return Values(doc) <= maximum || valuesOutsideStrings(doc) <= maximum
}

// WeightOfJSON returns the cost of a JSON document in bytes, by its size and its number of values.
func WeightOfJSON(doc []byte) int {
	values := Values(doc)
	if len(doc) < LargeBody && PerValue*values >= LargeBody {
		values = valuesOutsideStrings(doc)
	}
	return max(len(doc), PerValue*values)
}

// valuesOutsideStrings estimates the number of values of a JSON document like Values, but ignores
// the contents of strings.
func valuesOutsideStrings(body []byte) int {
	size := jsontext.Measure(body)
	return max(size.Commas, size.Containers)
}

// CostlyKind is the factor by which the cost of objects that are compiled is multiplied: schemas,
// patterns and expressions.
const CostlyKind = 16

// Compiled reports whether objects of a resource are compiled before they are stored.
func Compiled(group, resource string) bool {
	switch group {
	case "apiextensions.k8s.io", "admissionregistration.k8s.io":
		return true
	case "resource.k8s.io": // device selectors; slices are large and have none
		return resource != "resourceslices"
	}
	return false
}
