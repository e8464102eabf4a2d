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

func secret(id, expiration string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: bootstraptoken.Namespace, Name: bootstraptoken.SecretName(id),
			UID: types.UID("uid-" + id), ResourceVersion: "7",
		},
		Type: bootstraptoken.SecretType,
		Data: map[string][]byte{bootstraptoken.KeyID: []byte(id), bootstraptoken.KeySecret: []byte("0123456789abcdef")},
	}
	if expiration != "" {
		s.Data[bootstraptoken.KeyExpiration] = []byte(expiration)
	}
	return s
}

// expiresIn returns an expiration in the given time from now. Tests start at a whole second.
func expiresIn(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }

// settle is longer than a successful list takes, and shorter than the pause after a failed one.
const settle = 200 * time.Millisecond

// fixture runs a controller in a synctest bubble.
type fixture struct {
	t      *testing.T
	client *fake.Clientset
	c      *controller.Controller
	stop   func()
}

// run starts a controller on a fake client with secrets. prepare may change the client first.
func run(t *testing.T, tolerance time.Duration, prepare func(*fake.Clientset), secrets ...runtime.Object) *fixture {
	t.Helper()
	b := &fixture{t: t, client: fake.NewClientset(secrets...)}
	if prepare != nil {
		prepare(b.client)
	}
	b.c = controller.New(controller.Config{
		Secrets:   b.client.CoreV1().Secrets(bootstraptoken.Namespace),
		Events:    b.client.CoreV1().Events(bootstraptoken.Namespace),
		Log:       slog.New(slog.DiscardHandler),
		Tolerance: tolerance,
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.c.Run(ctx) }()
	b.stop = func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want %v", err, context.Canceled)
		}
	}
	t.Cleanup(b.stop)
	synctest.Wait()
	b.advance(settle)
	return b
}

// advance advances the time of the bubble.
func (b *fixture) advance(d time.Duration) {
	time.Sleep(d) // time of the bubble
	synctest.Wait()
}

func (b *fixture) requireExists(id string, want bool) {
	b.t.Helper()
	_, err := b.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("secrets"), bootstraptoken.Namespace,
		bootstraptoken.SecretName(id))
	if got := err == nil; got != want {
		b.t.Errorf("%s: got exists %t, want %t (%v)", id, got, want, err)
	}
}

func (b *fixture) deletes() []clienttesting.DeleteActionImpl {
	var out []clienttesting.DeleteActionImpl
	for _, a := range b.client.Actions() {
		if d, ok := a.(clienttesting.DeleteActionImpl); ok {
			out = append(out, d)
		}
	}
	return out
}

