package robustness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/e2e/harness"
	"binnacle/e2e/robustness/check"
	"binnacle/e2e/robustness/history"
	"binnacle/e2e/robustness/traffic"
)

// seedEnv is the environment variable that sets the seed.
const seedEnv = "BINNACLE_ROBUSTNESS_SEED"

const (
	// waitTimeout bounds every wait for an expected condition.
	waitTimeout   = 45 * time.Second
	writers       = 6
	writeInterval = 60 * time.Millisecond
	// warmUpChanges is the number of changes before the first fault.
	warmUpChanges = 30
)

// scenario is a run of traffic with faults.
type scenario struct {
	*Cluster
	t                   testing.TB
	namespaces          []string
	traffic             *traffic.Traffic
	unauthorizedClients *unauthorizedClients
	seed                uint64
	faults              []history.Fault
	settledRevision     int64
	checked             bool
}

// Run runs traffic through faults, one step after another, and checks what the clients observed.
// The faults of a step overlap. hold returns how long they last at least. They last longer if the
// effect of a fault takes longer.
func (c *Cluster) Run(t testing.TB, hold func(*rand.Rand) time.Duration, steps ...[]fault) {
	t.Helper()
	s := &scenario{Cluster: c, t: t, seed: c.rand.Uint64()}
	s.startTraffic()
	for _, faults := range steps {
		s.injectFaults(hold(c.rand), faults)
		s.awaitRecovery("recovery from: " + faultNames(faults))
	}
	s.stopAndCheck()
}

// faultNames joins the names of faults.
func faultNames(faults []fault) string {
	var all []string
	for _, f := range faults {
		all = append(all, f.name)
	}
	return strings.Join(all, " and ")
}

// startTraffic creates namespaces and starts the traffic.
func (s *scenario) startTraffic() {
	s.t.Helper()
	s.scenarioCount++
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	for _, suffix := range []string{"a", "b"} {
		name := fmt.Sprintf("round-%d%s", s.scenarioCount, suffix)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := s.replicas[0].admin.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			s.t.Fatalf("create namespace %s: %v", name, err)
		}
		s.namespaces = append(s.namespaces, name)
	}
	first := len(s.recorder.ChangeLog(time.Now()).Changes)
	cfg := traffic.Config{Namespaces: s.namespaces, Seed: s.seed, Writers: writers, Interval: writeInterval}
	for _, r := range s.replicas {
		cfg.Replicas = append(cfg.Replicas, r.clients)
	}
	s.traffic = traffic.Start(s.t.Context(), cfg)
	s.unauthorizedClients = s.startUnauthorizedClients()
	s.t.Cleanup(func() {
		s.traffic.Stop()
		_, _ = s.unauthorizedClients.stopAndCollect()
		if s.t.Failed() {
			s.saveArtifacts()
		}
	})
	s.awaitRecovery("traffic")
	harness.Eventually(s.t, waitTimeout, "writes", func() error {
		if n := len(s.storedChanges().Changes) - first; n < warmUpChanges {
			return fmt.Errorf("got %d changes, want %d", n, warmUpChanges)
		}
		return nil
	})
}

// injectFaults causes faults, holds them and repairs them in reverse order, so that a restarted
// process finds its links repaired. Its recursion nests the faults.
func (s *scenario) injectFaults(minimum time.Duration, faults []fault) {
	s.t.Helper()
	if len(faults) == 0 {
		hold := time.NewTimer(minimum)
		defer hold.Stop()
		<-hold.C
		return
	}
	f := faults[0]
	publisher, _ := s.publisher()
	gaps, _ := s.countGaps()
	started := s.traffic.Elapsed()
	repair := f.inject(s.Cluster)
	s.awaitEffect(f, publisher, gaps)
	s.injectFaults(minimum, faults[1:])
	repair()
	s.faults = append(s.faults, history.Fault{Name: f.name, Start: started, End: s.traffic.Elapsed()})
}

// awaitEffect waits for the effect that the fault requires.
func (s *scenario) awaitEffect(injected fault, publisher *replica, gaps float64) {
	s.t.Helper()
	switch injected.duration {
	case untilTakeover:
		harness.Eventually(s.t, waitTimeout, "another publisher", func() error {
			if now, err := s.publisher(); err != nil || now == publisher {
				return errors.Join(err, errors.New("no other replica publishes"))
			}
			return nil
		})
	case untilGapDetected:
		harness.Eventually(s.t, waitTimeout, "detection of a gap", func() error {
			if n, fallback := s.countGaps(); n <= gaps && fallback == 0 {
				return errors.New("no replica detected a gap")
			}
			return nil
		})
	}
}

