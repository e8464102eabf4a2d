package scenarios

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"binnacle/e2e/harness"
)

const (
	// patience bounds the wait for recovery. The webhook timeout bounds a single request far below
	// it.
	patience     = 30 * time.Second
	accessConfig = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: authz-webhook
  webhook:
    timeout: 2s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: NoOpinion
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: KUBECONFIG}
`
)

// accessSuite is an API server that uses two replicas of authz-webhook behind one address.
type accessSuite struct {
	t              *testing.T
	server         *harness.Server
	admin          *kubernetes.Clientset
	address        *harness.Proxy
	authz          [2]*harness.Authority
	decisionChecks int // number of calls of checkDecisions
	clients        sync.WaitGroup
	stopped        chan struct{} // closed by stop
}

// startAccessSuite starts the servers.
func startAccessSuite(t *testing.T) *accessSuite {
	t.Helper()
	harness.Binary(t, harness.AuthzWebhook)
	s := &accessSuite{t: t, address: harness.StartProxy(t), stopped: make(chan struct{})}
	s.server = harness.StartServer(t, harness.WithAuthorizationConfig(s.address.Addr, accessConfig))
	s.admin = s.server.Client()
	for i := range s.authz {
		s.authz[i] = harness.NewAuthority(t, s.server, harness.AuthzWebhook)
		s.authz[i].Start()
	}
	s.address.SetTargets(s.authz[0].Addr, s.authz[1].Addr)
	return s
}

// clientFor returns a client of a user, which times out requests that hang.
func (s *accessSuite) clientFor(name string) *kubernetes.Clientset {
	s.t.Helper()
	config := s.server.ConfigFor(s.server.PKI.Client(name))
	config.Timeout = patience
	return harness.ClientFor(s.t, config)
}

// pace is the pause between two requests of a client.
const pace = 2 * time.Millisecond

// repeat runs check in a loop until the end of the suite. An error fails the test.
func (s *accessSuite) repeat(what string, requests *atomic.Int64, check func() error) {
	s.clients.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for {
			select {
			case <-s.stopped:
				return
			case <-tick.C:
			}
			if err := check(); err != nil {
				s.t.Errorf("%s: %v", what, err)
				return
			}
			requests.Add(1)
		}
	})
}

// stop stops the clients.
func (s *accessSuite) stop() {
	close(s.stopped)
	s.clients.Wait()
}

// grantUser lets a user read the ConfigMaps of the default namespace.
func (s *accessSuite) grantUser(user string) {
	s.t.Helper()
	roleBinding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "of-" + user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := s.admin.RbacV1().RoleBindings("default").Create(s.t.Context(), roleBinding, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

// readConfigMap reads a ConfigMap of the default namespace.
func readConfigMap(ctx context.Context, c kubernetes.Interface, name string) error {
	_, err := c.CoreV1().ConfigMaps("default").Get(ctx, name, metav1.GetOptions{})
	return err
}

// requireRejection returns nil for a rejection and an error for success. A request that fails
// because no webhook responded counts as rejected.
func requireRejection(err error) error {
	switch {
	case err == nil:
		return errors.New("an unauthorized request succeeded")
	case !apierrors.IsForbidden(err) && !isUndecided(err):
		return err
	}
	return nil
}

// isUndecided reports whether a request failed because no webhook responded.
func isUndecided(err error) bool {
	return apierrors.IsInternalError(err) && strings.Contains(err.Error(), "authorization webhook authz-webhook: ")
}

// TestAuthzWebhookFailsAndRecovers kills, pauses and replaces the replicas of authz-webhook while
// three clients send requests: one that is allowed, one that is not, and one whose requests need
// new decisions.
func TestAuthzWebhookFailsAndRecovers(t *testing.T) {
	t.Parallel()
	accessSuite := startAccessSuite(t)
	if _, err := accessSuite.admin.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("c", "1"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	alice, bob, mallory := accessSuite.clientFor("alice"), accessSuite.clientFor("bob"), accessSuite.clientFor("mallory")
	accessSuite.grantUser("alice")
	accessSuite.grantUser("bob")
	harness.Eventually(t, patience, "alice to be allowed to read", func() error { return readConfigMap(t.Context(), alice, "c") })
	var cached, fresh, rejections, undecided atomic.Int64
	accessSuite.repeat("cached decisions", &cached, func() error { return readConfigMap(t.Context(), alice, "c") })
	accessSuite.repeat("mallory", &rejections, func() error {
		return requireRejection(readConfigMap(t.Context(), mallory, fmt.Sprint("c", rejections.Load())))
	})
	accessSuite.repeat("bob", &fresh, func() error {
		err := readConfigMap(t.Context(), bob, fmt.Sprint("c", fresh.Load())) // does not exist
		if isUndecided(err) {
			undecided.Add(1)
			return nil
		}
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
	// awaitDecisions waits until new decisions succeed and all clients have made progress.
	awaitDecisions := func(after string) {
		t.Helper()
		n := 0
		harness.Eventually(t, patience, "a decision after "+after, func() error {
			n++
			if err := readConfigMap(t.Context(), bob,
				fmt.Sprintf("after-%s-%d", strings.ReplaceAll(after, " ", "-"), n)); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%v", err)
			}
			return nil
		})
		counts := func() [3]int64 { return [3]int64{cached.Load(), fresh.Load(), rejections.Load()} }
		before := counts()
		harness.Eventually(t, patience, "progress of all clients after "+after, func() error {
			now := counts()
			for i := range now {
				if now[i] <= before[i] && !t.Failed() {
					return fmt.Errorf("%v, then %v", before, now)
				}
			}
			return nil
		})
	}
	// awaitRejection waits until a new request is rejected because no webhook responds.
	awaitRejection := func(during string) {
		t.Helper()
		undecidedBefore, cachedBefore := undecided.Load(), cached.Load()
		harness.Eventually(t, patience, "a rejection while "+during, func() error {
			if undecided.Load() == undecidedBefore || cached.Load() == cachedBefore {
				return errors.New("no rejection yet")
			}
			return nil
		})
	}
	awaitDecisions("the start")

	accessSuite.authz[0].Kill()
	awaitDecisions("one was killed")
	accessSuite.authz[1].Kill()
	awaitRejection("both are dead")
	accessSuite.authz[0].Start()
	awaitDecisions("one restarted")
	accessSuite.authz[1].Start()
	awaitDecisions("both restarted")

	accessSuite.authz[0].Pause()
	accessSuite.authz[1].Pause()
	awaitRejection("both are paused")
	accessSuite.authz[1].Resume()
	awaitDecisions("one resumes")
	accessSuite.authz[0].Resume()
	awaitDecisions("both resume")

	// One replica hangs. The load balancer detects it, but its connections stay open.
	accessSuite.address.SetTargets(accessSuite.authz[0].Addr)
	accessSuite.address.Reset()
	awaitDecisions("a move to the first")
	accessSuite.authz[0].Pause()
	accessSuite.address.SetTargets(accessSuite.authz[1].Addr)
	awaitDecisions("the first hangs")
	accessSuite.authz[0].Resume()
	accessSuite.address.SetTargets(accessSuite.authz[0].Addr, accessSuite.authz[1].Addr)

	for _, a := range accessSuite.authz { // a rolling update
		if err := a.Stop(); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
		a.Start()
	}
	awaitDecisions("replacement")
	accessSuite.stop()
	t.Logf("%d cached decisions, %d new ones (%d without a response), %d rejections", cached.Load(), fresh.Load(),
		undecided.Load(), rejections.Load())
}

// TestRevokedPermissionEndsCachedDecisions revokes a permission while no webhook responds. The
// cached decision must not outlive the permission.
func TestRevokedPermissionEndsCachedDecisions(t *testing.T) {
	t.Parallel()
	accessSuite := startAccessSuite(t)
	alice := accessSuite.clientFor("alice")
	revoke := func() {
		t.Helper()
		if err := accessSuite.admin.RbacV1().RoleBindings("default").Delete(t.Context(), "of-alice", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	reads := func() error {
		if err := readConfigMap(t.Context(), alice, "x"); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%v", err)
		}
		return nil
	}
	isRejected := func() error { return requireRejection(readConfigMap(t.Context(), alice, "x")) }
	for _, fault := range []struct {
		name        string
		begin, heal func(*harness.Authority)
	}{
		{name: "nothing", begin: func(*harness.Authority) {}, heal: func(*harness.Authority) {}},
		{name: "pause", begin: func(a *harness.Authority) { a.Pause() }, heal: func(a *harness.Authority) { a.Resume() }},
		{name: "death", begin: func(a *harness.Authority) { a.Kill() }, heal: (*harness.Authority).Start},
	} {
		accessSuite.grantUser("alice")
		harness.Eventually(t, patience, fault.name+": permission to read", reads)
		for _, a := range accessSuite.authz {
			fault.begin(a)
		}
		if fault.name != "nothing" { // the decision is cached; otherwise the request would be rejected
			if err := reads(); err != nil {
				t.Errorf("%s: read with a cached decision: got %v, want it allowed", fault.name, err)
			}
		}
		revoke()
		harness.Eventually(t, patience, fault.name+": rejection", isRejected)
		for _, a := range accessSuite.authz {
			fault.heal(a)
		}
		for range 20 { // earlier decisions of the webhooks must not be used
			if err := isRejected(); err != nil {
				t.Errorf("%s: read after the revocation: got %v, want Forbidden", fault.name, err)
			}
		}
	}
}

// TestPolicyChangeAppliesToAllReplicas changes the policy through one replica of the API server and
// sends requests to another. One of them uses authz-webhook.
func TestPolicyChangeAppliesToAllReplicas(t *testing.T) {
	t.Parallel()
	harness.Binary(t, harness.AuthzWebhook)
	etcd, nats := harness.StartEtcd(t), harness.StartNATS(t, 1)
	shared := harness.WithFlags("--etcd-servers="+etcd.Endpoint, "--nats-servers=nats://"+nats[0].Addr,
		"--cluster-id=authorization")
	address := harness.StartProxy(t)
	inProcess := harness.StartServer(t, shared)
	asking := harness.StartServer(t, shared, harness.WithAccessWebhook(address.Addr))
	// The webhook uses the replica that does not call it.
	authority := harness.NewAuthority(t, inProcess, harness.AuthzWebhook)
	authority.AllowServer(asking)
	authority.Start()
	address.SetTargets(authority.Addr)
	admin := asking.Client()
	for range 5 {
		s := &accessSuite{t: t, server: inProcess, admin: admin}
		s.grantUser("alice")
		for _, replica := range []*harness.Server{asking, inProcess} {
			alice := harness.ClientFor(t, replica.ConfigFor(replica.PKI.Client("alice")))
			harness.Eventually(t, patience, "alice to be allowed to read", func() error {
				if err := readConfigMap(t.Context(), alice, "x"); !apierrors.IsNotFound(err) {
					return fmt.Errorf("%v", err)
				}
				return nil
			})
		}
		if err := admin.RbacV1().RoleBindings("default").Delete(t.Context(), "of-alice", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, replica := range []*harness.Server{asking, inProcess} {
			alice := harness.ClientFor(t, replica.ConfigFor(replica.PKI.Client("alice")))
			isRejected := func() error { return requireRejection(readConfigMap(t.Context(), alice, "x")) }
			harness.Eventually(t, patience, "rejection of alice", isRejected)
			for range 20 { // and the decision does not flip back
				if err := isRejected(); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// TestAuthzWebhookNeedsOnlyItsRoles runs authz-webhook with an API server that grants it only the
// roles of its manifest.
func TestAuthzWebhookNeedsOnlyItsRoles(t *testing.T) {
	t.Parallel()
	server := harness.StartServer(t)
	harness.NewCLI(t, server).Run(t, "apply", "-f",
		filepath.Join("..", "..", "deploy", "manifests", "rbac", "authz-webhook.yaml"))
	// Outside of the suite's group the user name has no special rights.
	kubeconfig := server.Kubeconfig(server.PKI.Client("system:binnacle:authz-webhook"))
	harness.NewAuthority(t, server, harness.AuthzWebhook, "--kubeconfig="+kubeconfig).Start() // waits until it is ready
}
