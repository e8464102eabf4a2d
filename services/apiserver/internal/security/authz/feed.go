package authz

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/node"
	"binnacle/libs/rbac"
	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// subscription passes the objects of one resource to the policy.
type subscription struct {
	*informer.Informer
	name   string
	policy *Policy
	source Source
	into   sink
	loaded bool // replace has been called
}

func (p *Policy) newSubscription(name string, s Source, into sink) *subscription {
	f := &subscription{name: name, policy: p, source: s, into: into}
	f.Informer = informer.New(informer.Config{Store: s.Store, Replace: f.replace, Apply: f.apply, Lost: f.lost})
	return f
}

// sink receives the data of a subscription. One goroutine calls its methods.
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

func (f *subscription) replace(_ context.Context, entries []*watchcache.Entry, revision int64) {
	objects := make([]metav1.Object, 0, len(entries))
	for _, e := range entries {
		if o := f.decode(e); o != nil {
			objects = append(objects, o)
		}
	}
	f.into.replace(objects, revision, f.loaded)
	f.loaded = true
}

func (f *subscription) apply(_ context.Context, events []watchcache.Event, _ int64) {
	if len(events) == 0 {
		return
	}
	changes := make([]change, len(events))
	for i, ev := range events {
		changes[i] = f.change(ev)
	}
	f.into.apply(changes)
}

func (f *subscription) lost(err error) {
	if errors.As(err, new(*watchcache.ExpiredError)) {
		f.policy.cfg.Logger.Info("reloading the policy", "resource", f.name, "reason", err)
	}
}

func (f *subscription) change(ev watchcache.Event) change {
	c := change{namespace: ev.Entry.Namespace(), name: ev.Entry.Name(), revision: ev.Revision}
	if ev.Type != watchcache.Deleted {
		c.object = f.decode(ev.Entry)
	}
	return c
}

// decode returns nil for an unreadable object, which then grants nothing.
func (f *subscription) decode(e *watchcache.Entry) metav1.Object {
	obj, err := f.source.Decode(e)
	if err != nil {
		f.policy.cfg.Logger.Error("an object of the policy cannot be read and grants nothing", "key", e.Key(), "error", err)
		return nil
	}
	return obj
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
