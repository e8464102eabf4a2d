package leaderelection_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/rest/internalclient"
)

// TestElection checks which candidate is elected.
func TestElection(t *testing.T) {
	type c struct{ name, emulation, binary, strategy string }
	for _, tt := range []struct {
		name string
		all  []c
		dead []string
		want string
	}{
		{"the oldest emulation version", []c{{"a", "1.33.0", "1.33.0", oldest}, {"b", "1.32.0", "1.33.0", oldest}}, nil, "b - " + oldest},
		{"as a number, not as a text", []c{{"a", "1.10.0", "1.33.0", oldest}, {"b", "1.9.0", "1.33.0", oldest}}, nil, "b - " + oldest},
		{"then the oldest binary", []c{{"a", "1.32.0", "1.33.1", oldest}, {"b", "1.32.0", "1.33.0", oldest}}, nil, "b - " + oldest},
		{"then the oldest candidate", []c{{"b", "1.33.0", "1.33.0", oldest}, {"a", "1.33.0", "1.33.0", oldest}}, nil, "b - " + oldest},
		{"not a candidate that does not answer", []c{{"a", "1.33.0", "1.33.0", oldest}, {"b", "1.32.0", "1.33.0", oldest}}, []string{"b"}, "a - " + oldest},
		{"no leader when no candidate answers", []c{{"a", "1.33.0", "1.33.0", oldest}}, []string{"a"}, "none"},
		{"by the strategy of the newest binary", []c{{"a", "1.32.0", "1.33.0", oldest}, {"b", "1.33.0", "1.34.0", "example.com/mine"}}, nil, "- - example.com/mine"},
		{"no leader when strategies conflict", []c{{"a", "1.33.0", "1.33.0", oldest}, {"b", "1.33.0", "1.33.0", "example.com/mine"}}, nil, "none"},
		{"whatever older binaries want", []c{{"a", "1.31.0", "1.32.0", "example.com/mine"}, {"b", "1.32.0", "1.32.0", "example.com/other"}, {"c", "1.33.0", "1.33.0", oldest}}, nil, "a - " + oldest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				var names []string
				for _, c := range tt.all {
					w.addCandidate(c.name, "l", c.emulation, c.binary, c.strategy)
					names = append(names, c.name)
					after(time.Second)
				}
				kill := w.live(names...)
				for _, name := range tt.dead {
					kill(name)
				}
				after(10 * time.Second) // the initial renewals are too old to count
				w.controller("one")
				after(15 * time.Second)
				if got := w.lease("ns/l"); got != tt.want {
					t.Errorf("got lease %s, want %s", got, tt.want)
				}
			})
		})
	}
}

// TestLeaseLifecycle takes a lease through all transitions, one after the other.
func TestLeaseLifecycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		kill := w.live("new", "old", "older")
		w.controller("one")
		want := func(what, want string) {
			t.Helper()
			if got := w.lease("ns/l"); got != want {
				t.Errorf("%s: got lease %s, want %s", what, got, want)
			}
		}
		w.addCandidate("new", "l", "1.33.0", "1.33.0", oldest)
		after(10 * time.Second)
		want("single candidate", "new - "+oldest)
		calls := w.written("leasecandidates/ns/new")
		after(10 * time.Minute)
		if got := w.written("leasecandidates/ns/new"); got != calls {
			t.Errorf("got %d pings of a candidate without a change", got-calls)
		}
		after(6 * time.Minute)
		if got := w.written("leasecandidates/ns/new"); got != calls+2 {
			t.Errorf("got %d pings and answers before the candidate expires", got-calls)
		}
		w.addCandidate("old", "l", "1.32.0", "1.33.0", oldest)
		after(2 * time.Second)
		want("an older version becomes a candidate", "new old "+oldest)
		after(10 * time.Second) // the holder lets the lease expire
		want("the older version is leader", "old - "+oldest)
		kill("old")
		after(20 * time.Second)
		want("it died", "new - "+oldest)
		calls = w.written("leasecandidates/ns/new")
		after(5 * time.Minute)
		if got := w.written("leasecandidates/ns/new"); got != calls {
			t.Errorf("got %d pings because of a dead candidate", got-calls)
		}
		kill("new")
		w.live("new")
		after(time.Second)
		w.mu.Lock()
		l := w.stored["leases/ns/l"].DeepCopyObject().(*coordinationv1.Lease)
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Hour)}
		w.put("leases/ns/l", l)
		w.mu.Unlock()
		after(10 * time.Second)
		if got := w.lease("ns/l"); got != "new - "+oldest {
			t.Errorf("expired lease of a live holder: got %s", got)
		}
		after(40 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.stored["leasecandidates/ns/old"] != nil || w.stored["leasecandidates/ns/new"] == nil {
			t.Error("the dead candidate is kept, or the live one is removed")
		}
	})
}

