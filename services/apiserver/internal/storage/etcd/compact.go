package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// DefaultCompactInterval is how often history is compacted, and how much of it
// is kept at least.
const DefaultCompactInterval = 5 * time.Minute

// compactKey is the key through which all API servers on one etcd agree, as
// Kubernetes names it. Its value is the newest revision at the time of the last
// round; its version, the number of rounds so far, is what they compete for.
const compactKey = "compact_rev_key"

// Compactor forgets history. Each interval all API servers on an etcd try to
// begin the next round; one succeeds, and compacts to the revision that it saw
// in the round before. The others learn the number of the round.
type Compactor struct {
	Store *Store
	// Interval between rounds; 0 disables.
	Interval time.Duration
	// Logger is told of failed rounds; nil discards.
	Logger *slog.Logger
}

// round is what a Compactor remembers: the last round it knows of and the revision
// at which it was begun. Both are in what a backup of etcd holds of the round, so a
// compactor never goes by a history that is no more.
type round struct{ version, revision int64 }

// Run compacts until the context ends. Failed rounds are logged and tried
// again an interval later.
func (c *Compactor) Run(ctx context.Context) error {
	if c.Interval <= 0 {
		<-ctx.Done()
		return nil
	}
	log := c.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	ticker := time.NewTicker(c.Interval)
	defer ticker.Stop()
	var last round
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		next, err := c.step(ctx, last)
		if err != nil && ctx.Err() == nil {
			log.Error("etcd was not compacted", "revision", last.revision, "err", err)
		}
		last = next
	}
}

// step tries to begin the round after last, and compacts if it is ours.
func (c *Compactor) step(ctx context.Context, last round) (round, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Interval)
	defer cancel()
	resp, err := c.Store.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.Version(compactKey), "=", last.version), clientv3.Compare(clientv3.ModRevision(compactKey), "=", last.revision)).
		Then(clientv3.OpPut(compactKey, strconv.FormatInt(last.revision, 10))).
		Else(clientv3.OpGet(compactKey)).
		Commit()
	if err != nil {
		return last, fmt.Errorf("beginning round %d: %w", last.version+1, c.Store.wrap(ctx, err))
	}
	next := round{version: last.version + 1, revision: resp.Header.Revision}
	if !resp.Succeeded {
		next = round{}
		if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			next = round{version: kvs[0].Version, revision: kvs[0].ModRevision}
		}
		return next, nil
	}
	if last.revision == 0 {
		// The first round of all: nothing was seen an interval ago.
		return next, nil
	}
	if err := c.Store.Compact(ctx, last.revision); err != nil {
		return next, err
	}
	return next, nil
}

// History tells from which revision on the API servers on this etcd keep history,
// 0 when they have not forgotten any yet, and the newest revision. What others
// compact they do not say.
func (s *Store) History(ctx context.Context) (oldest, newest int64, err error) {
	resp, err := s.kv.Get(ctx, compactKey, s.at(0)...)
	if err != nil {
		return 0, 0, s.wrap(ctx, err)
	}
	if len(resp.Kvs) == 0 {
		return 0, resp.Header.Revision, nil
	}
	if oldest, err = strconv.ParseInt(string(resp.Kvs[0].Value), 10, 64); err != nil {
		return 0, 0, fmt.Errorf("value of %s: %w", compactKey, err)
	}
	return oldest, resp.Header.Revision, nil
}
