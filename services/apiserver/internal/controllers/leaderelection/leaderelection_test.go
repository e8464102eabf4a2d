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

// TestStrategyElectsOldestVersion checks which candidate is elected by the versions, strategies and
// states of all candidates.
func TestStrategyElectsOldestVersion(t *testing.T) {
	type candidate struct{ name, emulation, binary, strategy string }
	const own, other = "example.com/mine", "example.com/other" // strategies that the server does not know
	for _, test := range []struct {
		name         string
		candidates   []candidate // in the order of their creation
		unresponsive []string
		want         string // the lease in the form of fixture.lease
	}{
		{
			name: "the oldest emulation version",
			candidates: []candidate{
				{name: "a", emulation: "1.33.0", binary: "1.33.0", strategy: oldest},
				{name: "b", emulation: "1.32.0", binary: "1.33.0", strategy: oldest},
			},
			want: "b - " + oldest,
		},
		{
			name: "versions compare as numbers",
			candidates: []candidate{
				{name: "a", emulation: "1.10.0", binary: "1.33.0", strategy: oldest},
				{name: "b", emulation: "1.9.0", binary: "1.33.0", strategy: oldest},
			},
			want: "b - " + oldest,
		},
		{
			name: "the oldest binary of equal emulation versions",
			candidates: []candidate{
				{name: "a", emulation: "1.32.0", binary: "1.33.1", strategy: oldest},
				{name: "b", emulation: "1.32.0", binary: "1.33.0", strategy: oldest},
			},
			want: "b - " + oldest,
		},
		{
			name: "the oldest candidate of equal versions",
			candidates: []candidate{
				{name: "b", emulation: "1.33.0", binary: "1.33.0", strategy: oldest},
				{name: "a", emulation: "1.33.0", binary: "1.33.0", strategy: oldest},
			},
			want: "b - " + oldest,
		},
		{
			name: "a candidate that does not respond is not elected",
			candidates: []candidate{
				{name: "a", emulation: "1.33.0", binary: "1.33.0", strategy: oldest},
				{name: "b", emulation: "1.32.0", binary: "1.33.0", strategy: oldest},
			},
			unresponsive: []string{"b"},
			want:         "a - " + oldest,
		},
		{
			name: "no leader if no candidate responds",
			candidates: []candidate{
				{name: "a", emulation: "1.33.0", binary: "1.33.0", strategy: oldest},
			},
			unresponsive: []string{"a"},
			want:         "none",
		},
		{
			name: "the strategy of the newest binary counts",
			candidates: []candidate{
				{name: "a", emulation: "1.32.0", binary: "1.33.0", strategy: oldest},
				{name: "b", emulation: "1.33.0", binary: "1.34.0", strategy: own},
			},
			want: "- - " + own,
		},
		{
			name: "no leader if strategies conflict",
			candidates: []candidate{
				{name: "a", emulation: "1.33.0", binary: "1.33.0", strategy: oldest},
				{name: "b", emulation: "1.33.0", binary: "1.33.0", strategy: own},
			},
			want: "none",
		},
		{
			name: "conflicting strategies of older binaries do not count",
			candidates: []candidate{
				{name: "a", emulation: "1.31.0", binary: "1.32.0", strategy: own},
				{name: "b", emulation: "1.32.0", binary: "1.32.0", strategy: other},
				{name: "c", emulation: "1.33.0", binary: "1.33.0", strategy: oldest},
			},
			want: "a - " + oldest,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fixture := newFixture(t)
				var names []string
				for _, c := range test.candidates {
					fixture.addCandidate(c.name, "l", c.emulation, c.binary, c.strategy)
					names = append(names, c.name)
					advance(time.Second)
				}
				kill := fixture.keepAlive(names...)
				for _, name := range test.unresponsive {
					kill(name)
				}
				advance(10 * time.Second) // the initial renewals are too old to count
				fixture.controller("one")
				advance(15 * time.Second)
				if got := fixture.lease("ns/l"); got != test.want {
					t.Errorf("got lease %s, want %s", got, test.want)
				}
			})
		})
	}
}

