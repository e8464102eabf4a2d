package scenarios

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"binnacle/e2e/harness"
)

// TestAuthzWebhookFollowsRestoredStore restores etcd from a backup under an API server and its
// authorization webhook, which gets its policy from that server. Neither is notified. Within a
// bounded time and permanently, grants and revocations since the backup have no effect, and the
// policy of the backup applies. A server that starts on such a store cannot detect the restore: it
// may cache decisions that the webhook made before it listed the restored policy, for the lifetime
// of cached decisions.
func TestAuthzWebhookFollowsRestoredStore(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// restarted stops the API server before etcd and starts it after the restore. passed writes
		// to the restored store until its revision exceeds the old one, before any client reads it.
		restarted, passed bool
	}{
		{name: "running"},
		{name: "running and passed", passed: true},
		{name: "restarted", restarted: true},
		{name: "restarted and passed", restarted: true, passed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			harness.Binary(t, harness.AuthzWebhook)
			etcd := harness.StartEtcd(t)
			env := &accessSuite{t: t, address: harness.StartProxy(t), stopped: make(chan struct{})}
			env.server = harness.StartServer(t, harness.WithEtcd(etcd),
				harness.WithAuthorizationConfig(env.address.Addr,
					strings.Replace(accessConfig, "timeout: 2s", "timeout: 2s\n    authorizedTTL: 10s", 1)))
			env.admin = env.server.Client()
			authority := harness.NewAuthority(t, env.server, harness.AuthzWebhook)
			authority.Start()
			env.address.SetTargets(authority.Addr)
			if _, err := env.admin.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("c", "1"),
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			alice, bob, carol := env.clientFor("alice"), env.clientFor("bob"), env.clientFor("carol")
			env.grantUser("alice")
			env.grantUser("carol")
			env.waitForDecisions("before", map[string]*kubernetes.Clientset{"alice": alice, "carol": carol},
				map[string]*kubernetes.Clientset{"bob": bob})

			store := &restored{T: t, etcd: etcd, client: etcd.Client()}
			file := saveSnapshot(t, store.client)
			bindings := env.admin.RbacV1().RoleBindings("default")
			if err := bindings.Delete(t.Context(), "of-alice", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			env.grantUser("bob")
			// Carol's binding is another one with the same name.
			if err := bindings.Delete(t.Context(), "of-carol", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			other := &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "of-carol"},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "dave"}},
			}
			if _, err := bindings.Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			dave := env.clientFor("dave")
			env.waitForDecisions("what will be lost", map[string]*kubernetes.Clientset{"bob": bob, "dave": dave},
				map[string]*kubernetes.Clientset{"alice": alice, "carol": carol})

			if test.restarted {
				if err := env.server.Stop(); err != nil {
					t.Fatal(err)
				}
			}
			store.restoreSnapshot(file, test.passed)
			if test.restarted {
				env.server.Start()
			}
			may, mayNot := map[string]*kubernetes.Clientset{
				"alice": alice,
				"carol": carol,
			}, map[string]*kubernetes.Clientset{"bob": bob, "dave": dave}
			env.waitForDecisions("after", may, mayNot)
			for range 20 { // and permanently
				env.checkDecisions("later", may, mayNot, func(err error) { t.Error(err) })
			}
		})
	}
}

// waitForDecisions waits until some users may read and others may not.
func (s *accessSuite) waitForDecisions(when string, may, mayNot map[string]*kubernetes.Clientset) {
	s.t.Helper()
	harness.Eventually(s.t, restoredPatience, when, func() (found error) {
		s.checkDecisions(when, may, mayNot, func(err error) { found = errors.Join(found, err) })
		return found
	})
}

// checkDecisions sends a request that needs a new decision, and one that may use a cached decision,
// as each user. It calls wrong with each wrong decision.
func (s *accessSuite) checkDecisions(when string, may, mayNot map[string]*kubernetes.Clientset, wrong func(error)) {
	s.decisionChecks++
	for _, name := range []string{"c", fmt.Sprintf("new-%d", s.decisionChecks)} {
		for user, c := range may {
			if err := readConfigMap(s.t.Context(), c, name); err != nil && !apierrors.IsNotFound(err) {
				wrong(fmt.Errorf("%s: %s cannot read %s: %w", when, user, name, err))
			}
		}
		for user, c := range mayNot {
			if err := requireRejection(readConfigMap(s.t.Context(), c, name)); err != nil && !apierrors.IsTooManyRequests(err) {
				wrong(fmt.Errorf("%s: %s and %s: %w", when, user, name, err))
			}
		}
	}
}
