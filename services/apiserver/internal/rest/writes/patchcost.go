package writes

import "binnacle/services/apiserver/internal/request"

// patchedCost returns the cost in bytes of decoding and defaulting an object.
func (r *Request) patchedCost(doc []byte, cbor bool) int {
	size := request.WeightOfJSON(doc)
	if d := r.Kind.Document; d != nil && d.Weight != nil {
		size = max(size, d.Weight(doc, cbor))
	}
	if request.Compiled(r.Kind.Group) {
		size *= request.CostlyKind
	}
	return size
}
