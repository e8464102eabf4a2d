package objects_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"binnacle/libs/bootstraptoken"
	"binnacle/services/authn-webhook/internal/apitest"
	"binnacle/services/authn-webhook/internal/objects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func meta(namespace, name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid), Annotations: map[string]string{"a": "b"}}
}

func secret(name, uid string, kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: meta("kube-system", name, uid), Type: kind, Data: map[string][]byte{"token": []byte("x")}}
}

// Arguments of start: whether objects in the watch are confirmed with the API server.
const confirming, trusting = true, false

// start returns objects whose watches are synced.
func start(t *testing.T, api *apitest.Server, confirm bool) *objects.Objects {
	t.Helper()
	lookups, err := objects.New(objects.Config{
		Client:          api.Config(),
		ServiceAccounts: true,
		BootstrapTokens: true,
		Confirm:         confirm,
		Logger:          slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := lookups.Check(nil); err == nil || !strings.Contains(err.Error(), "waiting for the list of serviceaccounts") {
		t.Errorf("before the start: got %v; want the error: waiting for the list of serviceaccounts", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- lookups.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want %v", err, context.Canceled)
		}
	})
	eventually(t, func() bool { return lookups.Check(nil) == nil })
	return lookups
}

// eventually waits until a condition holds.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 20*time.Second, true,
		func(context.Context) (bool, error) { return condition(), nil }); err != nil {
		t.Fatal(err)
	}
}

// lookUpUIDs looks up every object and returns the UIDs, or "-" for missing ones.
func lookUpUIDs(t *testing.T, lookups *objects.Objects) string {
	t.Helper()
	var out []string
	add := func(metadata metav1.Object, err error) {
		switch {
		case apierrors.IsNotFound(err):
			out = append(out, "-")
		case err != nil:
			t.Errorf("lookup: %v", err)
		default:
			out = append(out, string(metadata.GetUID()))
		}
	}
	ctx := t.Context()
	account, err := lookups.ServiceAccount(ctx, "ns", "sa")
	add(account, err)
	pod, err := lookups.Pod(ctx, "ns", "pod")
	add(pod, err)
	node, err := lookups.Node(ctx, "node")
	add(node, err)
	for _, name := range []string{"legacy", "bootstrap-token-abcdef", "other"} {
		object, err := lookups.Secret(ctx, "kube-system", name)
		add(object, err)
	}
	return strings.Join(out, " ")
}

// putObjects creates or replaces an object of each kind; suffix is the end of their UIDs.
func putObjects(api *apitest.Server, suffix string) {
	api.Put("serviceaccounts", &corev1.ServiceAccount{ObjectMeta: meta("ns", "sa", "sa"+suffix)})
	api.Put("pods", &corev1.Pod{ObjectMeta: meta("ns", "pod", "pod"+suffix)})
	api.Put("nodes", &corev1.Node{ObjectMeta: meta("", "node", "node"+suffix)})
	api.Put("secrets", secret("legacy", "legacy"+suffix, corev1.SecretTypeServiceAccountToken))
	api.Put("secrets", secret("bootstrap-token-abcdef", "bootstrap"+suffix, bootstraptoken.SecretType))
	api.Put("secrets", secret("other", "other"+suffix, corev1.SecretTypeOpaque))
}

// deleteObjects deletes the objects of putObjects.
func deleteObjects(api *apitest.Server) {
	api.Delete("serviceaccounts", "ns", "sa")
	api.Delete("pods", "ns", "pod")
	api.Delete("nodes", "", "node")
	for _, name := range []string{"legacy", "bootstrap-token-abcdef", "other"} {
		api.Delete("secrets", "kube-system", name)
	}
}

// Results of lookUpUIDs without objects, and after putObjects with the suffixes 1 and 2.
const (
	nothing = "- - - - - -"
	first   = "sa1 pod1 node1 legacy1 bootstrap1 other1"
	second  = "sa2 pod2 node2 legacy2 bootstrap2 other2"
)

// TestConfirmedLookupsSeeChangesBeforeWatches checks that lookups find objects, and miss deleted ones,
// before the watches deliver the changes.
func TestConfirmedLookupsSeeChangesBeforeWatches(t *testing.T) {
	api := apitest.New(t)
	putObjects(api, "1")
	lookups := start(t, api, confirming)
	if got := lookUpUIDs(t, lookups); got != first {
		t.Errorf("got %s, want %v", got, first)
	}
	release := api.HoldWatches()
	defer release()
	deleteObjects(api)
	if got := lookUpUIDs(t, lookups); got != nothing {
		t.Errorf("after the deletion: got %s, want %v", got, nothing)
	}
	putObjects(api, "2")
	if got := lookUpUIDs(t, lookups); got != second {
		t.Errorf("after recreation: got %s, want %v", got, second)
	}
}

