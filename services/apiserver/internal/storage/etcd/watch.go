package etcd

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"binnacle/services/apiserver/internal/storage"
)

const (
	// watchBuffer is how many responses wait for a slow receiver before the stream itself is
	// throttled. etcd's own client buffers without bound, so watches are read from the stream here.
	watchBuffer = 16
	// progressRetry is when an unanswered progress request is repeated: etcd does not respond while
	// the watch is behind.
	progressRetry = 100 * time.Millisecond

	minBackoff = 10 * time.Millisecond
	maxBackoff = time.Second
	maxMessage = 1<<31 - 1
)

// watch is a running watch. Its goroutine (run) passes these states:
//
//	connecting → streaming → (broken: connecting again, after a backoff) → ended
//
// After each break it resumes with the last known change, which etcd then redelivers, or otherwise
// at the revision after the last delivered one. So it detects an etcd that was restored from a
// backup. A stream (stream.go) has another goroutine, which only receives.
type watch struct {
	store   *Store
	prefix  string
	ctx     context.Context
	cancel  context.CancelFunc
	batches chan storage.Batch
	done    chan struct{}
	// progressRequests wakes run to request progress.
	progressRequests chan struct{}

	// mu guards err.
	mu  sync.Mutex
	err error

	// The fields below belong to run.
	position storage.Position
	// confirmed means that etcd has confirmed the revision of the position: it is not in the
	// future.
	confirmed bool
	// compacted is a revision to which history is compacted, including the last change of the
	// position; 0 if unknown.
	compacted int64
	// awaitingProgress means that a progress request is unanswered, and requestedAgain that
	// progress was requested since, so that the response may be older than the later request.
	awaitingProgress, requestedAgain bool
}

// Watch implements storage.Interface. It returns immediately and waits for a future start revision.
func (s *Store) Watch(ctx context.Context, prefix string, after int64) (storage.Watcher, error) {
	return s.startWatch(ctx, prefix, storage.Position{Revision: after}, false)
}

// Resume implements storage.Interface.
func (s *Store) Resume(ctx context.Context, prefix string, from storage.Position) (storage.Watcher, error) {
	return s.startWatch(ctx, prefix, from, true)
}

// startWatch starts a watch at a position. confirmed means that the position is not in the future.
func (s *Store) startWatch(ctx context.Context, prefix string, from storage.Position, confirmed bool) (storage.Watcher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if from.Revision < 0 {
		return nil, &storage.CompactedError{OldestRevision: s.compacted.Load()}
	}
	s.metrics.recordWatch(prefix)
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{
		store:            s,
		prefix:           prefix,
		ctx:              ctx,
		cancel:           cancel,
		batches:          make(chan storage.Batch, watchBuffer),
		done:             make(chan struct{}),
		progressRequests: make(chan struct{}, 1),
		position:         from,
		confirmed:        confirmed,
	}
	go w.run()
	return w, nil
}

func (w *watch) Batches() <-chan storage.Batch { return w.batches }

func (w *watch) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Stop closes the watch and waits until its goroutines have ended.
func (w *watch) Stop() {
	w.cancel()
	<-w.done
}

// Progress implements storage.Watcher. It never blocks.
func (w *watch) Progress(ctx context.Context) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	select {
	case w.progressRequests <- struct{}{}:
	default: // The response to the pending request suffices.
	}
	return ctx.Err()
}

// run streams until the watch ends, and reconnects after errors.
func (w *watch) run() {
	defer close(w.done)
	defer close(w.batches)
	defer w.cancel()
	backoff := minBackoff
	for {
		before := w.position.Revision
		err := w.runStream()
		if w.ctx.Err() != nil {
			return
		}
		if isFinal(err) || isPermanent(err) {
			w.setError(err)
			return
		}
		if errors.Is(err, errLastCompacted) {
			continue
		}
		if w.position.Revision > before {
			backoff = minBackoff
		}
		w.store.log.Warn("etcd watch failed; resuming", "prefix", w.prefix, "revision", w.position.Revision, "error", err)
		// Jitter spreads the reconnects of replicas to a member.
		timer := time.NewTimer(backoff/2 + rand.N(backoff))
		select {
		case <-timer.C:
		case <-w.ctx.Done():
			timer.Stop()
			return
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// isFinal reports whether a watch cannot continue from its position.
func isFinal(err error) bool {
	var compacted *storage.CompactedError
	var replaced *storage.ReplacedError
	return errors.As(err, &compacted) || errors.As(err, &replaced)
}

// setError records the error that terminated the watch.
func (w *watch) setError(err error) {
	if !isFinal(err) {
		err = w.store.translateError(w.ctx, err)
	}
	w.mu.Lock()
	w.err = err
	w.mu.Unlock()
}

// deliverBatch sends a batch to the receiver and advances the position, unless the watch ends
// first.
func (w *watch) deliverBatch(b storage.Batch) {
	select {
	case w.batches <- b:
		if len(b.Events) > 0 {
			w.compacted = 0
		}
		w.position = w.position.Advance(b)
		w.confirmed = true
	case <-w.ctx.Done():
	}
}

// toBatch converts etcd's events to a batch of the contract.
func toBatch(events []*mvccpb.Event) storage.Batch {
	out := make([]storage.Event, len(events))
	for i, etcdEvent := range events {
		event := storage.Event{Key: string(etcdEvent.Kv.Key), Revision: etcdEvent.Kv.ModRevision}
		switch {
		case etcdEvent.Type == mvccpb.DELETE:
			event.Type = storage.Deleted
		case etcdEvent.Kv.CreateRevision == etcdEvent.Kv.ModRevision:
			event.Type = storage.Created
			event.Value = etcdEvent.Kv.Value
			event.CreateRevision = etcdEvent.Kv.CreateRevision
		default:
			event.Type = storage.Updated
			event.Value = etcdEvent.Kv.Value
			event.CreateRevision = etcdEvent.Kv.CreateRevision
		}
		out[i] = event
	}
	return storage.Batch{Events: out, Revision: out[len(out)-1].Revision}
}

var _ storage.HistoryReader = (*Store)(nil)

// Changes implements storage.HistoryReader for an etcd in this process.
func (s *Store) Changes(ctx context.Context, prefix string, after, until int64, bytes int) (_ storage.Batch, ok bool, err error) {
	if s.changes == nil {
		return storage.Batch{}, false, nil
	}
	defer s.metrics.observe("history", prefix, time.Now(), &err)
	if err := ctx.Err(); err != nil {
		return storage.Batch{}, true, err
	}
	from, end := prefixRange(prefix)
	events, reached, compacted, err := s.changes(from, end, after, until, bytes)
	if err != nil {
		return storage.Batch{}, true, s.translateError(ctx, err)
	}
	if after+1 < compacted {
		s.noteCompacted(compacted)
		return storage.Batch{}, true, &storage.CompactedError{OldestRevision: compacted}
	}
	return storage.Batch{Events: events, Revision: reached}, true, nil
}
