package traced

import (
	"context"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/request"
)

// storedValue returns the description of the object that a traced write stores.
func storedValue(ctx context.Context) (v request.StoredValue) {
	if tracing.Recording(ctx) {
		if s := request.FromContext(ctx).Stored; s != nil {
			v = *s
		}
	}
	return v
}
