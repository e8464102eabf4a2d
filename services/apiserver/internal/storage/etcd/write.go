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
		txn := s.kv.Txn(ctx).
			If(preconditions(clientv3.Compare(clientv3.CreateRevision(key), "=", 0), opts.While)...).
			Then(put)
		if len(opts.While) == 0 {
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
	case len(opts.While) > 0 && resp.Responses[0].GetResponseRange().Count == 0:
		return 0, &storage.PreconditionError{Key: key}
	}
	return 0, &storage.ExistsError{Key: key}
}

// Update implements storage.Interface.
func (s *Store) Update(ctx context.Context, key string, value []byte, expected int64, opts storage.WriteOptions) (_ int64, err error) {
	defer s.metrics.observe("update", key, time.Now(), &err)
	if expected <= 0 {
		return 0, s.refuse(ctx, key)
	}
	resp, err := s.put(ctx, key, value, opts, func(put clientv3.Op) clientv3.Txn {
		return s.kv.Txn(ctx).
			If(preconditions(clientv3.Compare(clientv3.ModRevision(key), "=", expected), opts.While)...).
			Then(put).
			Else(clientv3.OpGet(key))
	})
	if err != nil {
		return 0, err
	}
	return swapped(resp, expected)
}

// Delete implements storage.Interface.
func (s *Store) Delete(ctx context.Context, key string, expected int64, while ...storage.Precondition) (_ int64, err error) {
	defer s.metrics.observe("delete", key, time.Now(), &err)
	if expected <= 0 {
		return 0, s.refuse(ctx, key)
	}
	resp, err := s.kv.Txn(ctx).
		If(preconditions(clientv3.Compare(clientv3.ModRevision(key), "=", expected), while)...).
		Then(clientv3.OpDelete(key)).
		Else(clientv3.OpGet(key)).
		Commit()
	if err != nil {
		return 0, s.wrap(ctx, err)
	}
	return swapped(resp, expected)
}

// preconditions returns the conditions of a transaction: that of its own key, and the preconditions.
func preconditions(own clientv3.Cmp, while []storage.Precondition) []clientv3.Cmp {
	all := []clientv3.Cmp{own}
	for _, p := range while {
		c := clientv3.Compare(clientv3.CreateRevision(p.Key), "=", p.CreateRevision)
		if p.Prefix {
			c = c.WithPrefix()
		}
		all = append(all, c)
	}
	return all
}

// put commits a transaction that writes a value, with a lease if it expires. A missing lease fails
// the whole transaction, so one more attempt with a new lease is safe.
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

// swapped returns the result of a compare-and-swap of an expected revision whose Else reads the
// key.
func swapped(resp *clientv3.TxnResponse, expected int64) (int64, error) {
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
	return 0, &storage.ConflictError{Live: keyValue(kvs[0])}
}

// refuse answers a compare-and-swap without an expected revision. etcd would take revision 0 as
// "must not exist".
func (s *Store) refuse(ctx context.Context, key string) error {
	live, _, err := s.Get(ctx, key, 0)
	if err != nil {
		return err
	}
	return &storage.ConflictError{Live: live}
}