// storedChanges returns the changes recorded so far.
func (s *scenario) storedChanges() *history.ChangeLog {
	return s.recorder.ChangeLog(s.traffic.Started())
}

// awaitRecovery waits until every client has received all changes up to now.
func (s *scenario) awaitRecovery(what string) (revision int64) {
	s.t.Helper()
	revision = s.waitForRecorder()
	harness.Eventually(s.t, waitTimeout, what, func() error { return s.traffic.CheckReached(s.storedChanges(), revision) })
	return revision
}

// waitForRecorder waits until the recorder has all changes up to now and returns a revision that
// covers them.
func (s *scenario) waitForRecorder() int64 {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	revision, err := s.recorder.Barrier(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return revision
}

// stopAndCheck stops the traffic and checks the history.
func (s *scenario) stopAndCheck() {
	s.t.Helper()
	s.traffic.StopWrites()
	s.settledRevision = s.awaitRecovery("delivery of the last changes")
	s.traffic.Stop()
	s.waitForRecorder()
	rejected, err := s.unauthorizedClients.stopAndCollect()
	if err != nil {
		s.t.Errorf("unauthorized access: %v", err)
	}
	h := s.recordedHistory()
	s.checkHistory(h)
	for i, r := range s.replicas {
		if strings.Contains(r.Log(), "panic") {
			s.t.Errorf("the log of replica %d contains a panic", i)
		}
	}
	s.t.Logf("%s; %d unauthorized requests rejected", summarize(h), rejected)
}

// checkHistory reports the violations in a history.
func (s *scenario) checkHistory(recorded *history.History) {
	s.t.Helper()
	s.checked = true
	for _, v := range check.All(recorded) {
		s.t.Errorf("%v (%s)", v, describeFaultAt(recorded.Faults, v.Time))
	}
}

// describeFaultAt names the fault at a time, or the last one before it.
func describeFaultAt(faults []history.Fault, at time.Duration) string {
	text := "without a fault"
	for _, f := range faults {
		switch {
		case at >= f.Start && at <= f.End:
			return "during: " + f.Name
		case at > f.End:
			text = "after: " + f.Name
		}
	}
	return text
}

// recordedHistory returns the recorded history. Call it after the traffic has ended.
func (s *scenario) recordedHistory() *history.History {
	s.t.Helper()
	h, err := s.traffic.History()
	if err != nil {
		s.t.Errorf("invalid responses: %v", err)
	}
	h.ChangeLog, h.SettledRevision, h.Faults = s.storedChanges(), s.settledRevision, s.faults
	return h
}

// saveArtifacts saves the history and the logs of a failed scenario. It first checks the history of
// a scenario that ended early.
func (s *scenario) saveArtifacts() {
	s.t.Helper()
	h := s.recordedHistory()
	if !s.checked {
		s.checkHistory(h)
	}
	dir, err := os.MkdirTemp("", "binnacle-robustness-*")
	if err == nil {
		err = errors.Join(h.Save(dir), s.saveLogs(dir))
	}
	s.t.Logf("%s=%d; histories and logs are in %s (%v)", seedEnv, s.clusterSeed, dir, err)
}

// summarize describes the amount of data that was checked.
func summarize(recorded *history.History) string {
	outcomes := map[history.Outcome]int{}
	for _, op := range recorded.Operations {
		outcomes[op.Outcome]++
	}
	var streams, states, events, bookmarks int
	for _, w := range recorded.AllWatches() {
		streams += len(w.Streams)
		for _, st := range w.Streams {
			if st.State != nil {
				states++
			}
			for _, e := range st.Events {
				if e.Type == history.Bookmark {
					bookmarks++
				} else {
					events++
				}
			}
		}
	}
	return fmt.Sprintf("%d operations %v, %d reads; %d streams, %d of them from a new state, %d events, %d bookmarks",
		len(recorded.Operations), outcomes, len(recorded.Reads), streams, states, events, bookmarks)
}
