package fanout

import (
	"context"
	"log/slog"
)

// maxReplay bounds how many revisions a starting replica replays. It reads about 100,000 revisions
// per second, and is not ready before.
const maxReplay = 50_000

// HistoryReader returns the bounds of a store's history.
type HistoryReader interface {
	History(ctx context.Context) (oldest, newest int64, err error)
}

// SinceLastCompaction returns a function for Config.Since. It returns the revision at which a starting
// replica begins its watch history: the last compaction, 5 to 10 minutes ago. Clients can then resume
// watches that they had on another replica without a loss of events (specification: "A watch from the
// last received resourceVersion loses no events"). The function returns 0 if the revision cannot be
// determined.
func SinceLastCompaction(store HistoryReader, log *slog.Logger) func(context.Context) int64 {
	return func(ctx context.Context) int64 {
		oldest, newest, err := store.History(ctx)
		if err != nil {
			log.Warn("watch history starts at the current revision: cannot read the last compaction", "error", err)
			return 0
		}
		if oldest > newest { // the answers belong to different histories
			return 0
		}
		return max(oldest, newest-maxReplay, 1)
	}
}
