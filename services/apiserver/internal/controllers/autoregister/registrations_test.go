package autoregister

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

// TestUnchangedRegistrationsAreNotRead checks that thousands of registered group versions cause
// neither reads nor writes as long as their APIServices are correct, or managed by another client.
func TestUnchangedRegistrationsAreNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var desired []APIService
		var live []*apiregistrationv1.APIService
		for i := range 1000 {
			service := APIService{Group: fmt.Sprintf("g%d.ex.test", i), Version: "v1", GroupPriority: 1000, VersionPriority: 100}
			apiService := &apiregistrationv1.APIService{
				ObjectMeta: metav1.ObjectMeta{Name: service.Name(), Labels: map[string]string{ManagedLabel: ManagedAlways}},
				Spec:       service.Spec(),
			}
			if i%100 == 0 { // another client manages it
				apiService.Labels, apiService.Spec.VersionPriority = nil, 7
			}
			desired, live = append(desired, service), append(live, apiService)
		}
		changed, lookups := make(chan struct{}), 0
		registrations := &Registrations{ // without an API client, so that a read or write panics
			Live: func() (iter.Seq[*apiregistrationv1.APIService], error) {
				lookups++
				return slices.Values(live), nil
			},
			Desired: func() ([]APIService, bool) { return desired, true },
			Changed: changed,
			Logger:  slog.New(slog.DiscardHandler),
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- registrations.Run(ctx) }()
		for range 3 {
			changed <- struct{}{}
		}
		synctest.Wait()
		stop()
		if err := <-done; err != context.Canceled || lookups < 3 {
			t.Errorf("got %d lookups, %v; want %v, at least 3", lookups, err, context.Canceled)
		}
	})
}
