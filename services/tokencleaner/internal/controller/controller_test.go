package controller_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"binnacle/libs/bootstraptoken"
	"binnacle/services/tokencleaner/internal/controller"
)

// tokenSecret returns the Secret of a bootstrap token. An empty expiration means none.
func tokenSecret(id, expiration string) *corev1.Secret {
	object := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: bootstraptoken.Namespace, Name: bootstraptoken.SecretName(id),
			UID: types.UID("uid-" + id), ResourceVersion: "7",
		},
		Type: bootstraptoken.SecretType,
		Data: map[string][]byte{bootstraptoken.KeyID: []byte(id), bootstraptoken.KeySecret: []byte("0123456789abcdef")},
	}
	if expiration != "" {
		object.Data[bootstraptoken.KeyExpiration] = []byte(expiration)
	}
	return object
}

// expiresIn returns an expiration in the given time from now. Tests start at a whole second.
func expiresIn(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }

// settle is longer than a successful list takes, and shorter than the pause after a failed one.
const settle = 200 * time.Millisecond

// fixture runs a controller in a synctest bubble.
type fixture struct {
	t          *testing.T
	client     *fake.Clientset
	controller *controller.Controller
	stop       func()
}

// newFixture starts a controller on a fake client with secrets. prepare may change the client first.
func newFixture(t *testing.T, tolerance time.Duration, prepare func(*fake.Clientset), secrets ...runtime.Object) *fixture {
	t.Helper()
	f := &fixture{t: t, client: fake.NewClientset(secrets...)}
	if prepare != nil {
		prepare(f.client)
	}
	f.controller = controller.New(controller.Config{
		Secrets:   f.client.CoreV1().Secrets(bootstraptoken.Namespace),
		Events:    f.client.CoreV1().Events(bootstraptoken.Namespace),
		Log:       slog.New(slog.DiscardHandler),
		Tolerance: tolerance,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.controller.Run(ctx) }()
	f.stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want %v", err, context.Canceled)
		}
	}
	t.Cleanup(f.stop)
	synctest.Wait()
	f.advance(settle)
	return f
}

// advance advances the time of the bubble.
func (f *fixture) advance(d time.Duration) {
	time.Sleep(d) // time of the bubble
	synctest.Wait()
}

// requireExists checks whether the Secret of a token exists.
func (f *fixture) requireExists(id string, want bool) {
	f.t.Helper()
	_, err := f.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("secrets"), bootstraptoken.Namespace,
		bootstraptoken.SecretName(id))
	if got := err == nil; got != want {
		f.t.Errorf("%s: got exists %t, want %t (%v)", id, got, want, err)
	}
}

// deletes returns the deletions that the controller requested.
func (f *fixture) deletes() []clienttesting.DeleteActionImpl {
	var out []clienttesting.DeleteActionImpl
	for _, action := range f.client.Actions() {
		if deletion, ok := action.(clienttesting.DeleteActionImpl); ok {
			out = append(out, deletion)
		}
	}
	return out
}