// TestLeaseFollowsItsCandidates takes a lease through all transitions, one after the other.
func TestLeaseFollowsItsCandidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t)
		kill := fixture.keepAlive("new", "old", "older")
		fixture.controller("one")
		expectLease := func(state, want string) {
			t.Helper()
			if got := fixture.lease("ns/l"); got != want {
				t.Errorf("%s: got lease %s, want %s", state, got, want)
			}
		}
		fixture.addCandidate("new", "l", "1.33.0", "1.33.0", oldest)
		advance(10 * time.Second)
		expectLease("single candidate", "new - "+oldest)
		calls := fixture.written("leasecandidates/ns/new")
		advance(10 * time.Minute)
		if got := fixture.written("leasecandidates/ns/new"); got != calls {
			t.Errorf("got %d pings of a candidate without a change, want %v", got-calls, calls)
		}
		advance(6 * time.Minute)
		if got := fixture.written("leasecandidates/ns/new"); got != calls+2 {
			t.Errorf("got %d pings and answers before the candidate expires, want %v", got-calls, calls+2)
		}
		fixture.addCandidate("old", "l", "1.32.0", "1.33.0", oldest)
		advance(2 * time.Second)
		expectLease("an older version becomes a candidate", "new old "+oldest)
		advance(10 * time.Second) // the holder lets the lease expire
		expectLease("the older version is leader", "old - "+oldest)
		kill("old")
		advance(20 * time.Second)
		expectLease("the leader has died", "new - "+oldest)
		calls = fixture.written("leasecandidates/ns/new")
		advance(5 * time.Minute)
		if got := fixture.written("leasecandidates/ns/new"); got != calls {
			t.Errorf("got %d pings because of a dead candidate, want %v", got-calls, calls)
		}
		kill("new")
		fixture.keepAlive("new")
		advance(time.Second)
		fixture.mu.Lock()
		lease := fixture.stored["leases/ns/l"].DeepCopyObject().(*coordinationv1.Lease)
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(-time.Hour)}
		fixture.putObject("leases/ns/l", lease)
		fixture.mu.Unlock()
		advance(10 * time.Second)
		if got := fixture.lease("ns/l"); got != "new - "+oldest {
			t.Errorf("expired lease of a live holder: got %s, want %v", got, "new - "+oldest)
		}
		advance(40 * time.Minute)
		fixture.mu.Lock()
		defer fixture.mu.Unlock()
		if fixture.stored["leasecandidates/ns/old"] != nil {
			t.Error("expired candidate: got it kept, want it removed")
		}
		if fixture.stored["leasecandidates/ns/new"] == nil {
			t.Error("live candidate: got it removed, want it kept")
		}
	})
}

// TestOneControllerElects checks that one controller elects, and another one takes over when it
// stops.
func TestOneControllerElects(t *testing.T) {
	const controllerLease = "kube-system/leader-election-controller"
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t)
		stop := fixture.controller("one")
		advance(time.Second)
		fixture.controller("two")
		advance(time.Minute)
		if got := fixture.lease(controllerLease); got != "one - -" {
			t.Errorf("got lease of the controller %s, want \"one - -\"", got)
		}
		stop()
		advance(5 * time.Second) // the lease was released
		if got := fixture.lease(controllerLease); got != "two - -" {
			t.Errorf("after the first controller stopped: got lease %s, want \"two - -\"", got)
		}
	})
}

// TestElectionContinuesAfterOutage checks that the controller elects again after all calls have failed
// for a minute.
func TestElectionContinuesAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t)
		fixture.controller("one")
		advance(time.Second)
		fixture.mu.Lock()
		fixture.down = true
		fixture.mu.Unlock()
		advance(time.Minute)
		fixture.mu.Lock()
		fixture.down = false
		fixture.mu.Unlock()
		fixture.keepAlive("a")
		fixture.addCandidate("a", "l", "1.33.0", "1.33.0", oldest)
		advance(30 * time.Second)
		if got := fixture.lease("ns/l"); got != "a - "+oldest {
			t.Errorf("after an outage: got lease %s, want %v", got, "a - "+oldest)
		}
	})
}

