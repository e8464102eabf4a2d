package embedded

import (
	"context"
	"expvar"
	"fmt"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// hasten makes the only member leader without waiting for its election timeout,
// which can then be long, so that an idle server rarely wakes up. It sends what
// a leader sends to its chosen successor; raft ignores it where it does not fit.
func hasten(ctx context.Context, s *etcdserver.EtcdServer) error {
	id := uint64(s.MemberID())
	ticker := time.NewTicker(500 * time.Microsecond)
	defer ticker.Stop()
	for s.Leader() == 0 {
		if replayed(s) {
			if err := s.Process(ctx, raftpb.Message{Type: raftpb.MsgTimeoutNow, From: id, To: id}); err != nil {
				return fmt.Errorf("electing the only member: %w", err)
			}
		}
		select {
		case <-ticker.C:
		case <-s.ReadyNotify():
			return nil
		case <-s.StopNotify():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// replayed tells whether raft itself, not only the server above it, has applied
// its log: an election looks through what is not applied, part of which the
// server may have dropped from memory already, and that is fatal. Raft's own
// view is published as a variable, which belongs to the server started last in
// the process; hence the comparison.
func replayed(s *etcdserver.EtcdServer) bool {
	committed := s.CommittedIndex()
	if committed == 0 || s.AppliedIndex() < committed {
		return false
	}
	published, ok := expvar.Get("raft.status").(expvar.Func)
	if !ok {
		return false // The election timeout will do.
	}
	status, ok := published.Value().(raft.Status)
	return ok && status.Commit == committed && status.Applied >= committed
}
