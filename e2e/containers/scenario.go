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
	// patience bounds every wait for something that must come, on machines that have much
	// else to do.
	patience = 4 * time.Minute
	writers  = 4
	pace     = 80 * time.Millisecond
	// warm is how many changes there are before the first fault.
	warm = 20
)

// load is clients at work on a composition, what etcd itself tells of the changes,
// and intruders.
type load struct {
	*composition
	t         *testing.T
	recorder  *traffic.Recorder
	traffic   *traffic.Traffic
	intruders *intruders
	faults    []history.Fault
}

func (c *composition) startLoad(t *testing.T, seed uint64) *load {
	t.Helper()
	l := &load{composition: c, t: t, recorder: traffic.NewRecorder(c.etcd())}
	ctx, cancel := context.WithCancel(context.Background())
	var recording sync.WaitGroup
	recording.Go(func() { l.recorder.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		recording.Wait()
	})
	admin := c.admin("apiserver-1")
	var namespaces []string
	for _, name := range []string{"load-a", "load-b"} {
		if _, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		namespaces = append(namespaces, name)
	}
	l.intruders = c.startIntruders(t.Context())
	l.traffic = traffic.Start(t.Context(), traffic.Config{
		Namespaces: namespaces, Seed: seed, Writers: writers, Pace: pace,
		Replicas: []traffic.Replica{c.replica("apiserver-1"), c.replica("apiserver-2")},
	})
	t.Cleanup(func() { // before what they ask is gone
		l.traffic.Stop()
		_, _ = l.intruders.end()
	})
	l.recovered("traffic")
	harness.Eventually(t, patience, "writes", func() error {
		if n := len(l.truth().Changes); n < warm {
			return fmt.Errorf("there are %d", n)
		}
		return nil
	})
	return l
}

func (l *load) truth() *history.Truth { return l.recorder.Truth(l.traffic.Started()) }

// recovered waits until every client has been told of what there is now.
func (l *load) recovered(what string) (revision int64) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	revision, err := l.recorder.Barrier(ctx)
	if err != nil {
		l.t.Fatal(err)
	}
	harness.Eventually(l.t, patience, what, func() error { return l.traffic.Behind(l.truth(), revision) })
	return revision
}

// suffer lets a fault happen, last and pass, and waits until all is well.
func (l *load) suffer(f fault, d time.Duration) {
	l.t.Helper()
	begun := l.traffic.Elapsed()
	f.damage(l.composition)
	hold := time.NewTimer(d)
	defer hold.Stop()
	<-hold.C
	f.repair(l.composition)
	repaired := l.traffic.Elapsed()
	l.faults = append(l.faults, history.Fault{Name: f.name, Begun: begun, Ended: repaired})
	l.recovered("recovery from: " + f.name)
	l.t.Logf("%s for %s; all clients were up to date %s after the repair", f.name,
		(repaired - begun).Round(time.Millisecond), (l.traffic.Elapsed() - repaired).Round(time.Millisecond))
}

// finish ends the load and checks what was seen.
func (l *load) finish() {
	l.t.Helper()
	l.traffic.StopWrites()
	settled := l.recovered("the end")
	l.traffic.Stop()
	l.recovered("the truth")
	refused, err := l.intruders.end()
	if err != nil {
		l.t.Errorf("somebody came in who may not: %v", err)
	}
	h, err := l.traffic.History()
	if err != nil {
		l.t.Errorf("unusable answers: %v", err)
	}
	h.Truth, h.Settled, h.Faults = l.truth(), settled, l.faults
	for _, v := range check.All(h) {
		l.t.Errorf("%v", v)
	}
	outcomes := map[history.Outcome]int{}
	for _, op := range h.Operations {
		outcomes[op.Outcome]++
	}
	l.t.Logf("%d operations %v, %d reads, %d intruders refused", len(h.Operations), outcomes, len(h.Reads), refused)
}