// TestOneControllerElects: one controller elects, and another one takes over when it stops.
func TestOneControllerElects(t *testing.T) {
	const controllerLease = "kube-system/leader-election-controller"
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		stop := w.controller("one")
		after(time.Second)
		w.controller("two")
		after(time.Minute)
		if got := w.lease(controllerLease); got != "one - -" {
			t.Errorf("got lease of the controller %s", got)
		}
		stop()
		after(5 * time.Second) // the lease was released
		if got := w.lease(controllerLease); got != "two - -" {
			t.Errorf("after the first controller stopped: got lease %s", got)
		}
		w.mu.Lock()
		w.down = true
		w.mu.Unlock()
		after(time.Minute)
		w.mu.Lock()
		w.down = false
		w.mu.Unlock()
		w.live("a")
		w.addCandidate("a", "l", "1.33.0", "1.33.0", oldest)
		after(30 * time.Second)
		if got := w.lease("ns/l"); got != "a - "+oldest {
			t.Errorf("after an outage: got lease %s", got)
		}
	})
}

// TestIneligibleLeases: neither the lease of the controllers nor an invalid lease name is a subject
// of election.
func TestIneligibleLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		w.live("a", "b", "c")
		w.addCandidate("a", "leader-election-controller", "1.1.0", "1.1.0", oldest)
		w.addCandidate("b", "x/../y", "1.1.0", "1.1.0", oldest)
		w.addCandidate("c", "l", "1.1.0", "1.1.0", oldest)
		w.controller("one")
		after(time.Minute)
		if got := w.lease("kube-system/leader-election-controller"); got != "one - -" {
			t.Errorf("got lease of the controller %s", got)
		}
		if got := w.lease("ns/x/../y") + " " + w.lease("ns/l"); got != "none c - "+oldest {
			t.Errorf("got leases %s", got)
		}
	})
}

// TestClocksThatAreAhead: timestamps in the future neither delay an election, nor keep a dead
// candidate, nor hide the answers of a live one.
func TestClocksThatAreAhead(t *testing.T) {
	const year = 365 * 24 * time.Hour
	ahead := func(by time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: time.Now().Add(by)} }
	type spec = coordinationv1beta1.LeaseCandidateSpec
	for _, tt := range []struct {
		name string
		as   func(*spec)
		live func(w *fixture)
		want string
	}{
		{"dead candidate with a renewTime in the future", func(s *spec) { s.RenewTime = ahead(year) }, func(*fixture) {}, "b"},
		{"dead candidate with a pingTime in the future", func(s *spec) { s.PingTime = ahead(year) }, func(*fixture) {}, "b"},
		{"both, of one that died", func(s *spec) { s.RenewTime, s.PingTime = ahead(year), ahead(2*year) }, func(*fixture) {}, "b"},
		{"live candidate with a clock that is ahead", func(s *spec) { s.RenewTime = ahead(time.Hour) }, func(w *fixture) { w.liveBy(time.Hour, "a") }, "a"},
		{"candidate with a corrected clock", func(s *spec) { s.RenewTime = ahead(year) }, func(w *fixture) { w.live("a") }, "a"},
		{"live candidate with a pingTime in the future", func(s *spec) { s.PingTime = ahead(year) }, func(w *fixture) { w.live("a") }, "a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newFixture(t)
				w.addCandidate("a", "l", "1.32.0", "1.33.0", oldest, tt.as)
				w.addCandidate("b", "l", "1.33.0", "1.33.0", oldest)
				w.live("b")
				tt.live(w)
				w.controller("one")
				after(30 * time.Second)
				if got, want := w.lease("ns/l"), tt.want+" - "+oldest; got != want {
					t.Errorf("got lease %s, want %s", got, want)
				}
				if got := w.written("leasecandidates/ns/a"); got > 10 {
					t.Errorf("got %d writes of the candidate", got)
				}
				after(50 * time.Minute)
				w.mu.Lock()
				defer w.mu.Unlock()
				if lives := tt.want == "a"; (w.stored["leasecandidates/ns/a"] != nil) != lives {
					t.Errorf("got candidate exists: %v, want %v", !lives, lives)
				}
			})
		})
	}
}

