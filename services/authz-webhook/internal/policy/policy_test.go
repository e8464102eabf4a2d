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

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

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

// newFixture runs a policy on an API server of apitest, which does not serve the unserved versions.
func newFixture(t *testing.T, unserved ...string) *fixture {
	t.Helper()
	server := apitest.New()
	server.RemoveVersions(unserved...)
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

// eventually waits until check returns true. condition describes it in errors.
func (f *fixture) eventually(condition string, check func() bool) {
	f.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !check() {
		select {
		case <-deadline:
			f.t.Fatalf("timed out waiting for the condition: %s", condition)
		case <-tick.C:
		}
	}
}

// allowed reports whether alice may get pods in namespace a.
func (f *fixture) allowed() bool {
	decision, _, err := f.Engine.Authorize(f.t.Context(), &authorizer.Attributes{
		User: &authorizer.User{Name: "alice"}, Verb: "get", Resource: true, Namespace: "a", ResourceName: "pods",
	})
	return err == nil && decision == authorizer.Allow
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
	boundAt := fixture.server.Put("rolebindings", readerBinding())
	fixture.server.Put("pods", pod())
	fixture.eventually("allowed", fixture.allowed)
	fixture.eventually("on its node", func() bool { return fixture.Graph.HasReference("n1", node.Pod, "a", "p") })
	if position := fixture.Engine.Snapshot().Position(); position[2] != boundAt {
		t.Errorf("got position %s, want rolebindings at %d", position, boundAt)
	}
	bookmark := fixture.server.Bookmark("roles", "rbac.authorization.k8s.io/v1", "Role")
	fixture.eventually("at the bookmark", func() bool { return fixture.Engine.Snapshot().Position()[3] == bookmark })
	// A revision that exceeds 64 bits is ignored.
	fixture.server.BookmarkAt("roles", "rbac.authorization.k8s.io/v1", "Role", "99999999999999999999")
	bookmark = fixture.server.Bookmark("roles", "rbac.authorization.k8s.io/v1", "Role")
	fixture.eventually("at the next bookmark", func() bool { return fixture.Engine.Snapshot().Position()[3] == bookmark })
	unboundAt := fixture.server.Delete("rolebindings", readerBinding())
	fixture.server.Delete("pods", pod())
	fixture.eventually("denied", func() bool { return !fixture.allowed() })
	fixture.eventually("off its node", func() bool { return !fixture.Graph.HasReference("n1", node.Pod, "a", "p") })
	if position := fixture.Engine.Snapshot().Position(); position[2] != unboundAt {
		t.Errorf("got position %s, want rolebindings at the deletion %d", position, unboundAt)
	}
}

// TestRestoredStoreIsListedAgain checks that changes of a restored store are seen. Its revision is below
// the last one, or already past it when the server is available again.
func TestRestoredStoreIsListedAgain(t *testing.T) {
	for name, restore := range map[string]func(*fixture){
		"revision below the last one": func(f *fixture) {
			f.server.ResetRevision(5)
			f.server.EndWatches(false)
		},
		"revision past the last one": func(f *fixture) {
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
			f.eventually("denied", func() bool { return !f.allowed() })
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

// TestResourceSlicesAreFollowedInServedVersion checks that resource slices are followed in the served version. Without
// one, nothing waits for them.
func TestResourceSlicesAreFollowedInServedVersion(t *testing.T) {
	nodeName := "n1"
	older := &resourcev1beta1.ResourceSlice{ObjectMeta: meta("", "s"), Spec: resourcev1beta1.ResourceSliceSpec{NodeName: nodeName}}
	newer := &resourcev1beta2.ResourceSlice{ObjectMeta: meta("", "s"), Spec: resourcev1beta2.ResourceSliceSpec{NodeName: &nodeName}}
	forbidden := newFixture(t)
	forbidden.eventually("synced", func() bool { return forbidden.Check(nil) == nil })
	forbidden.server.Put("resourceslices", newer)
	forbidden.eventually("of its node", func() bool { return forbidden.Graph.HasReference(nodeName, node.ResourceSlice, "", "s") })
	forbidden.server.ForbidVersions("v1beta1", "v1beta2")
	forbidden.server.EndWatches(false)
	forbidden.eventually("gone with the permission", func() bool {
		return !forbidden.Graph.HasReference(nodeName, node.ResourceSlice, "", "s")
	})
	for _, test := range []struct {
		unserved []string // versions
		slice    apitest.Object
	}{
		{slice: newer},
		{unserved: []string{"v1beta2"}, slice: older},
		{unserved: []string{"v1beta1", "v1beta2"}},
	} {
		fixture := newFixture(t, test.unserved...)
		fixture.eventually("synced", func() bool { return fixture.Check(nil) == nil })
		if test.slice == nil {
			continue
		}
		fixture.server.Put("resourceslices", test.slice)
		fixture.eventually("of its node", func() bool { return fixture.Graph.HasReference(nodeName, node.ResourceSlice, "", "s") })
		fixture.server.RemoveVersions("v1beta1", "v1beta2")
		fixture.server.EndWatches(false)
		fixture.eventually("gone with its kind", func() bool { return !fixture.Graph.HasReference(nodeName, node.ResourceSlice, "", "s") })
	}
}
