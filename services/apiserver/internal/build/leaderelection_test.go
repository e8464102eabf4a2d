package build

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"binnacle/services/apiserver/internal/config"
	"binnacle/services/apiserver/internal/storage/etcd/etcdtest"
)

const (
	contestedLease  = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/example"
	controllerLease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/leader-election-controller"
)

// candidate is a process that takes part in leader election with client-go, as components of
// Kubernetes do. leads is closed when it becomes leader, and ended when it has ended.
type candidate struct{ leads, ended chan struct{} }

// runCandidate runs a candidate of the client library until it stops leading or the test ends. binary
// and emulation are its versions.
func (api *testServer) runCandidate(name, binary, emulation string) *candidate {
	api.t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: api.url, Transport: api.client.Transport, QPS: -1})
	if err != nil {
		api.t.Fatal(err)
	}
	leaseCandidate, _, err := leaderelection.NewCandidate(client, "kube-system", name, "example", binary,
		emulation, coordinationv1.OldestEmulationVersion)
	if err != nil {
		api.t.Fatal(err)
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, "kube-system", "example", client.CoreV1(),
		client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: name})
	if err != nil {
		api.t.Fatal(err)
	}
	started := &candidate{leads: make(chan struct{}), ended: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		Name:          "example",
		Coordinated:   true,
		LeaseDuration: time.Second,
		RenewDeadline: 700 * time.Millisecond,
		RetryPeriod:   100 * time.Millisecond,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(started.leads) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		api.t.Fatal(err)
	}
	ctx, end := context.WithCancel(api.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); leaseCandidate.Run(ctx) }()
	go func() {
		defer close(started.ended)
		elector.Run(ctx)
		end() // a former leader ends
		<-done
	}()
	api.t.Cleanup(func() { end(); <-started.ended })
	return started
}

// waitFor fails the test unless event is closed within a minute.
func (api *testServer) waitFor(name string, event <-chan struct{}) {
	api.t.Helper()
	select {
	case <-event:
	case <-time.After(time.Minute):
		api.t.Fatalf("%s: not within a minute; the lease is %s", name, api.get(contestedLease).body)
	}
}

// withLeaderElection enables coordinated leader election.
func withLeaderElection(t *testing.T, options *config.Options) {
	t.Helper()
	if err := errors.Join(options.Features.Set("CoordinatedLeaderElection=true"),
		options.RuntimeConfig.Set("coordination.k8s.io/v1beta1=true")); err != nil {
		t.Fatal(err)
	}
}

// TestOldestCandidateLeads checks that the candidate with the oldest emulation version becomes leader
// even if it starts later, and that this works through a replica that does not elect leaders.
func TestOldestCandidateLeads(t *testing.T) {
	skipInShortMode(t)
	t.Parallel()
	etcd := etcdtest.ListeningServer(t)
	replica := func() *testServer {
		return startServer(t, func(options *config.Options) {
			options.Etcd.Backend = config.BackendEtcd
			options.Etcd.Servers = []string{etcd.Endpoint()}
			withLeaderElection(t, options)
			options.LeaderElectionRetryPeriod = 200 * time.Millisecond
		})
	}
	one := replica()
	one.waitUntil("an electing replica exists", func() bool { return one.get(controllerLease).code == http.StatusOK })
	two := replica()
	two.mustSend(200, "GET", "/readyz/poststarthook/start-kube-apiserver-coordinated-leader-election-controller", "")
	spec := func(field string) string { return fmt.Sprint(two.get(contestedLease).field("spec", field)) }

	// 1. The only candidate leads.
	first := two.runCandidate("Host_new", "1.33.0", "1.33.0")
	two.waitFor("the only candidate leads", first.leads)
	if got := spec("holderIdentity") + " " + spec("strategy"); got != "Host_new OldestEmulationVersion" {
		t.Errorf("got holder and strategy %s, want Host_new OldestEmulationVersion", got)
	}

	// 2. A candidate with an older emulation version replaces it.
	oldest := two.runCandidate("old", "1.33.0", "1.32.0")
	two.waitFor("the newer one makes way", first.ended)
	two.waitFor("the oldest leads", oldest.leads)
	if got := spec("holderIdentity") + " " + spec("leaseTransitions"); got != "old 1" {
		t.Errorf("got holder and transitions %s, want old 1", got)
	}
}

// TestNoElectionWithoutGate checks that candidates can be created but no leader is elected.
func TestNoElectionWithoutGate(t *testing.T) {
	t.Parallel()
	api := startServer(t, func(options *config.Options) {
		if err := options.RuntimeConfig.Set("coordination.k8s.io/v1beta1=true"); err != nil {
			t.Fatal(err)
		}
	})
	api.mustSend(201, "POST", "/apis/coordination.k8s.io/v1beta1/namespaces/kube-system/leasecandidates",
		`{"apiVersion":"coordination.k8s.io/v1beta1","kind":"LeaseCandidate","metadata":{"name":"a"},
		"spec":{"leaseName":"example","binaryVersion":"1.33.0","emulationVersion":"1.33.0","strategy":"OldestEmulationVersion","renewTime":"2026-01-01T00:00:00.000000Z"}}`)
	if api.server.controllers.leaderElection != nil {
		t.Error("got a leader election controller, want none")
	}
	for _, path := range []string{controllerLease, contestedLease} {
		if got := api.get(path).code; got != http.StatusNotFound {
			t.Errorf("%s: got %d, want %v", path, got, http.StatusNotFound)
		}
	}
	got := api.get("/readyz/poststarthook/start-kube-apiserver-coordinated-leader-election-controller").code
	if got != http.StatusNotFound {
		t.Errorf("health check of the controller: got status %d, want 404", got)
	}
}
