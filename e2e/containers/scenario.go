package containers

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/e2e/harness"
	"binnacle/e2e/robustness/check"
	"binnacle/e2e/robustness/history"
	"binnacle/e2e/robustness/traffic"
)

const (
	// waitTimeout bounds every wait for an expected condition, also on busy machines.
	waitTimeout   = 4 * time.Minute
	writers       = 4
	writeInterval = 80 * time.Millisecond
	// warmUpChanges is the number of changes before the first fault.
	warmUpChanges = 20
)

// load is clients that use a composition, the recorder of all changes in etcd, and unauthorized
// clients.
type load struct {
	*composition
	t                   *testing.T
	recorder            *traffic.Recorder
	traffic             *traffic.Traffic
	unauthorizedClients *unauthorizedClients
	faults              []history.Fault
}

// startLoad starts the load and waits until it has written some objects.
func (c *composition) startLoad(t *testing.T, seed uint64) *load {
	t.Helper()
	started := &load{composition: c, t: t, recorder: traffic.NewRecorder(c.etcdClient())}
	ctx, cancel := context.WithCancel(context.Background())
	var recording sync.WaitGroup
	recording.Go(func() { started.recorder.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		recording.Wait()
	})
	admin := c.adminClient("apiserver-1")
	var namespaces []string
	for _, name := range []string{"load-a", "load-b"} {
		if _, err := admin.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		namespaces = append(namespaces, name)
	}
	started.unauthorizedClients = c.startUnauthorizedClients(t.Context())
	started.traffic = traffic.Start(t.Context(), traffic.Config{
		Namespaces: namespaces, Seed: seed, Writers: writers, Interval: writeInterval,
		Replicas: []traffic.Replica{c.trafficReplica("apiserver-1"), c.trafficReplica("apiserver-2")},
	})
	t.Cleanup(func() { // before the API servers stop
		started.traffic.Stop()
		_, _ = started.unauthorizedClients.stopAndCollect()
	})
	started.awaitRecovery("traffic")
	harness.Eventually(t, waitTimeout, "writes", func() error {
		if n := len(started.storedChanges().Changes); n < warmUpChanges {
			return fmt.Errorf("got %d changes, want %d", n, warmUpChanges)
		}
		return nil
	})
	return started
}

// storedChanges returns the changes that the recorder has read from etcd.
func (l *load) storedChanges() *history.ChangeLog { return l.recorder.ChangeLog(l.traffic.Started()) }

// awaitRecovery waits until every client has received all changes up to now.
func (l *load) awaitRecovery(what string) (revision int64) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), waitTimeout)
	defer cancel()
	revision, err := l.recorder.Barrier(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	harness.Eventually(l.t, waitTimeout, what, func() error { return l.traffic.CheckReached(l.storedChanges(), revision) })
	return revision
}

// injectFault causes a fault, holds it, repairs it and waits until all clients have recovered.
func (l *load) injectFault(f fault, held time.Duration) {
	l.t.Helper()
	started := l.traffic.Elapsed()
	f.inject(l.composition)
	hold := time.NewTimer(held)
	defer hold.Stop()
	<-hold.C
	f.repair(l.composition)
	repaired := l.traffic.Elapsed()
	l.faults = append(l.faults, history.Fault{Name: f.name, Start: started, End: repaired})
	l.awaitRecovery("recovery from: " + f.name)
	l.t.Logf("%s for %s; all clients were up to date %s after the repair", f.name,
		(repaired - started).Round(time.Millisecond), (l.traffic.Elapsed() - repaired).Round(time.Millisecond))
}

// stopAndCheck stops the load and checks the history.
func (l *load) stopAndCheck() {
	l.t.Helper()
	l.traffic.StopWrites()
	settled := l.awaitRecovery("delivery of the last changes")
	l.traffic.Stop()
	l.awaitRecovery("the last recorded changes")
	rejected, err := l.unauthorizedClients.stopAndCollect()
	if err != nil {
		l.t.Errorf("got unauthorized access %v, want none", err)
	}
	observed, err := l.traffic.History()
	if err != nil {
		l.t.Errorf("got invalid responses %v, want none", err)
	}
	observed.ChangeLog, observed.SettledRevision, observed.Faults = l.storedChanges(), settled, l.faults
	for _, violation := range check.All(observed) {
		l.t.Errorf("got violation %v, want none", violation)
	}
	outcomes := map[history.Outcome]int{}
	for _, op := range observed.Operations {
		outcomes[op.Outcome]++
	}
	l.t.Logf("%d operations %v, %d reads, %d unauthorized requests rejected", len(observed.Operations),
		outcomes, len(observed.Reads), rejected)
}
