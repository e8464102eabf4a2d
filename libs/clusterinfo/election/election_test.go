package election_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"binnacle/libs/clusterinfo/election"
)

// replica is a candidate that counts its terms.
type replica struct {
	*election.Election
	working atomic.Bool
	terms   atomic.Int32
	stop    context.CancelFunc
	done    chan error
}

func startCandidate(t *testing.T, client kubernetes.Interface, name string, work func(context.Context) error) *replica {
	t.Helper()
	started := &replica{done: make(chan error, 1)}
	started.Election = election.NewWithClient(election.NewOptions("test"), client.CoordinationV1().Leases("kube-system"),
		name, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	ctx, cancel := context.WithCancel(t.Context())
	started.stop = cancel
	go func() {
		started.done <- started.Run(ctx, func(ctx context.Context) error {
			started.terms.Add(1)
			started.working.Store(true)
			defer started.working.Store(false)
			return work(ctx)
		})
	}()
	return started
}

func runUntilCanceled(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

// advance advances the time of the bubble.
func advance(d time.Duration) { time.Sleep(d); synctest.Wait() }

// TestReleasedLeaseIsTakenOverAtOnce checks that one replica works at a time, and that another one
// takes over soon after the leader has released the lease.
func TestReleasedLeaseIsTakenOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		leader := startCandidate(t, client, "a", runUntilCanceled)
		advance(time.Second)
		follower := startCandidate(t, client, "b", runUntilCanceled)
		advance(time.Minute)
		if !leader.working.Load() || follower.working.Load() || follower.terms.Load() != 0 {
			t.Fatalf("got a leading: %t, b leading: %t after %d terms, want a only, and no term of b",
				leader.working.Load(), follower.working.Load(), follower.terms.Load())
		}
		for _, r := range []*replica{leader, follower} {
			if err := errors.Join(r.Ready(nil), r.HealthCheck(nil)); err != nil {
				t.Error(err)
			}
		}
		leader.stop()
		if err := <-leader.done; err != nil {
			t.Errorf("Run() = %v", err)
		}
		advance(5 * time.Second) // far less than the lease duration, because the lease was released
		if !follower.working.Load() {
			t.Error("b after a has released the lease: got idle, want leading")
		}
		follower.stop()
		<-follower.done
	})
}

// TestLostLeaseStopsWork checks that work ends when the lease expires because the API server is
// unreachable, and is started again later.
func TestLostLeaseStopsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var down atomic.Bool
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return down.Load(), nil, errors.New("connection refused")
		})
		replica := startCandidate(t, client, "a", runUntilCanceled)
		advance(time.Second)
		if !replica.working.Load() {
			t.Fatal("a alone: got idle, want leading")
		}
		down.Store(true)
		advance(15 * time.Second) // the lease duration
		if replica.working.Load() {
			t.Error("a after its lease has expired: got leading, want idle")
		}
		down.Store(false)
		advance(20 * time.Second)
		if !replica.working.Load() || replica.terms.Load() != 2 {
			t.Errorf("got a leading: %t after %d terms, want true after 2", replica.working.Load(), replica.terms.Load())
		}
		replica.stop()
		<-replica.done
	})
}

// TestFailedWorkEndsRun checks that Run returns the error of work and releases the lease.
func TestFailedWorkEndsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, wrong := fake.NewClientset(), errors.New("wrong")
		failed := startCandidate(t, client, "a", func(context.Context) error { return wrong })
		if err := <-failed.done; !errors.Is(err, wrong) {
			t.Errorf("Run() = %v, want error %v", err, wrong)
		}
		successor := startCandidate(t, client, "b", runUntilCanceled)
		advance(5 * time.Second)
		if !successor.working.Load() {
			t.Error("b after a has failed: got idle, want leading with the released lease")
		}
		successor.stop()
		<-successor.done
	})
}

// TestReadyWaitsForTheLease checks that Ready fails until the lease has been read.
func TestReadyWaitsForTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		client.PrependReactor("*", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("connection refused")
		})
		replica := startCandidate(t, client, "a", runUntilCanceled)
		advance(time.Minute)
		if err := replica.Ready(nil); err == nil || err.Error() != "waiting for the lease kube-system/test: not read yet" {
			t.Errorf("Ready() = %v, want error \"waiting for the lease kube-system/test: not read yet\"", err)
		}
		replica.stop()
		if err := <-replica.done; err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
}

// TestRunWorksAtOnceWithoutElection checks that work runs at once if leader election is disabled.
func TestRunWorksAtOnceWithoutElection(t *testing.T) {
	options := election.NewOptions("test")
	options.Enabled = false
	disabled := election.NewWithClient(options, nil, "a", slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	wrong := errors.New("wrong")
	if err := disabled.Run(t.Context(), func(context.Context) error { return wrong }); !errors.Is(err, wrong) || disabled.Ready(nil) != nil {
		t.Errorf("Run() = %v, Ready() = %v, want error %v, and ready", err, disabled.Ready(nil), wrong)
	}
}

// TestValidateRejectsInvalidFlags checks the errors for invalid flags.
func TestValidateRejectsInvalidFlags(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*election.Options)
		want   string
	}{
		{name: "defaults", change: func(*election.Options) {}, want: ""},
		{name: "off", change: func(o *election.Options) { o.Enabled, o.LeaseDuration = false, 0 }, want: ""},
		{
			name:   "short lease",
			change: func(o *election.Options) { o.LeaseDuration = 5 * time.Second },
			want:   "must be more than --leader-elect-renew-deadline",
		},
		{name: "tiny lease", change: func(o *election.Options) { o.LeaseDuration = time.Millisecond }, want: "at least 1s"},
		{
			name:   "slow retry",
			change: func(o *election.Options) { o.RetryPeriod = 9 * time.Second },
			want:   "times --leader-elect-retry-period",
		},
		{name: "no retry", change: func(o *election.Options) { o.RetryPeriod = 0 }, want: "must be positive"},
		{name: "lock", change: func(o *election.Options) { o.ResourceLock = "configmaps" }, want: `must be "leases"`},
		{name: "name", change: func(o *election.Options) { o.ResourceName = "" }, want: "must not be empty"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := election.NewOptions("test")
			test.change(o)
			err := errors.Join(o.Validate()...)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
