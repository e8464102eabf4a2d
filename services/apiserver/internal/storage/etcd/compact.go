package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"binnacle/services/apiserver/internal/storage"
)

// compactKey is the key through which all API servers on one etcd coordinate, under its Kubernetes
// name. Its value is the newest revision at the time of the last round. Its version is the number
// of rounds so far, for which they compete.
const compactKey = "compact_rev_key"

// Compactor compacts history. In each interval all API servers on an etcd try to start the next
// round. One succeeds and compacts to the revision that it saw in the previous round. The other
// ones learn the number of the round.
type Compactor struct {
	Store *Store
	// Interval between rounds; 0 disables the Compactor.
	Interval time.Duration
	// Logger receives failed rounds; nil discards them.
	Logger *slog.Logger
}

// compactionRound is the last round that a Compactor knows, and the revision at which it started. A
// backup of etcd contains both, so a compactor never relies on a history that no longer exists.
type compactionRound struct{ number, revision int64 }

// Run compacts until the context ends. Failed rounds are logged and retried after an interval.
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
	var last compactionRound
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		next, err := c.tryRound(ctx, last)
		if err != nil && ctx.Err() == nil {
			log.Error("failed to compact etcd", "revision", last.revision, "error", err)
		}
		last = next
	}
}

// tryRound tries to start the round after last, and compacts if it succeeds.
func (c *Compactor) tryRound(ctx context.Context, last compactionRound) (compactionRound, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Interval)
	defer cancel()
	resp, err := c.Store.kv.Txn(ctx).
		If(clientv3.Compare(clientv3.Version(compactKey), "=", last.number),
			clientv3.Compare(clientv3.ModRevision(compactKey), "=", last.revision)).
		Then(clientv3.OpPut(compactKey, strconv.FormatInt(last.revision, 10))).
		Else(clientv3.OpGet(compactKey)).
		Commit()
	if err != nil {
		return last, fmt.Errorf("beginning round %d: %w", last.number+1, c.Store.translateError(ctx, err))
	}
	next := compactionRound{number: last.number + 1, revision: resp.Header.Revision}
	if !resp.Succeeded {
		next = compactionRound{}
		if kvs := resp.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			next = compactionRound{number: kvs[0].Version, revision: kvs[0].ModRevision}
		}
		return next, nil
	}
	if last.revision == 0 {
		// The first round ever: no revision is known from an interval ago.
		return next, nil
	}
	compacted := &storage.CompactedError{}
	if err := c.Store.Compact(ctx, last.revision); err != nil && !errors.As(err, &compacted) { // compacted before
		return next, err
	}
	return next, nil
}

// History returns the oldest revision that the API servers on this etcd keep, or 0 if they have not
// compacted yet, and the newest revision. Compactions by other programs are not included.
func (s *Store) History(ctx context.Context) (oldest, newest int64, err error) {
	resp, err := s.kv.Get(ctx, compactKey, s.readOptions(0)...)
	if err != nil {
		return 0, 0, s.translateError(ctx, err)
	}
	if len(resp.Kvs) == 0 {
		return 0, resp.Header.Revision, nil
	}
	if oldest, err = strconv.ParseInt(string(resp.Kvs[0].Value), 10, 64); err != nil {
		return 0, 0, fmt.Errorf("value of %s: %w", compactKey, err)
	}
	return oldest, resp.Header.Revision, nil
}

// Times of a Monitor.
const (
	monitorInterval = 2 * time.Second
	monitorTimeout  = 3 * time.Second
	// monitorRepeat is the time after which a warning is repeated.
	monitorRepeat = 5 * time.Second
)

// Monitor logs a warning every few seconds while etcd does not respond, and a message when
// it responds again.
type Monitor struct {
	// Ping returns nil if etcd responds.
	Ping func(context.Context) error
	// Endpoints name the servers in the log.
	Endpoints []string
	Logger    *slog.Logger
}

// Run checks etcd every two seconds until ctx ends. It returns nil.
func (m *Monitor) Run(ctx context.Context) error {
	ticker := time.NewTicker(monitorInterval)
	defer ticker.Stop()
	var since, warned time.Time
	for {
		err := m.pingOnce(ctx)
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if since.IsZero() {
				since = now
			}
			if now.Sub(warned) >= monitorRepeat {
				warned = now
				m.Logger.Warn("etcd unreachable", "endpoints", m.Endpoints, "error", err, "duration",
					now.Sub(since).Round(time.Second).String())
			}
		case !since.IsZero():
			m.Logger.Info("etcd reachable again", "endpoints", m.Endpoints, "duration", now.Sub(since).Round(time.Second).String())
			since = time.Time{}
			warned = time.Time{}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// pingOnce checks etcd once, within monitorTimeout.
func (m *Monitor) pingOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	return m.Ping(ctx)
}