// TestChangeReconcilesOneLease: the cost of a change does not depend on the number of candidates
// for other leases.
func TestChangeReconcilesOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		for i := range 100 {
			w.addCandidate(fmt.Sprint("c", i), fmt.Sprint("l", i), "", "1.33.0", "example.com/mine")
		}
		w.controller("one")
		after(61 * time.Second) // the leases are written and no ping is pending
		reads := func() (lists, gets int) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.calls[internalclient.List], w.calls[internalclient.Get]
		}
		lists, gets := reads()
		for range 10 {
			w.addCandidate("c0", "l0", "", "1.33.0", "example.com/mine")
			after(200 * time.Millisecond)
		}
		l, g := reads()
		// Each lease is also reconciled every few seconds, and the controllers' lease is renewed.
		l -= lists
		if l > 0 {
			t.Errorf("got %d lists for 10 changes", l)
		}
		g -= gets
		if g > 150 {
			t.Errorf("got %d reads for 10 changes", g)
		}
	})
}

// TestManyCandidatesArePingedInParts: one of many candidates is elected.
func TestManyCandidatesArePingedInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		names := []string{"b"}
		for i := range 250 {
			names = append(names, fmt.Sprintf("a%03d", i))
		}
		for _, name := range names {
			w.addCandidate(name, "l", map[bool]string{true: "1.33.0", false: "1.32.0"}[name == "b"], "1.33.0", oldest)
		}
		after(10 * time.Second)
		w.live("b")
		w.controller("one")
		after(time.Minute)
		if got := w.lease("ns/l"); got != "b - "+oldest {
			t.Errorf("got lease %s", got)
		}
		after(40 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(w.stored); n != 3 { // the leases and the leader
			t.Errorf("got %d remaining objects", n)
		}
		for _, verb := range []internalclient.Verb{internalclient.Update, internalclient.Delete} {
			if n := w.most[verb]; n > 100 || w.calls[verb] < 250 {
				t.Errorf("got %d calls at once, %d in total of %s", n, w.calls[verb], verb)
			}
		}
	})
}

// TestLogIsConcise: a problem of a lease is logged once, whatever the state of others. Texts of
// clients are truncated.
func TestLogIsConcise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		long := "example.com/" + strings.Repeat("x", 100_000)
		for _, lease := range []string{"l1", "l2", "l3", "l4"} {
			w.addCandidate("a-"+lease, lease, "1.33.0", "1.33.0", oldest)
			w.addCandidate("b-"+lease, lease, "1.33.0", "1.33.0", long)
		}
		w.addCandidate("c", "l5", "1.33.0", "1.33.0", long)
		w.controller("one")
		w.live("c")
		after(4 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		controllers := map[string]int{}
		for line := range strings.Lines(w.logged.String()) {
			if len(line) > 1000 {
				t.Errorf("got a line of %d bytes: %.200s", len(line), line)
			}
			var of struct{ Of, Lease string }
			if err := json.Unmarshal([]byte(line), &of); err != nil {
				t.Fatal(err)
			}
			controllers[of.Of+of.Lease]++
		}
		for _, of := range []string{"leases ns/l1", "leases ns/l2", "leases ns/l3", "leases ns/l4", "ns/l5"} {
			if controllers[of] != 1 {
				t.Errorf("%s: got %d log lines", of, controllers[of])
			}
		}
	})
}

// TestLogOfManyLeasesIsBounded: the number of log logBurst does not grow with the number of failing
// leases.
func TestLogOfManyLeasesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t)
		for i := range 1000 {
			w.addCandidate(fmt.Sprint("a", i), fmt.Sprint("l", i), "1.33.0", "1.33.0", oldest)
			w.addCandidate(fmt.Sprint("b", i), fmt.Sprint("l", i), "1.33.0", "1.33.0", "example.com/mine")
			w.addCandidate(fmt.Sprint("c", i), fmt.Sprint("m", i), "1.33.0", "1.33.0", oldest)
		}
		w.controller("one")
		after(4 * time.Second)
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := bytes.Count(w.logged.Bytes(), []byte("\n")); n < 100 || n > 110 {
			t.Errorf("got %d lines", n)
		}
	})
}
