package authz

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/node"
	"binnacle/libs/rbac"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// feed loads one resource into the policy and follows it.
type feed struct {
	name    string
	policy  *Policy
	source  Source
	into    sink
	at      atomic.Int64 // everything up to this revision is in the policy; 0 before it is loaded
	era     atomic.Int64 // era of the watch cache that at belongs to; -1 before the first load
	watcher atomic.Pointer[watchcache.Watcher]
}

// sink receives the data of a feed. One goroutine calls its methods.
type sink interface {
	// replace replaces the whole state at a revision. again means that changes before the revision
	// were missed.
	replace(objs []metav1.Object, revision int64, again bool)
	apply([]change)
}

// change is a new version of an object, or a deletion.
type change struct {
	object          metav1.Object // nil when deleted
	namespace, name string
	revision        int64
}

const (
	feedBatch = 256
	// retryPause is the delay between attempts to follow a resource.
	retryPause = 100 * time.Millisecond
)

func (f *feed) run(ctx context.Context) error {
	for {
		err := f.follow(ctx)
		var expired *watchcache.ExpiredError
		if errors.Is(err, watchcache.ErrStopped) {
			return nil // the cache itself reports the reason
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !errors.As(err, &expired) && !errors.Is(err, watchcache.ErrNotReady) {
			return err
		}
		f.policy.cfg.Logger.Info("reloading the policy", "resource", f.name, "reason", err)
		if err := f.policy.cfg.Cache.WaitReady(ctx); err != nil {
			return f.policy.waited(err)
		}
		if int64(f.policy.cfg.Cache.Era()) != f.era.Load() {
			continue // at once: the known state belongs to a discarded history
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follow loads the resource and then applies each change, until its position is lost.
func (f *feed) follow(ctx context.Context) error {
	w, err := f.source.Store.Watch(watchcache.WatchOptions{Initial: watchcache.InitialState})
	if err != nil {
		return err
	}
	defer w.Close()
	f.watcher.Store(w)
	buf := make([]watchcache.Event, 0, feedBatch)
	var initial []metav1.Object
	loading := true
	for {
		events, err := w.Next(ctx, buf)
		if err != nil {
			return err
		}
		var changes []change
		for _, ev := range events {
			switch {
			case ev.Type == watchcache.Bookmark:
				f.into.replace(initial, ev.Revision, f.era.Load() >= 0)
				f.at.Store(ev.Revision)
				f.era.Store(int64(w.Era()))
				f.policy.noteMove()
				loading, initial = false, nil
			case loading:
				if obj := f.decode(ev.Entry); obj != nil {
					initial = append(initial, obj)
				}
			default:
				changes = append(changes, f.change(ev))
			}
		}
		if len(changes) > 0 {
			f.into.apply(changes)
		}
		if loading {
			continue
		}
		if at := w.Revision(); at > f.at.Load() {
			f.at.Store(at)
			f.policy.noteMove()
		}
	}
}

func (f *feed) change(ev watchcache.Event) change {
	c := change{namespace: ev.Entry.Namespace(), name: ev.Entry.Name(), revision: ev.Revision}
	if ev.Type != watchcache.Deleted {
		c.object = f.decode(ev.Entry)
	}
	return c
}

// decode returns nil for an unreadable object, which then grants nothing.
func (f *feed) decode(e *watchcache.Entry) metav1.Object {
	obj, err := f.source.Decode(e)
	if err != nil {
		f.policy.cfg.Logger.Error("an object of the policy cannot be read and grants nothing", "key", e.Key(), "error", err)
		return nil
	}
	return obj
}

func (f *feed) nudge() {
	if w := f.watcher.Load(); w != nil {
		w.Nudge()
	}
}

// ruleSink applies a kind of role or binding to the engine.
type ruleSink struct {
	policy *Policy
	kind   string
}

func (s *ruleSink) replace(objs []metav1.Object, revision int64, again bool) {
	s.policy.update(func(tx *rbac.Tx) {
		tx.Clear(s.kind)
		for _, o := range objs {
			tx.Set(o)
		}
		if again { // objects may have been deleted up to this revision
			tx.Advance(s.kind, revision)
		}
	})
}

func (s *ruleSink) apply(changes []change) {
	s.policy.update(func(tx *rbac.Tx) {
		for _, c := range changes {
			if c.object == nil {
				tx.Delete(s.kind, c.namespace, c.name)
			} else {
				tx.Set(c.object)
			}
			tx.Advance(s.kind, c.revision)
		}
	})
}

// nodeSink applies a resource to the graph of nodes.
type nodeSink struct {
	policy *Policy
	kind   node.Kind
}

type namespacedName struct{ namespace, name string }

func (s *nodeSink) replace(objs []metav1.Object, _ int64, again bool) {
	present := map[namespacedName]bool{}
	for _, o := range objs {
		s.policy.Graph.Set(o)
		present[namespacedName{o.GetNamespace(), o.GetName()}] = true
	}
	if again {
		s.policy.Graph.Keep(s.kind, func(namespace, name string) bool { return present[namespacedName{namespace, name}] })
	}
}

func (s *nodeSink) apply(changes []change) {
	for _, c := range changes {
		if c.object == nil {
			s.policy.Graph.Delete(s.kind, c.namespace, c.name)
		} else {
			s.policy.Graph.Set(c.object)
		}
	}
}