// TestExpiredTokensAreDeleted checks when tokens with different expirations are deleted.
func TestExpiredTokensAreDeleted(t *testing.T) {
	tests := []struct {
		name       string
		tolerance  time.Duration
		expiration func() string
		gone       time.Duration // after the start; negative for never
	}{
		{name: "expired at the start", tolerance: 0, expiration: func() string { return expiresIn(-time.Hour) }, gone: 0},
		{name: "expired long ago", tolerance: 0, expiration: func() string { return "1900-01-01T00:00:00Z" }, gone: 0},
		{name: "soon", tolerance: 0, expiration: func() string { return expiresIn(10 * time.Second) }, gone: 10 * time.Second},
		{name: "in another zone", tolerance: 0, expiration: func() string {
			return time.Now().Add(10 * time.Second).In(time.FixedZone("", 7200)).Format(time.RFC3339)
		}, gone: 10 * time.Second},
		{
			name:       "with a tolerance",
			tolerance:  time.Minute,
			expiration: func() string { return expiresIn(10 * time.Second) },
			gone:       70 * time.Second,
		},
		{
			name:       "expired at the start, within the tolerance",
			tolerance:  time.Minute,
			expiration: func() string { return expiresIn(-10 * time.Second) },
			gone:       50 * time.Second,
		},
		{
			name:       "beyond the longest delay of the queue",
			tolerance:  0,
			expiration: func() string { return expiresIn(50 * time.Hour) },
			gone:       50 * time.Hour,
		},
		{name: "never", tolerance: 0, expiration: func() string { return "" }, gone: -1},
		{name: "in a far future", tolerance: 0, expiration: func() string { return "9999-12-31T23:59:59Z" }, gone: -1},
		{name: "unreadable", tolerance: 0, expiration: func() string { return "tomorrow" }, gone: -1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fixture := run(t, test.tolerance, nil, secret("aaaaaa", test.expiration()))
				switch {
				case test.gone < 0:
					fixture.advance(100 * time.Hour)
					fixture.requireExists("aaaaaa", true)
				case test.gone == 0:
					fixture.requireExists("aaaaaa", false)
				default:
					fixture.advance(test.gone - settle - time.Nanosecond)
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
		b := run(t, 0, nil, secret("aaaaaa", expiresIn(-time.Second)))
		d := b.deletes()
		if len(d) != 1 {
			t.Fatalf("got %d deletions, want length 1", len(d))
		}
		p := d[0].DeleteOptions.Preconditions
		if p == nil || p.UID == nil || *p.UID != "uid-aaaaaa" || p.ResourceVersion == nil || *p.ResourceVersion != "7" {
			t.Errorf("got preconditions %v, want UID uid-aaaaaa at version 7", p)
		}
	})
}

// TestChangedExpiration checks that a changed expiration moves the deletion.
func TestChangedExpiration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := run(t, 0, nil, secret("longer", expiresIn(time.Minute)), secret("shorte", expiresIn(time.Hour)),
			secret("always", expiresIn(time.Minute)))
		secrets := fixture.client.CoreV1().Secrets(bootstraptoken.Namespace)
		for _, s := range []*corev1.Secret{secret("longer", expiresIn(time.Hour)),
			secret("shorte", expiresIn(10*time.Second)), secret("always", "")} {
			s.ResourceVersion = "8"
			if _, err := secrets.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := secrets.Create(t.Context(), secret("newone", expiresIn(20*time.Second)),
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
		other := secret("aaaaaa", expiresIn(-time.Hour))
		other.Type = corev1.SecretTypeOpaque
		// The fake server does not select by type, unlike a real one.
		b := run(t, 0, nil, other)
		b.advance(time.Hour)
		b.requireExists("aaaaaa", true)
		for _, action := range b.client.Actions() {
			var selector string
			switch a := action.(type) {
			case clienttesting.ListActionImpl:
				selector = a.ListOptions.FieldSelector
			case clienttesting.WatchActionImpl:
				selector = a.ListOptions.FieldSelector
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
		{name: "refused", err: errors.New("connection refused"), want: 3},
		{name: "gone already", err: apierrors.NewNotFound(corev1.Resource("secrets"), "x"), want: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failures := 2
				fixture := run(t, 0, func(c *fake.Clientset) {
					c.PrependReactor("delete", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
						failures--
						return failures >= 0, nil, test.err
					})
				}, secret("aaaaaa", expiresIn(-time.Second)))
				fixture.advance(10 * time.Minute)
				if n := len(fixture.deletes()); n != test.want {
					t.Errorf("got %d requests, want %d", n, test.want)
				}
			})
		})
	}
}

// TestMalformedExpirationIsReportedOnce checks that a token with a malformed expiration gets one
// Event and is kept.
func TestMalformedExpirationIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := run(t, 0, nil, secret("aaaaaa", "tomorrow"))
		b.advance(time.Hour)
		events, err := b.client.CoreV1().Events(bootstraptoken.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(events.Items) != 1 {
			t.Fatalf("got %d events, want length 1", len(events.Items))
		}
		e := events.Items[0]
		if e.Reason != "InvalidExpiration" || e.Type != corev1.EventTypeWarning || e.Count != 1 ||
			e.InvolvedObject.Name != "bootstrap-token-aaaaaa" || e.InvolvedObject.UID != "uid-aaaaaa" ||
			e.Source.Component != "token-cleaner" {
			t.Errorf("got event %+v, want one warning InvalidExpiration of the Secret", e)
		}
	})
}

// TestCheckWaitsForTheList checks that the health check fails until the tokens are listed.
func TestCheckWaitsForTheList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool // read by the goroutine of the informer
		down.Store(true)
		fixture := run(t, 0, func(c *fake.Clientset) {
			c.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				return down.Load(), nil, errors.New("connection refused")
			})
		}, secret("aaaaaa", expiresIn(-time.Second)))
		if err := fixture.c.Check(nil); err == nil || err.Error() != "waiting for the bootstrap tokens in kube-system to be listed" {
			t.Errorf("got Check() = %v; want an error, \"waiting for the bootstrap tokens in kube-system to be listed\"", err)
		}
		down.Store(false)
		fixture.advance(time.Minute)
		if err := fixture.c.Check(nil); err != nil {
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
				secret(id, expiresIn(time.Second)), metav1.CreateOptions{}); err != nil {
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