// TestIneligibleLeasesAreSkipped checks that neither the lease of the controllers nor an invalid lease name
// is a subject of election.
func TestIneligibleLeasesAreSkipped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t)
		fixture.keepAlive("a", "b", "c")
		fixture.addCandidate("a", "leader-election-controller", "1.1.0", "1.1.0", oldest)
		fixture.addCandidate("b", "x/../y", "1.1.0", "1.1.0", oldest)
		fixture.addCandidate("c", "l", "1.1.0", "1.1.0", oldest)
		fixture.controller("one")
		advance(time.Minute)
		if got := fixture.lease("kube-system/leader-election-controller"); got != "one - -" {
			t.Errorf("got lease of the controller %s, want \"one - -\"", got)
		}
		if got := fixture.lease("ns/x/../y") + " " + fixture.lease("ns/l"); got != "none c - "+oldest {
			t.Errorf("got leases %s, want %v", got, "none c - "+oldest)
		}
	})
}

// TestClocksAheadDoNotAffectElections checks that timestamps in the future neither delay an election, nor keep a
// dead candidate, nor hide the answers of a live one.
func TestClocksAheadDoNotAffectElections(t *testing.T) {
	const year = 365 * 24 * time.Hour
	ahead := func(by time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: time.Now().Add(by)} }
	type spec = coordinationv1beta1.LeaseCandidateSpec
	for _, test := range []struct {
		name   string
		change func(*spec)      // of candidate a
		revive func(f *fixture) // keeps candidate a alive, or does nothing
		want   string           // holder
	}{
		{name: "dead candidate with a renewTime in the future", change: func(s *spec) { s.RenewTime = ahead(year) },
			revive: func(*fixture) {}, want: "b"},
		{name: "dead candidate with a pingTime in the future", change: func(s *spec) { s.PingTime = ahead(year) }, revive: func(*fixture) {}, want: "b"},
		{name: "dead candidate with both times in the future", change: func(s *spec) { s.RenewTime, s.PingTime = ahead(year), ahead(2*year) },
			revive: func(*fixture) {}, want: "b"},
		{name: "live candidate with a clock that is ahead", change: func(s *spec) { s.RenewTime = ahead(time.Hour) },
			revive: func(f *fixture) { f.keepAliveAhead(time.Hour, "a") }, want: "a"},
		{name: "candidate with a corrected clock", change: func(s *spec) { s.RenewTime = ahead(year) },
			revive: func(f *fixture) { f.keepAlive("a") }, want: "a"},
		{name: "live candidate with a pingTime in the future", change: func(s *spec) { s.PingTime = ahead(year) },
			revive: func(f *fixture) { f.keepAlive("a") }, want: "a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.addCandidate("a", "l", "1.32.0", "1.33.0", oldest, test.change)
				f.addCandidate("b", "l", "1.33.0", "1.33.0", oldest)
				f.keepAlive("b")
				test.revive(f)
				f.controller("one")
				advance(30 * time.Second)
				if got, want := f.lease("ns/l"), test.want+" - "+oldest; got != want {
					t.Errorf("got lease %s, want %s", got, want)
				}
				if got := f.written("leasecandidates/ns/a"); got > 10 {
					t.Errorf("got %d writes of the candidate, want at most 10", got)
				}
				advance(50 * time.Minute)
				f.mu.Lock()
				defer f.mu.Unlock()
				isAlive := test.want == "a"
				if exists := f.stored["leasecandidates/ns/a"] != nil; exists != isAlive {
					t.Errorf("after 50 minutes: got candidate exists: %t, want %t", exists, isAlive)
				}
			})
		})
	}
}

// TestChangeReconcilesOneLease checks that the cost of a change does not depend on the number of
// candidates for other leases.
func TestChangeReconcilesOneLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t)
		for i := range 100 {
			fixture.addCandidate(fmt.Sprint("c", i), fmt.Sprint("l", i), "", "1.33.0", "example.com/mine")
		}
		fixture.controller("one")
		advance(61 * time.Second) // the leases are written and no ping is pending
		reads := func() (lists, gets int) {
			fixture.mu.Lock()
			defer fixture.mu.Unlock()
			return fixture.calls[internalclient.List], fixture.calls[internalclient.Get]
		}
		lists, gets := reads()
		for range 10 {
			fixture.addCandidate("c0", "l0", "", "1.33.0", "example.com/mine")
			advance(200 * time.Millisecond)
		}
		listsAfter, getsAfter := reads()
		if count := listsAfter - lists; count > 0 {
			t.Errorf("got %d lists for 10 changes, want none", count)
		}
		// Each lease is also reconciled every few seconds, and the controllers' lease is renewed.
		const maxGets = 150
		if count := getsAfter - gets; count > maxGets {
			t.Errorf("got %d reads for 10 changes, want at most %d", count, maxGets)
		}
	})
}

