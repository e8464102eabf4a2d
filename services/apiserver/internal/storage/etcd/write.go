package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"binnacle/services/apiserver/internal/storage"
)

// Create implements storage.Interface.
func (s *Store) Create(ctx context.Context, key string, value []byte, opts storage.WriteOptions) (_ int64, err error) {
	defer s.metrics.observe("create", key, time.Now(), &err)
	resp, err := s.commitPut(ctx, key, value, opts, func(put clientv3.Op) clientv3.Txn {
		txn := s.kv.Txn(ctx).
			If(conditionsOf(clientv3.Compare(clientv3.CreateRevision(key), "=", 0), opts.Preconditions)...).
			Then(put)
		if len(opts.Preconditions) == 0 {
			return txn
		}
		return txn.Else(clientv3.OpGet(key, clientv3.WithCountOnly()))
	})
	if err != nil {
		return 0, err
	}
	switch {
	case resp.Succeeded:
		return resp.Header.Revision, nil
	case len(opts.Preconditions) > 0 && resp.Responses[0].GetResponseRange().Count == 0:
		return 0, &storage.PreconditionError{Key: key}
	}
	return 0, &storage.ExistsError{Key: key}
}

// Update implements storage.Interface.
func (s *Store) Update(
	ctx context.Context,
	key string,
	value []byte,
	expected int64,
	opts storage.WriteOptions,
) (_ int64, err error) {
	defer s.metrics.observe("update", key, time.Now(), &err)
	if expected <= 0 {
		return 0, s.conflictWithLive(ctx, key)
	}
	resp, err := s.commitPut(ctx, key, value, opts, func(put clientv3.Op) clientv3.Txn {
		return s.kv.Txn(ctx).
			If(conditionsOf(clientv3.Compare(clientv3.ModRevision(key), "=", expected), opts.Preconditions)...).
			Then(put).
			Else(clientv3.OpGet(key))
	})
	if err != nil {
		return 0, err
	}
	return casResult(resp, expected)
}

// Delete implements storage.Interface.
func (s *Store) Delete(ctx context.Context, key string, expected int64, preconditions ...storage.Precondition) (_ int64, err error) {
	defer s.metrics.observe("delete", key, time.Now(), &err)
	if expected <= 0 {
		return 0, s.conflictWithLive(ctx, key)
	}
	resp, err := s.kv.Txn(ctx).
		If(conditionsOf(clientv3.Compare(clientv3.ModRevision(key), "=", expected), preconditions)...).
		Then(clientv3.OpDelete(key)).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return 0, s.translateError(ctx, err)
	}
	return casResult(resp, expected)
}

// conditionsOf returns the conditions of a transaction: the condition on its own key, and the
// preconditions.
func conditionsOf(keyCondition clientv3.Cmp, preconditions []storage.Precondition) []clientv3.Cmp {
	conditions := []clientv3.Cmp{keyCondition}
	for _, p := range preconditions {
		condition := clientv3.Compare(clientv3.CreateRevision(p.Key), "=", p.CreateRevision)
		if p.Prefix {
			condition = condition.WithPrefix()
		}
		conditions = append(conditions, condition)
	}
	return conditions
}

// commitPut commits a transaction that writes a value, with a lease if it expires. A missing lease
// fails the whole transaction, so one more attempt with a new lease is safe.
func (s *Store) commitPut(
	ctx context.Context,
	key string,
	value []byte,
	opts storage.WriteOptions,
	txn func(clientv3.Op) clientv3.Txn,
) (*clientv3.TxnResponse, error) {
	if opts.TTL <= 0 {
		resp, err := txn(clientv3.OpPut(key, bytesAsString(value))).Commit()
		if err != nil {
			return nil, s.translateError(ctx, err)
		}
		return resp, nil
	}
	for retried := false; ; retried = true {
		lease, err := s.leasePool.leaseFor(ctx, opts.TTL)
		if err != nil {
			return nil, s.translateError(ctx, err)
		}
		resp, err := txn(clientv3.OpPut(key, bytesAsString(value), clientv3.WithLease(lease))).Commit()
		if err == nil {
			return resp, nil
		}
		if retried || !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil, s.translateError(ctx, err)
		}
		s.leasePool.forgetLease(lease)
	}
}

