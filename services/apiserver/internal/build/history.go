package build

import (
	"context"
	"log/slog"
)

// maxReplay bounds how many revisions a replica takes up that starts: it reads
// some 100,000 in a second, and is not ready before.
const maxReplay = 50_000

// historyOf tells the revision from which a replica that starts takes up history:
// the one to which the store was compacted last, which was the newest one 5 to 10
// minutes ago. So clients whose watches were ended by the end of another replica,
// or of its own predecessor, go on with it from where they are (specification: "A
// watch from the last received resourceVersion loses no events"). It is 0 when
// that cannot be known.
func historyOf(store objectStore, log *slog.Logger) func(context.Context) int64 {
	return func(ctx context.Context) int64 {
		oldest, newest, err := store.History(ctx)
		if err != nil {
			log.Warn("history begins now: the last compaction cannot be read", "error", err)
			return 0
		}
		if oldest > newest { // told of another history
			return 0
		}
		return max(oldest, newest-maxReplay, 1)
	}
}
