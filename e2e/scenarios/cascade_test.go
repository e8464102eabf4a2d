package scenarios

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"binnacle/e2e/harness"
)

// cascadeSettle bounds the deletion of all dependents, with a restarted garbage collector.
const cascadeSettle = 10 * time.Minute

// TestCascadeSurvivesFaults deletes an owner of many dependents beside two replicas of the garbage
// collector. In the middle it kills the leader, separates the next leader from the API server, and
// kills the leader again. It compares the end with a model: an object is gone if all its owners are
// gone. Of every ten dependents, one has a second owner that stays, one depends on it, one has no
// owner, and one depends on a dependent that goes.
func TestCascadeSurvivesFaults(t *testing.T) {
	t.Parallel()
	dependents := 10_000
	if testing.Short() {
		dependents = 1_000
	}
	server := harness.StartServer(t)
	config := server.Config()
	config.QPS = -1
	client := harness.ClientFor(t, harness.Protobuf(config))
	createNamespace(t, client, "cascade")
	model := createFamily(t, client, dependents)

	replicas := []*cutReplica{startCutReplica(t, server), startCutReplica(t, server)}
	findLeader := func() (*cutReplica, error) {
		for _, r := range replicas {
			if r.isLeader() {
				return r, nil
			}
		}
		return nil, errors.New("no replica leads")
	}
	waitForLeader := func() (found *cutReplica) {
		t.Helper()
		harness.Eventually(t, controllersSettle, "a replica leads", func() (err error) {
			found, err = findLeader()
			return err
		})
		return found
	}
	waitForLeader()
	policy := metav1.DeletePropagationForeground
	if err := client.CoreV1().ConfigMaps("cascade").Delete(t.Context(), "doomed",
		metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
	waitForDeletions := func(share int) {
		t.Helper()
		harness.Eventually(t, cascadeSettle, "a part of the dependents is deleted", func() error {
			if n := len(remainingObjects(t, client)); n > len(model)-dependents/share {
				return fmt.Errorf("%d objects", n)
			}
			return nil
		})
	}
	killLeader := func() {
		r := waitForLeader()
		r.Kill()
		r.Start(r.args...)
	}
	waitForDeletions(6)
	killLeader()
	waitForDeletions(4)
	separated := waitForLeader()
	separated.proxy.Set(harness.Cut)
	harness.Eventually(t, controllersSettle, "the separated replica gives up its leadership", func() error {
		if separated.isLeader() {
			return errors.New("it leads")
		}
		return nil
	})
	waitForLeader()
	separated.proxy.Set(harness.Pass)
	if !separated.Running() {
		separated.Start(separated.args...)
	}
	waitForDeletions(2)
	killLeader()
	want := map[string]bool{}
	for name, stays := range model {
		if stays {
			want[name] = true
		}
	}
	harness.Eventually(t, cascadeSettle, "the state of the model", func() error {
		left := remainingObjects(t, client)
		for name := range want {
			if _, ok := left[name]; !ok {
				t.Fatalf("%s was deleted, want it to stay, because it has an owner left or never had one", name)
			}
		}
		if len(left) != len(want) {
			return fmt.Errorf("%d objects, want %d", len(left), len(want))
		}
		for name, m := range left {
			for _, o := range m.OwnerReferences {
				if !want[o.Name] {
					return fmt.Errorf("%s refers to %s", name, o.Name)
				}
			}
		}
		return nil
	})
}

// cutReplica is a replica of the controllers with a connection to the API server that can be cut.
type cutReplica struct {
	*replica
	proxy *harness.Proxy
}

// startCutReplica starts a replica of the controllers behind a proxy.
func startCutReplica(t *testing.T, server *harness.Server) *cutReplica {
	t.Helper()
	proxy := harness.StartProxy(t, strings.TrimPrefix(server.URL, "https://"))
	kubeconfig := server.KubeconfigAt("https://"+proxy.Addr, server.PKI.Client("system:binnacle:controllers", "system:binnacle"))
	return &cutReplica{replica: startControllerWith(t, harness.Controllers, kubeconfig), proxy: proxy}
}

// remainingObjects returns the config maps of the test that exist, by name.
func remainingObjects(t *testing.T, client kubernetes.Interface) map[string]*corev1.ConfigMap {
	t.Helper()
	all, err := client.CoreV1().ConfigMaps("cascade").List(t.Context(), metav1.ListOptions{LabelSelector: "family"})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*corev1.ConfigMap{}
	for i := range all.Items {
		out[all.Items[i].Name] = &all.Items[i]
	}
	return out
}

// createFamily creates two owners, "doomed" and "kept", and dependents. It returns which objects
// stay after the deletion of "doomed".
func createFamily(t *testing.T, client kubernetes.Interface, dependents int) map[string]bool {
	t.Helper()
	maps := client.CoreV1().ConfigMaps("cascade")
	create := func(name string, owners ...metav1.OwnerReference) (metav1.OwnerReference, error) {
		m := configMap(name, "")
		m.Labels, m.OwnerReferences = map[string]string{"family": ""}, owners
		made, err := maps.Create(t.Context(), m, metav1.CreateOptions{})
		if err != nil {
			return metav1.OwnerReference{}, err
		}
		block := true
		return metav1.OwnerReference{
			APIVersion:         "v1",
			Kind:               "ConfigMap",
			Name:               name,
			UID:                made.UID,
			BlockOwnerDeletion: &block,
		}, nil
	}
	doomed, err := create("doomed")
	if err != nil {
		t.Fatal(err)
	}
	kept, err := create("kept")
	if err != nil {
		t.Fatal(err)
	}
	model := map[string]bool{"doomed": false, "kept": true}
	var mu sync.Mutex
	var group sync.WaitGroup
	const writers = 8
	for w := range writers {
		group.Go(func() {
			var last metav1.OwnerReference
			for i := w; i < dependents; i += writers {
				owners, stays := []metav1.OwnerReference{doomed}, false
				k := i / writers % 10
				switch {
				case k == 1:
					owners, stays = append(owners, kept), true
				case k == 2:
					owners = []metav1.OwnerReference{last} // has two owners and stays
					stays = true
				case k == 3:
					owners, stays = nil, true
				case k == 5:
					owners = []metav1.OwnerReference{last}
				}
				name := fmt.Sprintf("c-%d", i)
				made, err := create(name, owners...)
				if err != nil {
					t.Error(err)
					return
				}
				last = made
				mu.Lock()
				model[name] = stays
				mu.Unlock()
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return model
}