// casResult returns the result of a compare-and-swap of an expected revision whose Else reads the
// key.
func casResult(resp *clientv3.TxnResponse, expected int64) (int64, error) {
	if resp.Succeeded {
		return resp.Header.Revision, nil
	}
	kvs := resp.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return 0, storage.ErrNotFound
	}
	if kvs[0].ModRevision == expected {
		return 0, &storage.PreconditionError{Key: string(kvs[0].Key)}
	}
	return 0, &storage.ConflictError{Live: toKeyValue(kvs[0])}
}

// conflictWithLive returns the conflict of a compare-and-swap without an expected revision. etcd
// would take revision 0 as "must not exist".
func (s *Store) conflictWithLive(ctx context.Context, key string) error {
	live, _, err := s.Get(ctx, key, 0)
	if err != nil {
		return err
	}
	return &storage.ConflictError{Live: live}
}

// readError is translateError for reads at a revision. It reads the newest revision if the error must contain
// it.
func (s *Store) readError(ctx context.Context, err error) error {
	if !errors.Is(err, rpctypes.ErrFutureRev) {
		return s.translateError(ctx, err)
	}
	newest, revisionErr := s.readRevision(ctx)
	if revisionErr != nil {
		return revisionErr
	}
	return &storage.FutureError{Current: newest}
}

// translateError translates a client error into one of the contract.
func (s *Store) translateError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return &storage.CompactedError{OldestRevision: s.compacted.Load()}
	case isTooLarge(err):
		return fmt.Errorf("%w: %w", storage.ErrTooLarge, err)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// The client noticed the end before the context's own timer did, or the client was closed.
		// Either way the outcome is unknown.
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
	}
	sentinel := storage.ErrUnavailable
	if errors.Is(err, rpctypes.ErrNoSpace) {
		sentinel = storage.ErrFull
	}
	return fmt.Errorf("%w: etcd: %w", sentinel, err)
}

// isTooLarge recognizes the rejections of etcd and, before it, of gRPC.
func isTooLarge(err error) bool {
	if errors.Is(err, rpctypes.ErrRequestTooLarge) {
		return true
	}
	return grpcCode(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "message larger than max")
}

// isPermanent reports whether a watch would fail in the same way again.
func isPermanent(err error) bool {
	switch grpcCode(err) {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.Unimplemented:
		return true
	}
	return false
}

// grpcCode returns the gRPC code of a client error.
func grpcCode(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// maxLeaseObjects bounds the values on one lease: etcd deletes all of them in one revision when it
// expires.
const maxLeaseObjects = 1000

// leasePool shares one lease among many values, because a lease for each would cost etcd more than
// the values do. A lease lives slightly longer than requested (a twentieth, at most reuse). During
// that time it takes further values.
type leasePool struct {
	client  clientv3.Lease
	reuse   time.Duration
	objects prometheus.Observer

	// lock is a mutex as a channel of capacity one, so that waiting ends with the caller's context.
	// It guards the fields below and is held while a lease is granted, because all waiters need the
	// same lease.
	lock    chan struct{}
	leaseID clientv3.LeaseID
	expires time.Time
	count   int
}

// leaseFor returns a lease that lives for at least ttl.
func (l *leasePool) leaseFor(ctx context.Context, ttl time.Duration) (clientv3.LeaseID, error) {
	select {
	case l.lock <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer func() { <-l.lock }()

	now := time.Now()
	slack := min(ttl/20, l.reuse)
	// etcd counts in seconds, so up to one more second is due to rounding here.
	remaining := l.expires.Sub(now)
	if l.leaseID != 0 && l.count < maxLeaseObjects && remaining >= ttl && remaining <= ttl+slack+time.Second {
		l.count++
		return l.leaseID, nil
	}
	resp, err := l.client.Grant(ctx, int64((ttl+slack+time.Second-1)/time.Second))
	if err != nil {
		return 0, err
	}
	l.dropCurrent()
	l.leaseID = resp.ID
	l.expires = now.Add(time.Duration(resp.TTL) * time.Second)
	l.count = 1
	return l.leaseID, nil
}

// forgetLease drops a lease that etcd no longer knows.
func (l *leasePool) forgetLease(id clientv3.LeaseID) {
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	if l.leaseID == id {
		l.dropCurrent()
	}
}

// dropCurrent drops the current lease. The caller holds lock.
func (l *leasePool) dropCurrent() {
	if l.leaseID != 0 {
		l.objects.Observe(float64(l.count))
	}
	l.leaseID = 0
	l.count = 0
}
