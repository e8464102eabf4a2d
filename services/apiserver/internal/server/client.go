package server

import (
	"context"

	"binnacle/services/apiserver/internal/request"
)

// client is the user of a request and the principal under which the limits of this package count it.
type client struct {
	*request.User
	principal string
}

func clientOf(ctx context.Context) client {
	return client{request.UserFrom(ctx), request.Principal(ctx)}
}
