package authz

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/node"
	"binnacle/libs/rbac"
	"binnacle/services/apiserver/internal/cache/informer"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/cache/watchcache"
)

// subscription passes the objects of one resource to the policy.
type subscription struct {
	*informer.Informer
	name   string
	policy *LocalPolicy
	source Source
	target policySink
	loaded bool // replace was called
}

// newSubscription returns a subscription that passes the objects of a source to a sink.
func (p *LocalPolicy) newSubscription(name string, source Source, target policySink) *subscription {
	s := &subscription{name: name, policy: p, source: source, target: target}
	s.Informer = informer.New(informer.Config{Store: source.Store, Replace: s.replace, Apply: s.apply, OnLost: s.markLost})
	return s
}

// policySink receives the data of a subscription. One goroutine calls its methods.
type policySink interface {
	// replace replaces the whole state at a revision. isReload is false for the first call. Later
	// calls follow missed changes.
	replace(objs []metav1.Object, revision int64, isReload bool)
	// apply applies changes in order.
	apply([]objectChange)
}

// objectChange is a new version of an object, or a deletion.
type objectChange struct {
	object          metav1.Object // nil when deleted
	namespace, name string
	revision        int64
}

// replace passes the complete state to the sink.
func (s *subscription) replace(_ context.Context, entries []*objects.Entry, revision int64) {
	decoded := make([]metav1.Object, 0, len(entries))
	for _, e := range entries {
		if o := s.decode(e); o != nil {
			decoded = append(decoded, o)
		}
	}
	s.target.replace(decoded, revision, s.loaded)
	s.loaded = true
}

// apply passes changes to the sink.
func (s *subscription) apply(_ context.Context, events []watchcache.Event, _ int64) {
	if len(events) == 0 {
		return
	}
	changes := make([]objectChange, len(events))
	for i, ev := range events {
		changes[i] = s.changeOf(ev)
	}
	s.target.apply(changes)
}

// markLost logs that changes were missed, so that the state is read again.
func (s *subscription) markLost(err error) {
	if errors.As(err, new(*watchcache.ExpiredError)) {
		s.policy.config.Logger.Info("reloading the policy", "resource", s.name, "reason", err)
	}
}

// changeOf returns the change of an event.
func (s *subscription) changeOf(ev watchcache.Event) objectChange {
	c := objectChange{namespace: ev.Entry.Namespace(), name: ev.Entry.Name(), revision: ev.Revision}
	if ev.Type != watchcache.Deleted {
		c.object = s.decode(ev.Entry)
	}
	return c
}

// decode returns the object of an entry. It returns nil for an unreadable object, which then grants
// nothing.
func (s *subscription) decode(e *objects.Entry) metav1.Object {
	obj, err := s.source.Decode(e)
	if err != nil {
		s.policy.config.Logger.Error("an object of the policy cannot be read and grants nothing", "key", e.Key(), "error", err)
		return nil
	}
	return obj
}

// ruleSink applies a kind of role or binding to the engine.
type ruleSink struct {
	policy *LocalPolicy
	kind   string
}

// replace implements sink.
func (s *ruleSink) replace(objs []metav1.Object, revision int64, isReload bool) {
	s.policy.updateEngine(func(tx *rbac.Tx) {
		tx.Clear(s.kind)
		for _, o := range objs {
			tx.Set(o)
		}
		if isReload { // objects may have been deleted up to this revision
			tx.Advance(s.kind, revision)
		}
	})
}

// apply implements sink.
func (s *ruleSink) apply(changes []objectChange) {
	s.policy.updateEngine(func(tx *rbac.Tx) {
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

// nodeSink applies a resource to the graph of the node authorizer.
type nodeSink struct {
	policy *LocalPolicy
	kind   node.Kind
}

type namespacedName struct{ namespace, name string }

// replace implements sink.
func (s *nodeSink) replace(objs []metav1.Object, _ int64, isReload bool) {
	present := map[namespacedName]bool{}
	for _, o := range objs {
		s.policy.Graph.Set(o)
		present[namespacedName{o.GetNamespace(), o.GetName()}] = true
	}
	if isReload {
		s.policy.Graph.Retain(s.kind, func(namespace, name string) bool { return present[namespacedName{namespace, name}] })
	}
}

// apply implements sink.
func (s *nodeSink) apply(changes []objectChange) {
	for _, c := range changes {
		if c.object == nil {
			s.policy.Graph.Delete(s.kind, c.namespace, c.name)
		} else {
			s.policy.Graph.Set(c.object)
		}
	}
}
