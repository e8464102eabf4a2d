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

func objectMeta(ns, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name}
}

// podReader returns a role that grants verbs on pods.
func podReader(name string, verbs ...string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		ObjectMeta: objectMeta("", name),
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: verbs}},
	}
}

// roleBinding returns a binding of a role to a user.
func roleBinding(ns, name, role, user string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: objectMeta(ns, name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: "User", Name: user}},
	}
}

// isAllowed reports whether the policy allows a user to perform a verb on pods in namespace a.
func (f *fixture) isAllowed(t *testing.T, user, verb string) bool {
	t.Helper()
	d, _, err := f.Engine.Authorize(t.Context(), &authorizer.Attributes{
		User:         &authorizer.User{Name: user},
		Verb:         verb,
		Resource:     true,
		Namespace:    "a",
		ResourceName: "pods",
	})
	if err != nil {
		t.Fatal(err)
	}
	return d == authorizer.Allow
}

// catchUp waits until all changes so far have taken effect.
func (f *fixture) catchUp(t *testing.T) {
	t.Helper()
	if err := f.MostRecent(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestPolicyFollowsTheCache applies changes and deletions of roles, bindings and pods.
func TestPolicyFollowsTheCache(t *testing.T) {
	fixture := newFixture(t, func(s *source) {
		s.putObject("clusterroles/reader", podReader("reader", "get"))
		s.putObject("rolebindings/a/b", roleBinding("a", "b", "reader", "alice"))
		s.putObject("pods/a/p", &corev1.Pod{
			ObjectMeta: objectMeta("a", "p"),
			Spec:       corev1.PodSpec{NodeName: "n1", ServiceAccountName: "sa"},
		})
	})
	fixture.catchUp(t)
	if err := fixture.Check(nil); !fixture.Synced() || err != nil {
		t.Fatalf("after the first load: got synced: %t, check: %v, want true and no error", fixture.Synced(), err)
	}
	if got := fmt.Sprint(fixture.isAllowed(t, "alice", "get"), fixture.isAllowed(t, "alice", "list")); got != "true false" {
		t.Fatalf("after the first load: got alice allowed to get, list: %s, want true false", got)
	}
	if !fixture.Graph.HasReference("n1", node.ServiceAccount, "a", "sa") {
		t.Fatal("after the first load: got no reference of n1 to the ServiceAccount sa, want one")
	}
	fixture.source.putObject("clusterroles/reader", podReader("reader", "get", "list"))
	fixture.catchUp(t)
	if !fixture.isAllowed(t, "alice", "list") {
		t.Error("list after the role allows it: got denied, want allowed")
	}
	at := fixture.source.putObject("rolebindings/a/b", nil)
	fixture.source.putObject("pods/a/p", nil)
	fixture.catchUp(t)
	if fixture.isAllowed(t, "alice", "get") {
		t.Error("after the deletion of a binding: got alice allowed, want her denied")
	}
	if fixture.Graph.HasReference("n1", node.ServiceAccount, "a", "sa") {
		t.Error("after the deletion of the pod: got a reference of n1 to the ServiceAccount sa, want none")
	}
	if got, want := fixture.lastNotified(), fixture.Engine.Snapshot().Position(); got != want || got[2] != at {
		t.Errorf("got notification of %s, want %s, at least %d", got, want, at)
	}
}

// TestChangesApplyAfterTheBarrier changes the policy as fast as possible.
func TestChangesApplyAfterTheBarrier(t *testing.T) {
	f := newFixture(t, func(s *source) { s.putObject("clusterroles/reader", podReader("reader", "get")) })
	for i := range 200 {
		key := fmt.Sprintf("rolebindings/a/b%d", i%5)
		allowed := i%3 != 0
		for _, k := range []int{0, 1, 2, 3, 4} {
			f.source.putObject(fmt.Sprintf("rolebindings/a/b%d", k), nil)
		}
		if allowed {
			f.source.putObject(key, roleBinding("a", fmt.Sprintf("b%d", i%5), "reader", "alice"))
		}
		f.catchUp(t)
		if f.isAllowed(t, "alice", "get") != allowed {
			t.Fatalf("change %d: got allowed %v, want %v", i, !allowed, allowed)
		}
	}
}

// TestLostStreamReloadsThePolicy checks that after a gap in the stream of changes, deleted objects
// have no effect.
func TestLostStreamReloadsThePolicy(t *testing.T) {
	fixture := newFixture(t, func(s *source) {
		s.putObject("clusterroles/reader", podReader("reader", "get"))
		s.putObject("rolebindings/a/b", roleBinding("a", "b", "reader", "alice"))
		s.putObject("pods/a/p", &corev1.Pod{ObjectMeta: objectMeta("a", "p"), Spec: corev1.PodSpec{NodeName: "n1"}})
	})
	fixture.catchUp(t)
	fixture.source.mu.Lock() // without an event
	delete(fixture.source.stored, "/registry/rolebindings/a/b")
	delete(fixture.source.stored, "/registry/pods/a/p")
	fixture.source.revision++
	lost := fixture.source.revision
	fixture.source.mu.Unlock()
	fixture.source.loseStream()
	fixture.catchUp(t)
	if fixture.isAllowed(t, "alice", "get") {
		t.Error("binding deleted without an event: got alice allowed, want her denied")
	}
	if fixture.Graph.HasReference("n1", node.Pod, "a", "p") {
		t.Error("pod deleted without an event: got a reference of n1 to it, want none")
	}
	if p := fixture.lastNotified(); p[2] < lost {
		t.Errorf("got notification of %s although events up to %d were lost, want at least %v", p, lost, lost)
	}
	fixture.source.putObject("rolebindings/a/b", roleBinding("a", "b", "reader", "alice"))
	fixture.catchUp(t)
	if !fixture.isAllowed(t, "alice", "get") {
		t.Error("get after a later binding: got denied, want allowed")
	}
}

// TestCorruptObjectsGrantNothing replaces a role by data that cannot be decoded.
func TestCorruptObjectsGrantNothing(t *testing.T) {
	f := newFixture(t, func(s *source) {
		s.putObject("clusterroles/reader", podReader("reader", "get"))
		s.putObject("rolebindings/a/b", roleBinding("a", "b", "reader", "alice"))
	})
	f.catchUp(t)
	f.source.putObject("clusterroles/reader", "no object")
	f.catchUp(t)
	if f.isAllowed(t, "alice", "get") {
		t.Error("get by a corrupt role: got allowed, want denied")
	}
	if _, err := f.Engine.Snapshot().RulesOf(rbacv1.RoleRef{Kind: rbac.KindClusterRole, Name: "reader"}, ""); err == nil {
		t.Error("get by a deleted role: got allowed, want denied")
	}
}

// TestInitialObjectsAreEffectiveOnceSynced checks that all initial objects are effective once the policy reports
// that it is current.
func TestInitialObjectsAreEffectiveOnceSynced(t *testing.T) {
	const users = 3000
	f := newFixture(t, func(s *source) {
		s.putObject("clusterroles/reader", podReader("reader", "get"))
		for i := range users {
			s.putObject(fmt.Sprintf("rolebindings/a/b%04d", i),
				roleBinding("a", fmt.Sprintf("b%04d", i), "reader", fmt.Sprintf("u%04d", i)))
		}
	})
	f.catchUp(t)
	for i := range users {
		if !f.isAllowed(t, fmt.Sprintf("u%04d", i), "get") {
			t.Fatalf("binding %d of %d: got not allowed, want allowed", i, users)
		}
	}
}

// TestPolicyIsNotSyncedBeforeLoad checks that no waiter returns before the first load.
func TestPolicyIsNotSyncedBeforeLoad(t *testing.T) {
	fixture := newStoppedFixture(t, nil)
	if fixture.Synced() {
		t.Error("before the first load: got synced, want not")
	}
	if fixture.Check(nil) == nil {
		t.Error("before the first load: got a passing check, want an error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if fixture.WaitFor(ctx, 1) == nil || fixture.MostRecent(ctx) == nil {
		t.Error("WaitFor and MostRecent before the first load: got nil, want an error")
	}
	if err := fixture.Run(ctx); err != nil || fixture.Synced() {
		t.Errorf("canceled before the first load: got %v, synced %t; want no error, not synced", err, fixture.Synced())
	}
}

// TestPolicyEndsWhenWatchCacheStops checks that the policy reports the end of the watch cache.
func TestPolicyEndsWhenWatchCacheStops(t *testing.T) {
	fixture := newStoppedFixture(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stopped, done := make(chan error, 1), make(chan error, 1)
	go func() { stopped <- fixture.cache.Run(ctx) }()
	go func() { done <- fixture.Run(t.Context()) }()
	fixture.catchUp(t)
	cancel()
	<-stopped
	if err := <-done; err != nil {
		t.Errorf("while following: got %v, want no error", err)
	}
	if err := fixture.Run(t.Context()); err != nil {
		t.Errorf("before following: got %v, want no error", err)
	}
}

// TestPolicyFollowsRestoredStore checks that after a restore of the store, the policy is that of the store, and
// positions start again so that earlier decisions do not count as newer.
func TestPolicyFollowsRestoredStore(t *testing.T) {
	fixture := newFixture(t, func(s *source) {
		s.putObject("clusterroles/reader", podReader("reader", "get"))
		s.putObject("rolebindings/a/b", roleBinding("a", "b", "reader", "alice"))
		s.putObject("pods/a/p", &corev1.Pod{ObjectMeta: objectMeta("a", "p"), Spec: corev1.PodSpec{NodeName: "n1"}})
	})
	fixture.catchUp(t)
	revision, state := fixture.source.savedState()
	for range 20 {
		fixture.source.putObject("rolebindings/a/c", roleBinding("a", "c", "reader", "mallory"))
	}
	fixture.source.putObject("rolebindings/a/b", nil)
	fixture.source.putObject("pods/a/p", nil)
	fixture.catchUp(t)
	if got := fmt.Sprint(fixture.isAllowed(t, "alice", "get"), fixture.isAllowed(t, "mallory", "get")); got != "false true" {
		t.Fatalf("before the restore: got alice, mallory allowed: %s, want false true", got)
	}
	before := fixture.lastNotified()
	fixture.source.restore(revision, state)
	for fixture.MostRecent(t.Context()) != nil || !fixture.Synced() { // until the reload
		if t.Context().Err() != nil {
			t.Fatal(t.Context().Err())
		}
	}
	if got := fmt.Sprint(fixture.isAllowed(t, "alice", "get"), fixture.isAllowed(t, "mallory", "get")); got != "true false" {
		t.Errorf("after the restore: got alice, mallory allowed: %s, want true false", got)
	}
	if !fixture.Graph.HasReference("n1", node.Pod, "a", "p") {
		t.Error("after the restore: got no reference of n1 to the pod p, want one")
	}
	if now := fixture.lastNotified(); now.Covers(before) || now != fixture.Engine.Snapshot().Position() {
		t.Errorf("got notification of %s, want one that does not cover %s", now, before)
	}
	fixture.source.putObject("rolebindings/a/b", nil)
	fixture.catchUp(t)
	if fixture.isAllowed(t, "alice", "get") {
		t.Error("get after the binding was deleted: got allowed, want denied")
	}
}
