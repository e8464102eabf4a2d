package policy_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"binnacle/libs/authorizer"
	"binnacle/libs/node"
	"binnacle/services/authz-webhook/internal/apitest"
	"binnacle/services/authz-webhook/internal/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func meta(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }

func reader() *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: meta("", "reader"), Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}}
}

func bound() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: meta("a", "b"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: "alice"}},
	}
}

func pod() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta("a", "p"), Spec: corev1.PodSpec{NodeName: "n1"}}
}

type fixture struct {
	*policy.Policy
	t      *testing.T
	server *apitest.Server
}

func newFixture(t *testing.T, off ...string) *fixture {
	t.Helper()
	s := apitest.New()
	s.SetOff(off...)
	config := &rest.Config{Host: s.URL, QPS: 1000, Burst: 1000}
	p, err := policy.New(policy.Config{Client: config, Rules: true, Nodes: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if p.Check(nil) == nil {
		t.Error("got synced before the start")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		s.Close()
	})
	return &fixture{p, t, s}
}

func (w *fixture) eventually(what string, check func() bool) {
	w.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-deadline:
			w.t.Fatalf("timed out: %s", what)
		case <-tick.C:
		}
	}
}

func (w *fixture) allowed() bool {
	d, _, err := w.Engine.Authorize(w.t.Context(), &authorizer.Attributes{
		User: &authorizer.User{Name: "alice"}, Verb: "get", Resource: true, Namespace: "a", ResourceName: "pods",
	})
	return err == nil && d == authorizer.Allow
}

func TestFollowing(t *testing.T) {
	w := newFixture(t)
	w.eventually("synced", func() bool { return w.Check(nil) == nil })
	if w.allowed() {
		t.Error("got allowed without a role")
	}
	w.server.Put("clusterroles", reader())
	at := w.server.Put("rolebindings", bound())
	w.server.Put("pods", pod())
	w.eventually("allowed", w.allowed)
	w.eventually("on its node", func() bool { return w.Graph.Belongs("n1", node.Pod, "a", "p") })
	if p := w.Engine.Snapshot().Position(); p[2] != at {
		t.Errorf("got got position %s, want rolebindings at %d", p, at)
	}
	mark := w.server.Bookmark("roles", "rbac.authorization.k8s.io/v1", "Role")
	w.eventually("at the bookmark", func() bool { return w.Engine.Snapshot().Position()[3] == mark })
	// A revision that exceeds 64 bits is ignored.
	w.server.BookmarkAt("roles", "rbac.authorization.k8s.io/v1", "Role", "99999999999999999999")
	mark = w.server.Bookmark("roles", "rbac.authorization.k8s.io/v1", "Role")
	w.eventually("at the next bookmark", func() bool { return w.Engine.Snapshot().Position()[3] == mark })
	gone := w.server.Delete("rolebindings", bound())
	w.server.Delete("pods", pod())
	w.eventually("refused", func() bool { return !w.allowed() })
	w.eventually("off its node", func() bool { return !w.Graph.Belongs("n1", node.Pod, "a", "p") })
	if p := w.Engine.Snapshot().Position(); p[2] != gone {
		t.Errorf("got got position %s, want rolebindings at the deletion %d", p, gone)
	}
}

func TestWatchesResume(t *testing.T) {
	w := newFixture(t)
	w.server.Put("clusterroles", reader())
	w.eventually("synced", func() bool { return w.Check(nil) == nil })
	for range 3 {
		w.server.Cut(false)
		w.server.Put("rolebindings", bound())
		w.eventually("allowed", w.allowed)
		w.server.Cut(false)
		w.server.Delete("rolebindings", bound())
		w.eventually("refused", func() bool { return !w.allowed() })
	}
	if n := w.server.Lists("rolebindings"); n != 1 {
		t.Errorf("got %d lists", n)
	}
}

func TestExpiredRevisionCausesRelist(t *testing.T) {
	for _, reason := range []string{"Expired", "Gone"} {
		w := newFixture(t)
		w.server.SetLate(reason)
		w.server.Put("clusterroles", reader())
		w.server.Put("rolebindings", bound())
		w.server.Put("pods", pod())
		w.eventually("allowed", w.allowed)
		w.eventually("on its node", func() bool { return w.Graph.Belongs("n1", node.Pod, "a", "p") })
		w.server.DeleteUnseen("rolebindings", bound())
		w.server.DeleteUnseen("pods", pod())
		w.server.Cut(true)
		w.eventually("refused", func() bool { return !w.allowed() })
		w.eventually("off its node", func() bool { return !w.Graph.Belongs("n1", node.Pod, "a", "p") })
		if n := w.server.Lists("rolebindings"); n != 2 {
			t.Errorf("%s: got %d lists", reason, n)
		}
	}
}

