package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"binnacle/services/apiserver/internal/storage"
)

// Only linearizable reads prove that the store's revision went backwards: a lagging member is also
// behind its earlier revisions. An etcd in this process cannot be replaced while in use, and it
// delivers a change just before its revision counts. If it seems to be behind, it is read once
// more, through consensus.

// comparedValue is the largest value that is read again for comparison. Of larger ones only the
// revisions are compared.
const comparedValue = 2 << 10

// Confirm implements storage.Interface.
func (s *Store) Confirm(ctx context.Context, at storage.Position) (_ int64, err error) {
	defer s.metrics.observe("revision", s.prefix, time.Now(), &err)
	m := at.Last
	if s.newest != nil || m.Revision == 0 {
		return s.confirmNewest(ctx, at)
	}
	// At the position, the key has the value of its last change.
	opts := []clientv3.OpOption{clientv3.WithRev(max(m.Revision, at.Revision))}
	whole := m.Size <= comparedValue
	if !whole {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	resp, err := s.hedgedGet(ctx, m.Key, opts...)
	if errors.Is(err, rpctypes.ErrCompacted) || errors.Is(err, rpctypes.ErrFutureRev) {
		return s.confirmNewest(ctx, at)
	}
	if err != nil {
		return 0, s.wrap(ctx, err)
	}
	if err := confirmHeader(at, resp.Header); err != nil {
		return 0, err
	}
	same := len(resp.Kvs) == 0
	if !m.Deleted && !same {
		kv := keyValue(resp.Kvs[0])
		same = kv.ModRevision == m.Revision && (!whole || storage.MarkOfValue(&kv).Same(m))
	} else if !m.Deleted {
		same = false
	}
	if !same {
		return 0, at.Replaced(resp.Header.Revision, fmt.Sprintf("what happened to %s at %d did not happen", m.Key, m.Revision))
	}
	return resp.Header.Revision, nil
}

// confirmNewest compares revisions only.
func (s *Store) confirmNewest(ctx context.Context, at storage.Position) (int64, error) {
	if s.newest != nil {
		if newest, err := s.revision(ctx); err != nil || newest >= at.Revision {
			return newest, err
		}
	}
	resp, err := s.hedgedGet(ctx, s.prefix) // linearizable: after the changes being applied
	if err != nil {
		return 0, s.wrap(ctx, err)
	}
	if err := confirmHeader(at, resp.Header); err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

// confirmHeader compares the header of a linearizable response with the position.
func confirmHeader(at storage.Position, h *pb.ResponseHeader) error {
	if err := confirmCluster(at, h); err != nil {
		return err
	}
	if h.Revision < at.Revision {
		return wentBack(at, h.Revision)
	}
	return nil
}

func confirmCluster(at storage.Position, h *pb.ResponseHeader) error {
	if id := h.GetClusterId(); at.Store != 0 && id != 0 && id != at.Store {
		return at.Replaced(h.Revision, fmt.Sprintf("it is the etcd cluster %x, not %x", id, at.Store))
	}
	return nil
}

func wentBack(at storage.Position, newest int64) error {
	return at.Replaced(newest, fmt.Sprintf("its newest revision is %d", newest))
}
