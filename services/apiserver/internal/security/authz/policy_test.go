package authz_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authorizer"
	"binnacle/libs/node"
	"binnacle/libs/rbac"
)

func meta(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

// reader returns a role that grants verbs on pods.
func reader(name string, verbs ...string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: meta("", name), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs}}}
}

// bound returns a binding of a role to a user.
func bound(ns, name, role, user string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: meta(ns, name), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: "User", Name: user}},
	}
}

// may reports whether the policy allows a user to perform a verb on pods in namespace a.
func (w *fixture) may(t *testing.T, user, verb string) bool {
	t.Helper()
	d, _, err := w.Engine.Authorize(t.Context(), &authorizer.Attributes{
		User: &authorizer.User{Name: user}, Verb: verb, Resource: true, Namespace: "a", ResourceName: "pods",
	})
	if err != nil {
		t.Fatal(err)
	}
	return d == authorizer.Allow
}

// catchUp waits until all changes so far have taken effect.
func (w *fixture) catchUp(t *testing.T) {
	t.Helper()
	if err := w.MostRecent(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestPolicyFollowsTheCache applies changes and deletions of roles, bindings and pods.
func TestPolicyFollowsTheCache(t *testing.T) {
	w := newFixture(t, func(s *source) {
		s.put("clusterroles/reader", reader("reader", "get"))
		s.put("rolebindings/a/b", bound("a", "b", "reader", "alice"))
		s.put("pods/a/p", &corev1.Pod{ObjectMeta: meta("a", "p"), Spec: corev1.PodSpec{NodeName: "n1", ServiceAccountName: "sa"}})
	})
	w.catchUp(t)
	if !w.Synced() || w.Check(nil) != nil || !w.may(t, "alice", "get") || w.may(t, "alice", "list") || !w.Graph.Belongs("n1", node.ServiceAccount, "a", "sa") {
		t.Fatal("the initial state has no effect")
	}
	w.source.put("clusterroles/reader", reader("reader", "get", "list"))
	w.catchUp(t)
	if !w.may(t, "alice", "list") {
		t.Error("a change of a role has no effect")
	}
	at := w.source.put("rolebindings/a/b", nil)
	w.source.put("pods/a/p", nil)
	w.catchUp(t)
	if w.may(t, "alice", "get") || w.Graph.Belongs("n1", node.ServiceAccount, "a", "sa") {
		t.Error("a deletion has no effect")
	}
	if got, want := w.lastNotified(), w.Engine.Snapshot().Position(); got != want || got[2] != at {
		t.Errorf("got notification of %s, want %s, at least %d", got, want, at)
	}
}

// TestChangesApplyAfterTheBarrier changes the policy as fast as possible.
func TestChangesApplyAfterTheBarrier(t *testing.T) {
	w := newFixture(t, func(s *source) { s.put("clusterroles/reader", reader("reader", "get")) })
	for i := range 200 {
		key := fmt.Sprintf("rolebindings/a/b%d", i%5)
		allowed := i%3 != 0
		for _, k := range []int{0, 1, 2, 3, 4} {
			w.source.put(fmt.Sprintf("rolebindings/a/b%d", k), nil)
		}
		if allowed {
			w.source.put(key, bound("a", fmt.Sprintf("b%d", i%5), "reader", "alice"))
		}
		w.catchUp(t)
		if w.may(t, "alice", "get") != allowed {
			t.Fatalf("change %d: got allowed %v", i, !allowed)
		}
	}
}

// TestLostStreamReloadsThePolicy: after a gap in the stream of changes, deleted objects have no
// effect.
func TestLostStreamReloadsThePolicy(t *testing.T) {
	w := newFixture(t, func(s *source) {
		s.put("clusterroles/reader", reader("reader", "get"))
		s.put("rolebindings/a/b", bound("a", "b", "reader", "alice"))
		s.put("pods/a/p", &corev1.Pod{ObjectMeta: meta("a", "p"), Spec: corev1.PodSpec{NodeName: "n1"}})
	})
	w.catchUp(t)
	w.source.mu.Lock() // without an event
	delete(w.source.state, "/registry/rolebindings/a/b")
	delete(w.source.state, "/registry/pods/a/p")
	w.source.revision++
	lost := w.source.revision
	w.source.mu.Unlock()
	w.source.lose()
	w.catchUp(t)
	if w.may(t, "alice", "get") || w.Graph.Belongs("n1", node.Pod, "a", "p") {
		t.Error("an object that was deleted without an event is still effective")
	}
	if p := w.lastNotified(); p[2] < lost {
		t.Errorf("got notification of %s although events up to %d were lost", p, lost)
	}
	w.source.put("rolebindings/a/b", bound("a", "b", "reader", "alice"))
	w.catchUp(t)
	if !w.may(t, "alice", "get") {
		t.Error("later changes have no effect")
	}
}

// TestCorruptObjectsGrantNothing replaces a role by data that cannot be decoded.
func TestCorruptObjectsGrantNothing(t *testing.T) {
	w := newFixture(t, func(s *source) {
		s.put("clusterroles/reader", reader("reader", "get"))
		s.put("rolebindings/a/b", bound("a", "b", "reader", "alice"))
	})
	w.catchUp(t)
	w.source.put("clusterroles/reader", "no object")
	w.catchUp(t)
	if w.may(t, "alice", "get") {
		t.Error("a corrupt object still grants permissions")
	}
	if _, err := w.Engine.Snapshot().RulesOf(rbacv1.RoleRef{Kind: rbac.KindClusterRole, Name: "reader"}, ""); err == nil {
		t.Error("a deleted object still grants permissions")
	}
}

// TestManyInitialBindings: all initial objects are effective once the policy reports that it is
// current.
func TestManyInitialBindings(t *testing.T) {
	const users = 3000
	w := newFixture(t, func(s *source) {
		s.put("clusterroles/reader", reader("reader", "get"))
		for i := range users {
			s.put(fmt.Sprintf("rolebindings/a/b%04d", i), bound("a", fmt.Sprintf("b%04d", i), "reader", fmt.Sprintf("u%04d", i)))
		}
	})
	w.catchUp(t)
	for i := range users {
		if !w.may(t, fmt.Sprintf("u%04d", i), "get") {
			t.Fatalf("binding %d of %d has no effect", i, users)
		}
	}
}

// TestPolicyIsNotSyncedBeforeLoad: no waiter returns before the first load.
func TestPolicyIsNotSyncedBeforeLoad(t *testing.T) {
	w := newStoppedFixture(t, nil)
	if w.Synced() || w.Check(nil) == nil {
		t.Error("got synced before the first load")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if w.WaitFor(ctx, 1) == nil || w.MostRecent(ctx) == nil {
		t.Error("the wait returned before the first load")
	}
	if err := w.Run(ctx); err != nil || w.Synced() {
		t.Errorf("canceled before the first load: got %v, synced %t", err, w.Synced())
	}
}

// TestWatchCacheStops: the policy reports the end of the watch cache.
func TestWatchCacheStops(t *testing.T) {
	w := newStoppedFixture(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stopped, done := make(chan error, 1), make(chan error, 1)
	go func() { stopped <- w.cache.Run(ctx) }()
	go func() { done <- w.Run(t.Context()) }()
	w.catchUp(t)
	cancel()
	<-stopped
	if err := <-done; err != nil {
		t.Errorf("while following: got %v", err)
	}
	if err := w.Run(t.Context()); err != nil {
		t.Errorf("before following: got %v", err)
	}
}

// TestRestoredStore: after a restore of the store, the policy is that of the store, and positions
// start again so that earlier decisions do not count as newer.
func TestRestoredStore(t *testing.T) {
	w := newFixture(t, func(s *source) {
		s.put("clusterroles/reader", reader("reader", "get"))
		s.put("rolebindings/a/b", bound("a", "b", "reader", "alice"))
		s.put("pods/a/p", &corev1.Pod{ObjectMeta: meta("a", "p"), Spec: corev1.PodSpec{NodeName: "n1"}})
	})
	w.catchUp(t)
	revision, state := w.source.save()
	for range 20 {
		w.source.put("rolebindings/a/c", bound("a", "c", "reader", "mallory"))
	}
	w.source.put("rolebindings/a/b", nil)
	w.source.put("pods/a/p", nil)
	w.catchUp(t)
	if w.may(t, "alice", "get") || !w.may(t, "mallory", "get") {
		t.Fatal("the state before the restore has no effect")
	}
	before := w.lastNotified()
	w.source.restore(revision, state)
	for w.MostRecent(t.Context()) != nil || !w.Synced() { // until the reload
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
	if !w.may(t, "alice", "get") || w.may(t, "mallory", "get") || !w.Graph.Belongs("n1", node.Pod, "a", "p") {
		t.Error("got a policy other than that of the store")
	}
	if now := w.lastNotified(); now.Covers(before) || now != w.Engine.Snapshot().Position() {
		t.Errorf("got notification of %s after %s", now, before)
	}
	w.source.put("rolebindings/a/b", nil)
	w.catchUp(t)
	if w.may(t, "alice", "get") {
		t.Error("a change after the restore has no effect")
	}
}
