package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"binnacle/libs/bootstraptoken"
	"binnacle/services/tokencleaner/internal/controller"
)

// eventCount returns the number of Events about tokens.
func (f *fixture) eventCount() int {
	f.t.Helper()
	list, err := f.client.CoreV1().Events(bootstraptoken.Namespace).List(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	return len(list.Items)
}

// TestOnlyMalformedExpirationsAreReported checks that valid, missing and past expirations cause no Event,
// and that a change to a malformed one causes one.
func TestOnlyMalformedExpirationsAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, 0, nil, tokenSecret("aaaaaa", expiresIn(time.Hour)), tokenSecret("always", ""),
			tokenSecret("past00", "1970-01-01T00:00:00Z"))
		fixture.advance(time.Second)
		fixture.requireExists("past00", false)
		if count := fixture.eventCount(); count != 0 {
			t.Errorf("got %d events of valid expirations, want 0", count)
		}
		malformed := tokenSecret("aaaaaa", "tomorrow")
		malformed.ResourceVersion = "8"
		if _, err := fixture.client.CoreV1().Secrets(bootstraptoken.Namespace).Update(t.Context(), malformed,
			metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		fixture.advance(time.Second)
		if count := fixture.eventCount(); count != 1 {
			t.Errorf("got %d events of a malformed expiration, want 1", count)
		}
	})
}

// warnings counts logged warnings.
type warnings struct {
	slog.Handler
	mu    sync.Mutex
	count int
}

func (w *warnings) Enabled(context.Context, slog.Level) bool { return true }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Level >= slog.LevelWarn {
		w.count++
	}
	return nil
}

// TestTokensDeletedByOtherClientsAreNoErrors checks that tokens deleted by other clients are not errors, even
// if the deletion was missed.
func TestTokensDeletedByOtherClientsAreNoErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset(tokenSecret("seenby", expiresIn(time.Minute)), tokenSecret("missed", expiresIn(time.Minute)))
		var watches []*watch.RaceFreeFakeWatcher
		client.PrependWatchReactor("secrets", func(clienttesting.Action) (bool, watch.Interface, error) {
			watches = append(watches, watch.NewRaceFreeFake())
			return true, watches[len(watches)-1], nil
		})
		log := &warnings{Handler: slog.DiscardHandler}
		cleaner := controller.New(controller.Config{
			Secrets: client.CoreV1().Secrets(bootstraptoken.Namespace),
			Events:  client.CoreV1().Events(bootstraptoken.Namespace),
			Log:     slog.New(log),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- cleaner.Run(ctx) }()
		f := &fixture{t: t, client: client}
		f.advance(settle)
		deleteSecret := func(id string) {
			if err := client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("secrets"),
				bootstraptoken.Namespace, bootstraptoken.SecretName(id)); err != nil {
				t.Fatal(err)
			}
		}
		deleteSecret("seenby")
		watches[0].Delete(tokenSecret("seenby", expiresIn(time.Minute)))
		synctest.Wait()
		deleteSecret("missed")
		expired := apierrors.NewResourceExpired("too old").Status()
		watches[0].Error(&expired) // causes a new list
		f.advance(10 * time.Minute)
		if deletions := len(f.deletes()); deletions != 0 || log.count != 0 || len(watches) < 2 {
			t.Errorf("got %d deletions, %d warnings, %d watches; want 0, 0, at least 2", deletions, log.count, len(watches))
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want %v", err, context.Canceled)
		}
	})
}
