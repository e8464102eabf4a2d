package embedded

import (
	"context"
	"expvar"
	"fmt"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// electNow makes the only member leader without waiting for its election timeout. The timeout can
// then be long, so that an idle server rarely wakes up. It sends the message that a leader sends to
// its chosen successor; raft ignores it where it does not apply.
func electNow(ctx context.Context, server *etcdserver.EtcdServer) error {
	id := uint64(server.MemberID())
	ticker := time.NewTicker(500 * time.Microsecond)
	defer ticker.Stop()
	for server.Leader() == 0 {
		if hasReplayed(server) {
			if err := server.Process(ctx, raftpb.Message{Type: raftpb.MsgTimeoutNow, From: id, To: id}); err != nil {
				return fmt.Errorf("electing the only member: %w", err)
			}
		}
		select {
		case <-ticker.C:
		case <-server.ReadyNotify():
			return nil
		case <-server.StopNotify():
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// hasReplayed reports whether raft itself, not only the server above it, has applied its log. An
// election inspects the entries that raft has not applied. It panics if the server has already
// dropped some of them from memory.
func hasReplayed(server *etcdserver.EtcdServer) bool {
	committed := server.CommittedIndex()
	if committed == 0 || server.AppliedIndex() < committed {
		return false
	}
	status, ok := raftStatus(committed) // without a status, the member is elected after the timeout
	return ok && status.Applied >= committed
}

// raftStatus returns the state that raft publishes as a variable of the process. The variable
// belongs to the server started last, so the result is false unless its commit index is the given
// one.
func raftStatus(committed uint64) (raft.Status, bool) {
	published, ok := expvar.Get("raft.status").(expvar.Func)
	if !ok {
		return raft.Status{}, false
	}
	status, ok := published.Value().(raft.Status)
	return status, ok && status.Commit == committed
}

// checkLog returns an error if the log ends before the state of the database. etcd then accepts
// requests, but does not respond to them until the log has grown to its former length.
func checkLog(server *etcdserver.EtcdServer) error {
	applied, _ := schema.ReadConsistentIndex(server.Backend().ReadTx())
	status, ok := raftStatus(server.CommittedIndex())
	if !ok || status.RaftState != raft.StateLeader {
		return nil
	}
	last := status.Progress[status.ID].Match
	if last < applied {
		return fmt.Errorf("the log in %s ends at %d, and the database in %s has %d: the end of the log is lost, or they do not belong together; restore the folder from a backup",
			filepath.Join(server.Cfg.DataDir, "member", "wal"), last, filepath.Join(server.Cfg.DataDir, "member", "snap"), applied)
	}
	return nil
}
