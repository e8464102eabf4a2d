package app

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// managerLeaseOf returns the lease of kube-controller-manager with a holder and the time of its renewal.
func managerLeaseOf(holder string, renewed time.Time) *coordinationv1.Lease {
	seconds, at := int32(15), metav1.NewMicroTime(renewed)
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: managerLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
}

// TestWorkEndsWhileAnotherManagerLeads checks that work runs only while no other process holds the
// lease, and again after that process has ended without releasing it.
func TestWorkEndsWhileAnotherManagerLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leases := fake.NewClientset().CoordinationV1().Leases("kube-system")
		running := false
		runner := &yieldingRunner{leases: leases, name: managerLease, log: slog.New(slog.DiscardHandler)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- runner.run(ctx, func(ctx context.Context) error {
				running = true
				<-ctx.Done()
				running = false
				return ctx.Err()
			})
		}()
		const runs, pauses = true, false
		requireAfter := func(d time.Duration, want bool) { // runs or pauses
			t.Helper()
			time.Sleep(d) // the bubble's time
			synctest.Wait()
			if running != want {
				t.Errorf("after %v: running = %t, want %t", d, running, want)
			}
		}
		requireAfter(time.Second, runs)
		// The clock of the holder is an hour behind.
		if _, err := leases.Create(ctx, managerLeaseOf("kcm", time.Now().Add(-time.Hour)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		requireAfter(3*time.Second, pauses)
		requireAfter(5*time.Second, pauses)
		if _, err := leases.Update(ctx, managerLeaseOf("kcm", time.Now().Add(-time.Hour)), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		requireAfter(10*time.Second, pauses)
		requireAfter(15*time.Second, runs)
		if _, err := leases.Update(ctx, managerLeaseOf("", time.Now()), metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		requireAfter(5*time.Second, runs)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run() = %v, want no error", err)
		}
	})
}
