package traffic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/kubernetes/scheme"

	"binnacle/e2e/robustness/history"
)

// barrierKey is written by Barrier.
const barrierKey = "/robustness/barrier"

// Recorder records all changes in etcd.
type Recorder struct {
	client *clientv3.Client
	start  time.Time

	mu       sync.Mutex // never held while another lock is acquired
	changes  []history.Change
	revision int64
	err      error
	changed  chan struct{} // closed and replaced when revision or err changes
}

// NewRecorder returns a recorder. Run records.
func NewRecorder(client *clientv3.Client) *Recorder {
	return &Recorder{client: client, start: time.Now(), changed: make(chan struct{})}
}

// Run records until ctx ends.
func (r *Recorder) Run(ctx context.Context) {
	// All keys start with a slash.
	for resp := range r.client.Watch(ctx, "/", clientv3.WithRange("0"), clientv3.WithRev(1)) {
		err := resp.Err()
		if err == nil {
			err = r.record(resp.Events)
		}
		if err != nil {
			r.update(func() { r.err = fmt.Errorf("record the truth: %w", err) })
			return
		}
	}
	if ctx.Err() == nil {
		r.update(func() { r.err = errors.New("the watch of etcd ended") })
	}
}

// record appends stored events to the history.
func (r *Recorder) record(events []*clientv3.Event) error {
	var changes []history.Change
	var last int64
	for _, event := range events {
		last = max(last, event.Kv.ModRevision)
		key, ok := parseStorageKey(string(event.Kv.Key))
		if !ok {
			continue
		}
		change := history.Change{
			Version: history.Version{Key: key.String(), Revision: event.Kv.ModRevision},
			Deleted: event.Type == mvccpb.DELETE,
		}
		if !change.Deleted {
			obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(event.Kv.Value, nil, nil)
			if err != nil {
				return fmt.Errorf("%s at revision %d: %w", event.Kv.Key, event.Kv.ModRevision, err)
			}
			// A stored object has no resource version.
			if change.Version, err = storedVersion(key, obj, event.Kv.ModRevision); err != nil {
				return err
			}
		}
		changes = append(changes, change)
	}
	r.update(func() {
		for i := range changes {
			changes[i].Time = time.Since(r.start)
		}
		r.changes = append(r.changes, changes...)
		r.revision = max(r.revision, last)
	})
	return nil
}

// update changes the recorder and wakes the callers of Barrier.
func (r *Recorder) update(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
	close(r.changed)
	r.changed = make(chan struct{})
}

// Revision returns the last recorded revision.
func (r *Recorder) Revision() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.revision
}

const (
	barrierAttempts = 60
	barrierPause    = 500 * time.Millisecond
)

// Barrier blocks until everything that happened before the call is recorded, and returns a later
// revision.
func (r *Recorder) Barrier(ctx context.Context) (int64, error) {
	resp, err := r.client.Put(ctx, barrierKey, "")
	for range barrierAttempts { // a member may be down before the client notices
		if !unavailable(err) {
			break
		}
		select {
		case <-time.After(barrierPause):
		case <-ctx.Done():
		}
		resp, err = r.client.Put(ctx, barrierKey, "")
	}
	if err != nil {
		return 0, fmt.Errorf("write a barrier: %w", err)
	}
	for {
		r.mu.Lock()
		reached := r.revision >= resp.Header.Revision
		advanced := r.changed
		err := r.err
		r.mu.Unlock()
		if err != nil || reached {
			return resp.Header.Revision, err
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return 0, fmt.Errorf("wait until revision %d is recorded: %w", resp.Header.Revision, ctx.Err())
		}
	}
}

// unavailable reports whether the cluster has no leader or a member does not respond.
func unavailable(err error) bool {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code() == codes.Unavailable
	}
	return status.Code(err) == codes.Unavailable
}

// ChangeLog returns the recorded changes, with times relative to start.
func (r *Recorder) ChangeLog(start time.Time) *history.ChangeLog {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &history.ChangeLog{Changes: slices.Clone(r.changes), Revision: r.revision}
	for i := range t.Changes {
		t.Changes[i].Time -= start.Sub(r.start)
	}
	return t
}
