package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"binnacle/e2e/harness"
)

const (
	restoredReplicas = 3
	restoredPatience = 90 * time.Second
	// mapsPrefix is the prefix of the test's ConfigMaps in etcd.
	mapsPrefix = "/registry/configmaps/default/"
)

// TestReplicasFollowRestoredStore restores etcd from a backup under running API servers that follow
// one stream of changes. As in an emergency, they are not notified, the revision does not increase
// and the cluster ID stays the same. Each must serve the restored state without the lost objects,
// and so must informers.
func TestReplicasFollowRestoredStore(t *testing.T) {
	t.Parallel()
	etcd, nats := harness.StartEtcd(t), harness.StartNATS(t, 1)[0]
	flags := harness.WithFlags("--nats-servers=nats://"+nats.Addr, "--cluster-id=restored")
	first := harness.StartServer(t, harness.WithEtcd(etcd), flags)
	servers := []*harness.Server{first}
	for range restoredReplicas - 1 {
		servers = append(servers, first.StartReplica(harness.WithEtcd(etcd), flags))
	}
	store := &restored{T: t, etcd: etcd, client: etcd.Client()}
	for i, s := range servers {
		store.replicas = append(store.replicas, store.startReader(fmt.Sprintf("replica %d", i), s.Client()))
	}
	for round, test := range []struct {
		name string
		// passed writes to the restored store until its revision exceeds the old one, before any
		// client reads it.
		passed bool
	}{
		{name: "behind", passed: false},
		{name: "passed", passed: true},
		{name: "behind again", passed: false},
	} {
		store.restoreAndCheck(round, test.name, test.passed)
	}
}

// restored is an etcd that is restored, and its readers.
type restored struct {
	*testing.T
	etcd     *harness.Etcd
	client   *clientv3.Client
	replicas []*storeReader
}

// storeReader is a replica with a client and an informer.
type storeReader struct {
	name   string
	client *kubernetes.Clientset
	store  cache.Store
}

// startReader starts an informer of a replica.
func (r *restored) startReader(name string, clientset *kubernetes.Clientset) *storeReader {
	r.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(clientset, 0, informers.WithNamespace("default"))
	informer := factory.Core().V1().ConfigMaps().Informer()
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	r.Cleanup(func() {
		cancel() // before Shutdown, which waits for the informers
		factory.Shutdown()
	})
	return &storeReader{name: name, client: clientset, store: informer.GetStore()}
}

// restoreAndCheck saves the store, changes it, restores it and checks that all readers return to
// the saved state. If passed is true, the restored store first gets a higher revision than before.
func (r *restored) restoreAndCheck(round int, name string, passed bool) {
	r.Helper()
	r.Logf("round %d: %s", round, name)
	kept := fmt.Sprintf("kept-%d", round)
	removed := fmt.Sprintf("removed-%d", round)
	lost := fmt.Sprintf("lost-%d", round)
	first := r.replicas[0].client.CoreV1().ConfigMaps("default")
	for _, m := range []string{kept, removed} {
		if _, err := first.Create(r.Context(), configMap(m, "saved"), metav1.CreateOptions{}); err != nil {
			r.Fatal(err)
		}
	}
	r.checkAgreement("before " + name)
	file := saveSnapshot(r.T, r.client)

	if _, err := first.Update(r.Context(), configMap(kept, "lost"), metav1.UpdateOptions{}); err != nil {
		r.Fatal(err)
	}
	if err := first.Delete(r.Context(), removed, metav1.DeleteOptions{}); err != nil {
		r.Fatal(err)
	}
	for i := range 20 {
		if _, err := first.Create(r.Context(), configMap(fmt.Sprintf("%s-%d", lost, i), "lost"),
			metav1.CreateOptions{}); err != nil {
			r.Fatal(err)
		}
	}
	r.checkAgreement("what will be lost, " + name)
	var watches []watch.Interface
	for _, reader := range r.replicas {
		w, err := reader.client.CoreV1().ConfigMaps("default").Watch(r.Context(), metav1.ListOptions{})
		if err != nil {
			r.Fatal(err)
		}
		watches = append(watches, w)
	}

	r.restoreSnapshot(file, passed)
	r.createAtReplicas(round)
	for i, w := range watches {
		r.checkWatchEnded(r.replicas[i].name, w)
	}
	r.checkAgreement("after " + name)
	for _, reader := range r.replicas {
		maps := reader.client.CoreV1().ConfigMaps("default")
		if _, err := maps.Get(r.Context(), lost+"-0", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			r.Errorf("%s: lost object: got %v", reader.name, err)
		}
		for _, m := range []string{kept, removed} {
			if got, err := maps.Get(r.Context(), m, metav1.GetOptions{}); err != nil || got.Data["value"] != "saved" {
				r.Errorf("%s: saved object: got %v, %v, want no error, got.Data[\"value\"] = \"saved\"", reader.name, got, err)
			}
		}
		for i := range r.replicas {
			if _, err := maps.Get(r.Context(), createdName(round, i), metav1.GetOptions{}); err != nil {
				r.Errorf("%s: object created since: %v", reader.name, err)
			}
		}
		if _, err := reader.client.RESTClient().Get().AbsPath("/readyz").DoRaw(r.Context()); err != nil {
			r.Errorf("%s: %v", reader.name, err)
		}
	}
}