// TestRestoredStoreIsListedAgain: after a restore of the store, its revision is below the last one,
// or already past it when the server is available again.
func TestRestoredStoreIsListedAgain(t *testing.T) {
	for name, restore := range map[string]func(*fixture){
		"behind": func(w *fixture) {
			w.server.GoBack(5)
			w.server.Cut(false)
		},
		"past": func(w *fixture) {
			w.server.SetGone(true)
			w.server.Cut(false)
			w.eventually("noticed", func() bool { return w.server.TurnedAway() >= 2*8 }) // by each resource
			w.server.SetGone(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.server.Put("clusterroles", reader())
			w.server.Put("rolebindings", bound())
			w.server.Put("pods", pod())
			w.eventually("allowed", w.allowed)
			w.eventually("on its node", func() bool { return w.Graph.Belongs("n1", node.Pod, "a", "p") })
			w.server.DeleteUnseen("rolebindings", bound())
			w.server.DeleteUnseen("pods", pod())
			restore(w)
			w.eventually("refused", func() bool { return !w.allowed() })
			w.eventually("off its node", func() bool { return !w.Graph.Belongs("n1", node.Pod, "a", "p") })
			w.server.Put("rolebindings", bound())
			w.eventually("allowed again", w.allowed)
		})
	}
}

// TestPaginatedLists: a list is applied only when all pages were read.
func TestPaginatedLists(t *testing.T) {
	w := newFixture(t)
	w.eventually("synced", func() bool { return w.Check(nil) == nil })
	w.server.SetPage(1)
	for _, name := range []string{"a", "b", "c"} {
		p := pod()
		p.Name = name
		w.server.Put("pods", p)
	}
	w.eventually("there", func() bool { return w.Graph.Belongs("n1", node.Pod, "a", "c") })
	gone := pod()
	gone.Name = "b"
	w.server.DeleteUnseen("pods", gone)
	w.server.Cut(true)
	w.eventually("gone", func() bool { return !w.Graph.Belongs("n1", node.Pod, "a", "b") })
	for _, name := range []string{"a", "c"} {
		if !w.Graph.Belongs("n1", node.Pod, "a", name) {
			t.Errorf("%s is missing, it is on another page", name)
		}
	}
}

func TestNoAddress(t *testing.T) {
	if _, err := policy.New(policy.Config{Client: &rest.Config{Host: "http://%zz"}}); err == nil {
		t.Error("no error")
	}
}

// TestResourceSliceVersions: resource slices are followed in the served version. Without one,
// nothing waits for them.
func TestResourceSliceVersions(t *testing.T) {
	n1 := "n1"
	older := &resourcev1beta1.ResourceSlice{ObjectMeta: meta("", "s"), Spec: resourcev1beta1.ResourceSliceSpec{NodeName: n1}}
	newer := &resourcev1beta2.ResourceSlice{ObjectMeta: meta("", "s"), Spec: resourcev1beta2.ResourceSliceSpec{NodeName: &n1}}
	forbidden := newFixture(t)
	forbidden.eventually("synced", func() bool { return forbidden.Check(nil) == nil })
	forbidden.server.Put("resourceslices", newer)
	forbidden.eventually("of its node", func() bool { return forbidden.Graph.Belongs(n1, node.Slice, "", "s") })
	forbidden.server.Forbid("v1beta1", "v1beta2")
	forbidden.server.Cut(false)
	forbidden.eventually("gone with the permission", func() bool { return !forbidden.Graph.Belongs(n1, node.Slice, "", "s") })
	for _, c := range []struct {
		off   []string
		slice apitest.Object
	}{{nil, newer}, {[]string{"v1beta2"}, older}, {[]string{"v1beta1", "v1beta2"}, nil}} {
		w := newFixture(t, c.off...)
		w.eventually("synced", func() bool { return w.Check(nil) == nil })
		if c.slice == nil {
			continue
		}
		w.server.Put("resourceslices", c.slice)
		w.eventually("of its node", func() bool { return w.Graph.Belongs(n1, node.Slice, "", "s") })
		w.server.SetOff("v1beta1", "v1beta2")
		w.server.Cut(false)
		w.eventually("gone with its kind", func() bool { return !w.Graph.Belongs(n1, node.Slice, "", "s") })
	}
}
