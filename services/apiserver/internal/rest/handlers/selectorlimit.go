package handlers

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

const (
	// selectorBytes bounds the memory in bytes of the large selectors of all watches.
	selectorBytes = 64 << 20
	// smallSelectors is the memory in bytes below which selectors are not limited. A watch takes about as
	// much without them.
	smallSelectors = 16 << 10
	// requirementBytes is the memory of a requirement, and selectorFactor that of its values per byte of
	// text.
	requirementBytes = 256
	selectorFactor   = 10
)

// selectorLimit limits the memory of the selectors of watches.
type selectorLimit struct{ bytes *limit.Queue[string] }

func newSelectorLimit() selectorLimit {
	return selectorLimit{limit.New[string](limit.Options{Size: selectorBytes, Share: true})}
}

// keep reserves memory for the selectors of a watch, which are kept as long as the watch, until release is
// called.
func (l selectorLimit) keep(ctx context.Context, label, field string) (release func(), err error) {
	size := selectorFactor*(len(label)+len(field)) + requirementBytes*requestinfo.Requirements(field, label)
	if size < smallSelectors {
		return func() {}, nil
	}
	c := limit.Claim[string]{Key: request.Principal(ctx), Cost: size}
	if !l.bytes.TryAcquire(c) {
		return nil, apierrors.NewTooManyRequests("Too many watches with large selectors are in progress, please try again later", 1)
	}
	return func() { l.bytes.Release(c) }, nil
}
