//go:build unix

package embedded

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// trimInterval is the interval at which the size of history is checked.
	trimInterval = time.Second
	// historyDivisor limits history to 1/historyDivisor of the bytes that are available to it. A
	// large value needs several times its size, because free pages of the database are not
	// contiguous.
	historyDivisor = 4
	// minHistory is the size in bytes of history that is always kept.
	minHistory = 4 << 20
)

// trimmer compacts history when it takes more than its share of the bytes that the live values leave
// free below the quota and on the disk. Otherwise a client that writes the same large object repeatedly fills the
// database before the next regular compaction, and etcd rejects all writes of all clients. One
// goroutine owns it.
type trimmer struct {
	server *Server
	log    *slog.Logger
	// space returns the size of the file system of a folder and its free bytes; both 0 if unknown.
	space func(dir string) (size, free int64)

	// liveBytes approximates the size of the live values: it is the smallest number of used bytes
	// since the last compaction.
	liveBytes int64
	// halfUsedRevision is the newest revision at which half of the allowed history was used.
	halfUsedRevision int64
}

// run trims periodically until ctx ends.
func (t *trimmer) run(ctx context.Context) {
	ticker := time.NewTicker(trimInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if err := t.trimHistory(ctx); err != nil && ctx.Err() == nil {
			t.log.Error("the history of the embedded etcd was not compacted", "error", err)
		}
	}
}

// trimHistory compacts the older half of history if there is too much of it.
func (t *trimmer) trimHistory(ctx context.Context) error {
	server := t.server
	if err := server.gate.enter(); err != nil {
		return err
	}
	defer server.gate.inside.Done()
	backend := server.member.server.Backend()
	newest := server.member.server.KV().Rev()
	size := backend.Size()
	used := backend.SizeInUse()
	if used <= t.liveBytes || t.liveBytes == 0 {
		t.liveBytes = used
		t.halfUsedRevision = newest
	}
	available := server.quota
	if free, known := beyondReserve(server.member.server.Cfg.DataDir, t.space); known {
		available = min(available, size+free-ampleBytes) // a disk with less free space may reject writes
	}
	history := used - t.liveBytes
	maxHistory := max((available-t.liveBytes)/historyDivisor, minHistory)
	switch {
	case history <= maxHistory/2:
		t.halfUsedRevision = newest
	case history > maxHistory && t.halfUsedRevision > 0:
		t.log.Warn("compacting etcd history early: it exceeds its share of the free space",
			"bytes", history, "limit", maxHistory, "revision", t.halfUsedRevision)
		_, err := server.client.Compact(ctx, t.halfUsedRevision, clientv3.WithCompactPhysical())
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
			return fmt.Errorf("compact: %w", err)
		}
		_, t.liveBytes = server.databaseSizes() // the remaining history counts as live
		t.halfUsedRevision = server.member.server.KV().Rev()
	}
	return nil
}
