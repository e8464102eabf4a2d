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
	return &rbacv1.ClusterRole{
		ObjectMeta: meta("", "reader"),
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}},
	}
}

func readerBinding() *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: meta("a", "b"),
		RoleRef:    rbacv1.RoleRef{Kind: "ClusterRole", Name: "reader"},
		Subjects:   []rbacv1.Subject{{Kind: "User", Name: "alice"}},
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

// newFixture runs a policy on an API server of apitest, which does not serve the versions in off.
func newFixture(t *testing.T, off ...string) *fixture {
	t.Helper()
	server := apitest.New()
	server.RemoveVersions(off...)
	config := &rest.Config{Host: server.URL, QPS: 1000, Burst: 1000}
	followed, err := policy.New(policy.Config{Client: config, Rules: true, Nodes: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if followed.Check(nil) == nil {
		t.Error("Check() before Run = nil, want an error")
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- followed.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want none or %v", err, context.Canceled)
		}
		server.Close()
	})
	return &fixture{followed, t, server}
}

func (f *fixture) eventually(what string, check func() bool) {
	f.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-deadline:
			f.t.Fatalf("timed out: %s", what)
		case <-tick.C:
		}
	}
}

func (f *fixture) allowed() bool {
	d, _, err := f.Engine.Authorize(f.t.Context(), &authorizer.Attributes{
		User: &authorizer.User{Name: "alice"}, Verb: "get", Resource: true, Namespace: "a", ResourceName: "pods",
	})
	return err == nil && d == authorizer.Allow
}

// TestChangesReachEngineAndGraph checks that changes at the API server change decisions and advance
// the position.
func TestChangesReachEngineAndGraph(t *testing.T) {
	fixture := newFixture(t)
	fixture.eventually("synced", func() bool { return fixture.Check(nil) == nil })
	if fixture.allowed() {
		t.Error("access without a role: got allowed, want no opinion")
	}
	fixture.server.Put("clusterroles", reader())
	at := fixture.server.Put("rolebindings", readerBinding())
	fixture.server.Put("pods", pod())
	fixture.eventually("allowed", fixture.allowed)
	fixture.eventually("on its node", func() bool { return fixture.Graph.HasReference("n1", node.Pod, "a", "p") })
	if p := fixture.Engine.Snapshot().Position(); p[2] != at {
		t.Errorf("got position %s, want rolebindings at %d", p, at)
	}
	mark := fixture.server.Bookmark("roles", "rbac.authorization.k8s.io/v1", "Role")
	fixture.eventually("at the bookmark", func() bool { return fixture.Engine.Snapshot().Position()[3] == mark })
	// A revision that exceeds 64 bits is ignored.
	fixture.server.BookmarkAt("roles", "rbac.authorization.k8s.io/v1", "Role", "99999999999999999999")
	mark = fixture.server.Bookmark("roles", "rbac.authorization.k8s.io/v1", "Role")
	fixture.eventually("at the next bookmark", func() bool { return fixture.Engine.Snapshot().Position()[3] == mark })
	gone := fixture.server.Delete("rolebindings", readerBinding())
	fixture.server.Delete("pods", pod())
	fixture.eventually("refused", func() bool { return !fixture.allowed() })
	fixture.eventually("off its node", func() bool { return !fixture.Graph.HasReference("n1", node.Pod, "a", "p") })
	if p := fixture.Engine.Snapshot().Position(); p[2] != gone {
		t.Errorf("got position %s, want rolebindings at the deletion %d", p, gone)
	}
}

// TestRestoredStoreIsListedAgain checks that after a restore of the store, its revision is below
// the last one, or already past it when the server is available again.
func TestRestoredStoreIsListedAgain(t *testing.T) {
	for name, restore := range map[string]func(*fixture){
		"behind": func(f *fixture) {
			f.server.ResetRevision(5)
			f.server.EndWatches(false)
		},
		"past": func(f *fixture) {
			f.server.CloseConnections(true)
			f.server.EndWatches(false)
			f.eventually("noticed", func() bool { return f.server.ClosedConnections() >= 2*8 }) // by each resource
			f.server.CloseConnections(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.server.Put("clusterroles", reader())
			f.server.Put("rolebindings", readerBinding())
			f.server.Put("pods", pod())
			f.eventually("allowed", f.allowed)
			f.eventually("on its node", func() bool { return f.Graph.HasReference("n1", node.Pod, "a", "p") })
			f.server.DeleteUnseen("rolebindings", readerBinding())
			f.server.DeleteUnseen("pods", pod())
			restore(f)
			f.eventually("refused", func() bool { return !f.allowed() })
			f.eventually("off its node", func() bool { return !f.Graph.HasReference("n1", node.Pod, "a", "p") })
			f.server.Put("rolebindings", readerBinding())
			f.eventually("allowed again", f.allowed)
		})
	}
}

// TestInvalidAddressIsAnError checks that New fails for an address that is not a URL.
func TestInvalidAddressIsAnError(t *testing.T) {
	if _, err := policy.New(policy.Config{Client: &rest.Config{Host: "http://%zz"}}); err == nil {
		t.Errorf("New() with host http://%%zz = nil, want an error")
	}
}

// TestResourceSliceVersions checks that resource slices are followed in the served version. Without
// one, nothing waits for them.
func TestResourceSliceVersions(t *testing.T) {
	namespace1 := "n1"
	older := &resourcev1beta1.ResourceSlice{ObjectMeta: meta("", "s"), Spec: resourcev1beta1.ResourceSliceSpec{NodeName: namespace1}}
	newer := &resourcev1beta2.ResourceSlice{ObjectMeta: meta("", "s"), Spec: resourcev1beta2.ResourceSliceSpec{NodeName: &namespace1}}
	forbidden := newFixture(t)
	forbidden.eventually("synced", func() bool { return forbidden.Check(nil) == nil })
	forbidden.server.Put("resourceslices", newer)
	forbidden.eventually("of its node", func() bool { return forbidden.Graph.HasReference(namespace1, node.ResourceSlice, "", "s") })
	forbidden.server.ForbidVersions("v1beta1", "v1beta2")
	forbidden.server.EndWatches(false)
	forbidden.eventually("gone with the permission", func() bool {
		return !forbidden.Graph.HasReference(namespace1, node.ResourceSlice, "", "s")
	})
	for _, test := range []struct {
		off   []string
		slice apitest.Object
	}{
		{slice: newer},
		{off: []string{"v1beta2"}, slice: older},
		{off: []string{"v1beta1", "v1beta2"}},
	} {
		fixture := newFixture(t, test.off...)
		fixture.eventually("synced", func() bool { return fixture.Check(nil) == nil })
		if test.slice == nil {
			continue
		}
		fixture.server.Put("resourceslices", test.slice)
		fixture.eventually("of its node", func() bool { return fixture.Graph.HasReference(namespace1, node.ResourceSlice, "", "s") })
		fixture.server.RemoveVersions("v1beta1", "v1beta2")
		fixture.server.EndWatches(false)
		fixture.eventually("gone with its kind", func() bool { return !fixture.Graph.HasReference(namespace1, node.ResourceSlice, "", "s") })
	}
}