// TestWatchedObjectsAreTrusted checks that watched objects are trusted, and unknown ones are requested.
func TestWatchedObjectsAreTrusted(t *testing.T) {
	api := apitest.New(t)
	putObjects(api, "1")
	lookups := start(t, api, trusting)
	if got, requests := lookUpUIDs(t, lookups), api.Gets(); got != first || requests != 1 {
		t.Errorf("got %s after %d requests, want %s after one, for the secret without a token", got, requests, first)
	}
	deleteObjects(api)
	eventually(t, func() bool { return lookUpUIDs(t, lookups) == nothing })
	release := api.HoldWatches()
	defer release()
	putObjects(api, "2")
	if got := lookUpUIDs(t, lookups); got != second {
		t.Errorf("after recreation: got %s, want %v", got, second)
	}
}

// TestGuessesOfBootstrapTokensAreLimited checks that unknown token ids cause few requests, and
// known tokens are still found.
func TestGuessesOfBootstrapTokensAreLimited(t *testing.T) {
	api := apitest.New(t)
	lookups := start(t, api, confirming)
	for i := range 1000 {
		if _, err := lookups.Secret(t.Context(), "kube-system",
			fmt.Sprintf("bootstrap-token-%06d", i)); !apierrors.IsNotFound(err) {
			t.Fatalf("got %v, want an error of type NotFound", err)
		}
	}
	if requests := api.Gets(); requests > 200 {
		t.Errorf("got %d requests for 1000 guesses, want at most 200", requests)
	}
	// A watched token is found, whatever the number of guesses.
	api.Put("secrets", secret("bootstrap-token-abcdef", "good", bootstraptoken.SecretType))
	eventually(t, func() bool {
		token, err := lookups.Secret(t.Context(), "kube-system", "bootstrap-token-abcdef")
		return err == nil && token.UID == "good"
	})
	api.Put("secrets", secret("a-secret-of-another-name", "other", corev1.SecretTypeOpaque))
	elsewhere := secret("bootstrap-token-ghijkl", "elsewhere", corev1.SecretTypeOpaque)
	elsewhere.Namespace = "ns"
	api.Put("secrets", elsewhere)
	for i := range 1000 {
		if _, err := lookups.Secret(t.Context(), "kube-system",
			fmt.Sprintf("bootstrap-token-%06d", i)); !apierrors.IsNotFound(err) {
			t.Fatalf("got %v, want an error of type NotFound", err)
		}
	}
	for range 50 { // valid tokens, not guesses
		for _, name := range [][2]string{
			{"kube-system", "bootstrap-token-abcdef"},
			{"kube-system", "a-secret-of-another-name"},
			{"ns", "bootstrap-token-ghijkl"},
		} {
			if _, err := lookups.Secret(t.Context(), name[0], name[1]); err != nil {
				t.Fatalf("%v: %v, want no error", name, err)
			}
		}
	}
}

// TestUnwatchedObjectsAreRequested checks that objects that are not watched are requested.
func TestUnwatchedObjectsAreRequested(t *testing.T) {
	api := apitest.New(t)
	putObjects(api, "1")
	lookups, err := objects.New(objects.Config{Client: api.Config(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if got := lookUpUIDs(t, lookups); got != first {
		t.Errorf("got %s, want %v", got, first)
	}
	if _, err := objects.New(objects.Config{Client: &rest.Config{Host: "http://%zz"}}); err == nil {
		t.Errorf("New() with host http://%%zz = nil, want an error")
	}
}

// TestCacheOmitsOtherSecretContent checks that secrets with other content than a token are not cached whole.
func TestCacheOmitsOtherSecretContent(t *testing.T) {
	api := apitest.New(t)
	legacy := secret("legacy", "l", corev1.SecretTypeServiceAccountToken)
	legacy.Data["ca.crt"] = []byte("y")
	legacy.Labels = map[string]string{"a": "b"}
	bootstrap := secret("bootstrap-token-abcdef", "b", bootstraptoken.SecretType)
	bootstrap.Data["usage-bootstrap-authentication"] = []byte("true")
	api.Put("secrets", legacy)
	api.Put("secrets", bootstrap)
	lookups := start(t, api, trusting)
	for name, want := range map[string]string{
		"legacy":                 "map[token:[120]] map[a:b]",
		"bootstrap-token-abcdef": "map[token:[120] usage-bootstrap-authentication:[116 114 117 101]] map[]",
	} {
		cached, err := lookups.Secret(t.Context(), "kube-system", name)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(cached.Data, cached.Labels); got != want || api.Gets() != 0 {
			t.Errorf("%s: got %s after %d requests, want %s from the cache", name, got, api.Gets(), want)
		}
	}
}

// TestFailingAPIServerDoesNotMeanAbsence checks that a failing API server does not mean that an object is
// absent.
func TestFailingAPIServerDoesNotMeanAbsence(t *testing.T) {
	api := apitest.New(t)
	putObjects(api, "1")
	lookups := start(t, api, confirming)
	api.SetDown(true)
	if _, err := lookups.ServiceAccount(t.Context(), "ns", "sa"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("got error %v, want one other than NotFound", err)
	}
	if _, err := lookups.Secret(t.Context(), "kube-system", "legacy"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("got error %v, want one other than NotFound", err)
	}
}