// restoreSnapshot replaces the running etcd by one with the saved data.
func (r *restored) restoreSnapshot(file string, passed bool) {
	r.Helper()
	members, err := r.client.MemberList(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	status, err := r.client.Status(r.Context(), r.etcd.Endpoint)
	if err != nil {
		r.Fatal(err)
	}
	peers := members.Members[0].PeerURLs
	r.etcd.Kill()
	data := filepath.Join(r.TempDir(), "restored")
	if err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: data, Name: "e2e", PeerURLs: peers,
		InitialCluster: "e2e=" + peers[0], InitialClusterToken: "etcd-cluster",
	}); err != nil {
		r.Fatal(err)
	}
	if passed {
		r.passRevision(data, status.Header.Revision)
	}
	r.etcd.StartOn(data)
	if again, err := r.client.Status(r.Context(), r.etcd.Endpoint); err != nil ||
		again.Header.ClusterId != status.Header.ClusterId {
		r.Errorf("cluster: got %[2]v, want %[1]v, %[3]v", status.Header, again, err)
	}
}

// passRevision writes to an etcd that has no other client until it is beyond a revision. Stored
// objects are written again, so that they get other versions.
func (r *restored) passRevision(data string, revision int64) {
	r.Helper()
	etcd := harness.StartEtcd(r.T, "--data-dir="+data)
	client := etcd.Client()
	stored, err := client.Get(r.Context(), mapsPrefix, clientv3.WithPrefix())
	if err != nil {
		r.Fatal(err)
	}
	for at := int64(0); at < revision+5; {
		for _, kv := range stored.Kvs {
			resp, err := client.Put(r.Context(), string(kv.Key), string(kv.Value))
			if err != nil {
				r.Fatal(err)
			}
			at = resp.Header.Revision
		}
	}
	if err := etcd.Stop(); err != nil {
		r.Logf("etcd ended with %v", err) // it exits by the signal
	}
}

func createdName(round, replica int) string { return fmt.Sprintf("created-%d-%d", round, replica) }

// createAtReplicas creates an object through each replica and retries until it succeeds.
func (r *restored) createAtReplicas(round int) {
	r.Helper()
	var all sync.WaitGroup
	for i, reader := range r.replicas {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(r.Context(), restoredPatience)
			defer cancel()
			var err error
			for ctx.Err() == nil {
				_, err = reader.client.CoreV1().ConfigMaps("default").Create(ctx,
					configMap(createdName(round, i), "new"), metav1.CreateOptions{})
				if err == nil || apierrors.IsAlreadyExists(err) {
					return
				}
			}
			r.Errorf("%s: %v", reader.name, err)
		})
	}
	all.Wait()
}

// checkWatchEnded reads a watch, which must end with an error that makes its client list.
func (r *restored) checkWatchEnded(name string, client watch.Interface) {
	r.Helper()
	defer client.Stop()
	deadline := time.NewTimer(restoredPatience)
	defer deadline.Stop()
	for {
		select {
		case event, ok := <-client.ResultChan():
			switch {
			case !ok:
				r.Errorf("%s: a watch ended without an error", name)
				return
			case event.Type == watch.Error:
				if !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
					r.Errorf("%s: a watch ended with %v", name, event.Object)
				}
				return
			}
		case <-deadline.C:
			r.Errorf("%s: a watch did not end", name)
			return
		}
	}
}

// checkAgreement waits until all readers have the state of etcd.
func (r *restored) checkAgreement(when string) {
	r.Helper()
	harness.Eventually(r.T, restoredPatience, when, func() error {
		ctx, cancel := context.WithTimeout(r.Context(), restoredPatience)
		defer cancel()
		stored, err := r.client.Get(ctx, mapsPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			return err
		}
		want := map[string]string{}
		for _, kv := range stored.Kvs {
			want[path.Base(string(kv.Key))] = fmt.Sprint(kv.ModRevision)
		}
		var errs []error
		for _, reader := range r.replicas {
			if err := reader.compare(ctx, want); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", reader.name, err))
			}
		}
		return errors.Join(errs...)
	})
}

// compare compares names and versions with those of a replica and its informer.
func (s *storeReader) compare(ctx context.Context, want map[string]string) error {
	for _, version := range []string{"", "0"} {
		list, err := s.client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{ResourceVersion: version})
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, m := range list.Items {
			got[m.Name] = m.ResourceVersion
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("list at %q: got %v, want %v", version, got, want)
		}
	}
	got := map[string]string{}
	for _, o := range s.store.List() {
		m := o.(*corev1.ConfigMap)
		got[m.Name] = m.ResourceVersion
	}
	if !maps.Equal(got, want) {
		return fmt.Errorf("informer: got %v, want %v", got, want)
	}
	return nil
}
