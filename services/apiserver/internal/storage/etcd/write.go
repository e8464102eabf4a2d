package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"binnacle/services/apiserver/internal/storage"
)

// Create implements storage.Interface.
func (s *Store) Create(ctx context.Context, key string, value []byte, opts storage.WriteOptions) (_ int64, err error) {
	defer s.metrics.observe("create", key, time.Now(), &err)
	resp, err := s.put(ctx, key, value, opts, func(put clientv3.Op) clientv3.Txn {
		return s.kv.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(put)
	})
	if err != nil {
		return 0, err
	}
	if !resp.Succeeded {
		return 0, &storage.ExistsError{Key: key}
	}
	return resp.Header.Revision, nil
}

// Update implements storage.Interface.
func (s *Store) Update(ctx context.Context, key string, value []byte, expected int64, opts storage.WriteOptions) (_ int64, err error) {
	defer s.metrics.observe("update", key, time.Now(), &err)
	if expected <= 0 {
		return 0, s.refuse(ctx, key)
	}
	resp, err := s.put(ctx, key, value, opts, func(put clientv3.Op) clientv3.Txn {
		return s.kv.Txn(ctx).
			If(clientv3.Compare(clientv3.ModRevision(key), "=", expected)).
			Then(put).
			Else(clientv3.OpGet(key))
	})
	if err != nil {
		return 0, err
	}
	return swapped(resp)
}

// Delete implements storage.Interface.
func (s *Store) Delete(ctx context.Context, key string, expected int64) (_ int64, err error) {
	defer s.metrics.observe("delete", key, time.Now(), &err)
	if expected <= 0 {
		return 0, s.refuse(ctx, key)
	}
	resp, err := s.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", expected)).
		Then(clientv3.OpDelete(key)).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return 0, s.wrap(ctx, err)
	}
	return swapped(resp)
}

// put commits a transaction that writes a value, with a lease when it is to
// expire. A lease that is gone fails the whole transaction, so that one more
// try with a new lease is safe.
func (s *Store) put(ctx context.Context, key string, value []byte, opts storage.WriteOptions, txn func(clientv3.Op) clientv3.Txn) (*clientv3.TxnResponse, error) {
	if opts.TTL <= 0 {
		resp, err := txn(clientv3.OpPut(key, bytesAsString(value))).Commit()
		if err != nil {
			return nil, s.wrap(ctx, err)
		}
		return resp, nil
	}
	for again := false; ; again = true {
		id, err := s.leases.get(ctx, opts.TTL)
		if err != nil {
			return nil, s.wrap(ctx, err)
		}
		resp, err := txn(clientv3.OpPut(key, bytesAsString(value), clientv3.WithLease(id))).Commit()
		if err == nil {
			return resp, nil
		}
		if again || !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil, s.wrap(ctx, err)
		}
		s.leases.forget(id)
	}
}

// swapped is the result of a compare-and-swap whose Else reads the key.
func swapped(resp *clientv3.TxnResponse) (int64, error) {
	if resp.Succeeded {
		return resp.Header.Revision, nil
	}
	kvs := resp.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return 0, storage.ErrNotFound
	}
	return 0, &storage.ConflictError{Live: keyValue(kvs[0])}
}

// refuse answers a compare-and-swap that expects no revision. etcd would take
// revision 0 for "must not exist".
func (s *Store) refuse(ctx context.Context, key string) error {
	live, _, err := s.Get(ctx, key, 0)
	if err != nil {
		return err
	}
	return &storage.ConflictError{Live: live}
}