// TestExpiredTokensAreDeleted checks when tokens with different expirations are deleted.
func TestExpiredTokensAreDeleted(t *testing.T) {
	tests := []struct {
		name         string
		tolerance    time.Duration
		expiration   func() string
		deletedAfter time.Duration // since the start; negative for never
	}{
		{name: "expired at the start", tolerance: 0, expiration: func() string { return expiresIn(-time.Hour) }, deletedAfter: 0},
		{name: "expired long ago", tolerance: 0, expiration: func() string { return "1900-01-01T00:00:00Z" }, deletedAfter: 0},
		{name: "expires in 10 s", tolerance: 0, expiration: func() string { return expiresIn(10 * time.Second) }, deletedAfter: 10 * time.Second},
		{name: "expires in 10 s, in another time zone", tolerance: 0, expiration: func() string {
			return time.Now().Add(10 * time.Second).In(time.FixedZone("", 7200)).Format(time.RFC3339)
		}, deletedAfter: 10 * time.Second},
		{
			name:         "expires in 10 s, with a tolerance of a minute",
			tolerance:    time.Minute,
			expiration:   func() string { return expiresIn(10 * time.Second) },
			deletedAfter: 70 * time.Second,
		},
		{
			name:         "expired at the start, within the tolerance",
			tolerance:    time.Minute,
			expiration:   func() string { return expiresIn(-10 * time.Second) },
			deletedAfter: 50 * time.Second,
		},
		{
			name:         "expires beyond the longest delay of the queue",
			tolerance:    0,
			expiration:   func() string { return expiresIn(50 * time.Hour) },
			deletedAfter: 50 * time.Hour,
		},
		{name: "without an expiration", tolerance: 0, expiration: func() string { return "" }, deletedAfter: -1},
		{name: "expires in the year 9999", tolerance: 0, expiration: func() string { return "9999-12-31T23:59:59Z" }, deletedAfter: -1},
		{name: "malformed expiration", tolerance: 0, expiration: func() string { return "tomorrow" }, deletedAfter: -1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fixture := newFixture(t, test.tolerance, nil, tokenSecret("aaaaaa", test.expiration()))
				switch {
				case test.deletedAfter < 0:
					fixture.advance(100 * time.Hour)
					fixture.requireExists("aaaaaa", true)
				case test.deletedAfter == 0:
					fixture.requireExists("aaaaaa", false)
				default:
					fixture.advance(test.deletedAfter - settle - time.Nanosecond)
					fixture.requireExists("aaaaaa", true)
					fixture.advance(time.Nanosecond)
					fixture.requireExists("aaaaaa", false)
				}
			})
		})
	}
}

// TestDeletionHasPreconditions checks that a deletion requires the uid and the resource version
// that were read.
func TestDeletionHasPreconditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, 0, nil, tokenSecret("aaaaaa", expiresIn(-time.Second)))
		deletions := fixture.deletes()
		if len(deletions) != 1 {
			t.Fatalf("got %d deletions, want 1", len(deletions))
		}
		preconditions := deletions[0].DeleteOptions.Preconditions
		if preconditions == nil || preconditions.UID == nil || *preconditions.UID != "uid-aaaaaa" || preconditions.ResourceVersion == nil || *preconditions.ResourceVersion != "7" {
			t.Errorf("got preconditions %v, want UID uid-aaaaaa at version 7", preconditions)
		}
	})
}

// TestChangedExpirationMovesDeletion checks that a changed expiration moves the deletion.
func TestChangedExpirationMovesDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, 0, nil, tokenSecret("longer", expiresIn(time.Minute)), tokenSecret("shorte", expiresIn(time.Hour)),
			tokenSecret("always", expiresIn(time.Minute)))
		secrets := fixture.client.CoreV1().Secrets(bootstraptoken.Namespace)
		for _, changed := range []*corev1.Secret{tokenSecret("longer", expiresIn(time.Hour)),
			tokenSecret("shorte", expiresIn(10*time.Second)), tokenSecret("always", "")} {
			changed.ResourceVersion = "8"
			if _, err := secrets.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := secrets.Create(t.Context(), tokenSecret("newone", expiresIn(20*time.Second)),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		fixture.advance(10 * time.Second)
		fixture.requireExists("shorte", false)
		fixture.requireExists("newone", true)
		fixture.advance(10 * time.Second)
		fixture.requireExists("newone", false)
		fixture.advance(2 * time.Minute)
		fixture.requireExists("longer", true)
		fixture.advance(time.Hour)
		fixture.requireExists("longer", false)
		fixture.requireExists("always", true)
	})
}

// TestOtherSecretsAreNotTouched checks that secrets of other types are not deleted, and that
// requests select the type.
func TestOtherSecretsAreNotTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := tokenSecret("aaaaaa", expiresIn(-time.Hour))
		other.Type = corev1.SecretTypeOpaque
		// The fake server does not select by type, unlike a real one.
		fixture := newFixture(t, 0, nil, other)
		fixture.advance(time.Hour)
		fixture.requireExists("aaaaaa", true)
		for _, action := range fixture.client.Actions() {
			var selector string
			switch request := action.(type) {
			case clienttesting.ListActionImpl:
				selector = request.ListOptions.FieldSelector
			case clienttesting.WatchActionImpl:
				selector = request.ListOptions.FieldSelector
			default:
				continue
			}
			if action.GetNamespace() != "kube-system" || selector != "type=bootstrap.kubernetes.io/token" {
				t.Errorf("got %s in %q of %q; want \"kube-system\", \"type=bootstrap.kubernetes.io/token\"",
					action.GetVerb(), action.GetNamespace(), selector)
			}
		}
	})
}

