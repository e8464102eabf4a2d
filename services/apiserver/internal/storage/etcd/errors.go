package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"binnacle/services/apiserver/internal/storage"
)

// readError is wrap for reads at a revision. It reads the newest revision if the error must contain
// it.
func (s *Store) readError(ctx context.Context, err error) error {
	if !errors.Is(err, rpctypes.ErrFutureRev) {
		return s.wrap(ctx, err)
	}
	newest, rerr := s.revision(ctx)
	if rerr != nil {
		return rerr
	}
	return &storage.FutureError{Current: newest}
}

// wrap translates a client error into one of the contract.
func (s *Store) wrap(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return &storage.CompactedError{Oldest: s.compacted.Load()}
	case tooLarge(err):
		return fmt.Errorf("%w: %w", storage.ErrTooLarge, err)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// The client noticed the end before the context's own timer did, or the client was closed.
		// Either way the outcome is unknown.
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	}
	kind := storage.ErrUnavailable
	if errors.Is(err, rpctypes.ErrNoSpace) {
		kind = storage.ErrFull
	}
	return fmt.Errorf("%w: etcd: %w", kind, err)
}

// tooLarge recognizes the rejections of etcd and, before it, of gRPC.
func tooLarge(err error) bool {
	if errors.Is(err, rpctypes.ErrRequestTooLarge) {
		return true
	}
	return code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "message larger than max")
}

// permanent reports whether a watch would fail in the same way again.
func permanent(err error) bool {
	switch code(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.Unimplemented:
		return true
	}
	return false
}

func code(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}