// TestManyCandidatesArePingedInParts checks that the only live one of many candidates is elected, and
// that the calls for the others are spread over time.
func TestManyCandidatesArePingedInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t)
		names := []string{"b"}
		for i := range 250 {
			names = append(names, fmt.Sprintf("a%03d", i))
		}
		for _, name := range names {
			emulation := "1.32.0" // better than b, but these candidates do not respond
			if name == "b" {
				emulation = "1.33.0"
			}
			fixture.addCandidate(name, "l", emulation, "1.33.0", oldest)
		}
		advance(10 * time.Second)
		fixture.keepAlive("b")
		fixture.controller("one")
		advance(time.Minute)
		if got := fixture.lease("ns/l"); got != "b - "+oldest {
			t.Errorf("got lease %s, want %v", got, "b - "+oldest)
		}
		advance(40 * time.Minute)
		fixture.mu.Lock()
		defer fixture.mu.Unlock()
		if count := len(fixture.stored); count != 3 { // the leases and the leader
			t.Errorf("got %d remaining objects, want 3", count)
		}
		for _, verb := range []internalclient.Verb{internalclient.Update, internalclient.Delete} {
			if count := fixture.maxAtOnce[verb]; count > 100 || fixture.calls[verb] < 250 {
				t.Errorf("got %d calls at once, %d in total of %s; want at most 100, at least 250", count, fixture.calls[verb], verb)
			}
		}
	})
}

// TestEachLeaseProblemIsLoggedOnce checks that a problem of a lease is logged once, also if other leases have problems.
// Texts of clients are truncated.
func TestEachLeaseProblemIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t)
		long := "example.com/" + strings.Repeat("x", 100_000)
		for _, lease := range []string{"l1", "l2", "l3", "l4"} {
			fixture.addCandidate("a-"+lease, lease, "1.33.0", "1.33.0", oldest)
			fixture.addCandidate("b-"+lease, lease, "1.33.0", "1.33.0", long)
		}
		fixture.addCandidate("c", "l5", "1.33.0", "1.33.0", long)
		fixture.controller("one")
		fixture.keepAlive("c")
		advance(4 * time.Minute)
		fixture.mu.Lock()
		defer fixture.mu.Unlock()
		linesOf := map[string]int{} // by subject
		for line := range strings.Lines(fixture.logged.String()) {
			if len(line) > 1000 {
				t.Errorf("got a line of %d bytes: %.200s, want at most 1000", len(line), line)
			}
			var fields struct{ Of, Lease string }
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatal(err)
			}
			linesOf[fields.Of+fields.Lease]++
		}
		for _, subject := range []string{"leases ns/l1", "leases ns/l2", "leases ns/l3", "leases ns/l4", "ns/l5"} {
			if linesOf[subject] != 1 {
				t.Errorf("%s: got %d log lines, want 1", subject, linesOf[subject])
			}
		}
	})
}

// TestLogOfManyLeasesIsBounded checks that the number of log lines does not grow with the number of
// failing leases.
func TestLogOfManyLeasesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t)
		for i := range 1000 {
			fixture.addCandidate(fmt.Sprint("a", i), fmt.Sprint("l", i), "1.33.0", "1.33.0", oldest)
			fixture.addCandidate(fmt.Sprint("b", i), fmt.Sprint("l", i), "1.33.0", "1.33.0", "example.com/mine")
			fixture.addCandidate(fmt.Sprint("c", i), fmt.Sprint("m", i), "1.33.0", "1.33.0", oldest)
		}
		fixture.controller("one")
		advance(4 * time.Second)
		fixture.mu.Lock()
		defer fixture.mu.Unlock()
		if count := bytes.Count(fixture.logged.Bytes(), []byte("\n")); count < 100 || count > 110 {
			t.Errorf("got %d lines; want at least 100, at most 110", count)
		}
	})
}