// TestFailedDeletionsAreRetried checks which errors are retried.
func TestFailedDeletionsAreRetried(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want int // number of requests
	}{
		{name: "conflict", err: apierrors.NewConflict(corev1.Resource("secrets"), "x", errors.New("changed")), want: 3},
		{name: "unavailable", err: apierrors.NewServiceUnavailable("later"), want: 3},
		{name: "connection refused", err: errors.New("connection refused"), want: 3},
		{name: "already deleted", err: apierrors.NewNotFound(corev1.Resource("secrets"), "x"), want: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failures := 2
				fixture := newFixture(t, 0, func(client *fake.Clientset) {
					client.PrependReactor("delete", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
						failures--
						return failures >= 0, nil, test.err
					})
				}, tokenSecret("aaaaaa", expiresIn(-time.Second)))
				fixture.advance(10 * time.Minute)
				if requests := len(fixture.deletes()); requests != test.want {
					t.Errorf("got %d requests, want %d", requests, test.want)
				}
			})
		})
	}
}

// TestMalformedExpirationIsReportedOnce checks that a token with a malformed expiration gets one
// Event and is kept.
func TestMalformedExpirationIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, 0, nil, tokenSecret("aaaaaa", "tomorrow"))
		fixture.advance(time.Hour)
		events, err := fixture.client.CoreV1().Events(bootstraptoken.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(events.Items) != 1 {
			t.Fatalf("got %d events, want 1", len(events.Items))
		}
		event := events.Items[0]
		if event.Reason != "InvalidExpiration" || event.Type != corev1.EventTypeWarning || event.Count != 1 ||
			event.InvolvedObject.Name != "bootstrap-token-aaaaaa" || event.InvolvedObject.UID != "uid-aaaaaa" ||
			event.Source.Component != "token-cleaner" {
			t.Errorf("got event %+v, want one warning InvalidExpiration of the Secret", event)
		}
	})
}

// TestCheckFailsUntilTokensAreListed checks that the health check fails until the tokens are listed.
func TestCheckFailsUntilTokensAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool // read by the goroutine of the informer
		down.Store(true)
		fixture := newFixture(t, 0, func(client *fake.Clientset) {
			client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				return down.Load(), nil, errors.New("connection refused")
			})
		}, tokenSecret("aaaaaa", expiresIn(-time.Second)))
		if err := fixture.controller.Check(nil); err == nil || err.Error() != "waiting for the bootstrap tokens in kube-system to be listed" {
			t.Errorf("got Check() = %v; want an error, \"waiting for the bootstrap tokens in kube-system to be listed\"", err)
		}
		down.Store(false)
		fixture.advance(time.Minute)
		if err := fixture.controller.Check(nil); err != nil {
			t.Errorf("got Check() = %v, want no error", err)
		}
		fixture.requireExists("aaaaaa", false)
	})
}

// TestRunCanBeRepeated checks that a controller works again after its previous run has ended.
func TestRunCanBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		cleaner := controller.New(controller.Config{
			Secrets: client.CoreV1().Secrets(bootstraptoken.Namespace),
			Events:  client.CoreV1().Events(bootstraptoken.Namespace),
			Log:     slog.New(slog.DiscardHandler),
		})
		for i := range 3 {
			id := fmt.Sprintf("aaaaa%d", i)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- cleaner.Run(ctx) }()
			if _, err := client.CoreV1().Secrets(bootstraptoken.Namespace).Create(ctx,
				tokenSecret(id, expiresIn(time.Second)), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second) // time of the bubble
			synctest.Wait()
			cancel()
			<-done
			(&fixture{t: t, client: client}).requireExists(id, false)
		}
	})
}
