package writes

import "binnacle/services/apiserver/internal/request"

// patchedCost returns the cost in bytes of decoding and defaulting an object.
func (r *Request) patchedCost(doc []byte, cbor bool) int {
	size := max(request.WeightOfJSON(doc), r.Resource.DocumentCost(doc, cbor))
	if request.Compiled(r.Resource.Group) {
		size *= request.CostlyKind
	}
	return size
}
