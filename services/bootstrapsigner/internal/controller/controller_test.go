package controller_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"binnacle/libs/bootstraptoken"
	"binnacle/libs/clusterinfo"
	"binnacle/services/bootstrapsigner/internal/controller"
)

const tokenSecret = "0123456789abcdef"

// newSecret returns the newSecret of a token. fields are pairs of key and value.
func newSecret(id string, fields ...string) *corev1.Secret {
	object := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: bootstraptoken.Namespace, Name: bootstraptoken.SecretName(id)},
		Type:       bootstraptoken.SecretType,
		Data: map[string][]byte{
			bootstraptoken.KeyID:      []byte(id),
			bootstraptoken.KeySecret:  []byte(tokenSecret),
			bootstraptoken.KeySigning: []byte("true"),
		},
	}
	for i := 0; i < len(fields); i += 2 {
		object.Data[fields[i]] = []byte(fields[i+1])
	}
	return object
}

// configMap returns the cluster-info ConfigMap.
func configMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: clusterinfo.Namespace, Name: clusterinfo.Name, ResourceVersion: "7"}, Data: data,
	}
}

// expiresIn returns an expiration in the given time from now.
func expiresIn(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }

// fixture runs a controller in a synctest bubble.
type fixture struct {
	t          *testing.T
	client     *fake.Clientset
	controller *controller.Controller
}

// newFixture starts a controller on a fake client with objects. prepare may change the client first.
func newFixture(t *testing.T, prepare func(*fake.Clientset), objects ...runtime.Object) *fixture {
	t.Helper()
	f := &fixture{t: t, client: fake.NewClientset(objects...)}
	if prepare != nil {
		prepare(f.client)
	}
	f.controller = controller.New(controller.Config{
		Secrets:    f.client.CoreV1().Secrets(bootstraptoken.Namespace),
		ConfigMaps: f.client.CoreV1().ConfigMaps(clusterinfo.Namespace),
		Log:        slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.controller.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want %v", err, context.Canceled)
		}
	})
	f.advance(500 * time.Millisecond) // shorter than the pause after a failed list
	return f
}

// advance advances the time of the bubble.
func (f *fixture) advance(d time.Duration) {
	time.Sleep(d) // time of the bubble
	synctest.Wait()
}

// requireSigned compares the config map with the expected one: the kubeconfig signed by the tokens,
// and other data.
func (f *fixture) requireSigned(kubeconfig string, otherData map[string]string, ids ...string) {
	f.t.Helper()
	want := map[string]string{clusterinfo.KeyKubeconfig: kubeconfig}
	maps.Copy(want, otherData)
	for _, id := range ids {
		want[clusterinfo.SignatureKey(id)] = clusterinfo.Sign(kubeconfig, id, tokenSecret)
	}
	obj, err := f.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("configmaps"), clusterinfo.Namespace,
		clusterinfo.Name)
	if err != nil {
		f.t.Fatal(err)
	}
	if got := obj.(*corev1.ConfigMap).Data; !maps.Equal(got, want) {
		f.t.Errorf("got data %v, want %v", got, want)
	}
}

// patches returns the number of patches that the controller requested.
func (f *fixture) patches() int {
	count := 0
	for _, action := range f.client.Actions() {
		if action.GetVerb() == "patch" {
			count++
		}
	}
	return count
}

// TestOnlyValidSigningTokensAreUsed checks for which tokens the config map gets signatures, and that other keys
// stay.
func TestOnlyValidSigningTokensAreUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deleted := newSecret("delete")
		deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/x"}
		misnamed, opaque := newSecret("misnam"), newSecret("opaque")
		misnamed.Name, opaque.Type = "bootstrap-token-others", corev1.SecretTypeOpaque
		otherData := map[string]string{"other": "x", "jws-kubeconfi": "y"}
		data := maps.Clone(otherData)
		maps.Copy(data, map[string]string{
			"kubeconfig":            "k",
			"jws-kubeconfig-absent": "a..b",
			"jws-kubeconfig-valid0": "wrong",
			"jws-kubeconfig-expire": "a..b",
		})
		fixture := newFixture(t, nil, configMap(data), deleted, misnamed, opaque,
			newSecret("valid0"), newSecret("valid1", bootstraptoken.KeyExpiration, expiresIn(time.Hour)),
			newSecret("expire", bootstraptoken.KeyExpiration, expiresIn(-time.Second)),
			newSecret("unread", bootstraptoken.KeyExpiration, "tomorrow"),
			newSecret("nosign", bootstraptoken.KeySigning, "false"), newSecret("nosecr", bootstraptoken.KeySecret, ""))
		fixture.requireSigned("k", otherData, "valid0", "valid1")
		if patches := fixture.patches(); patches != 1 {
			t.Errorf("got %d patches, want 1", patches)
		}
		fixture.advance(59 * time.Minute)
		if patches := fixture.patches(); patches != 1 {
			t.Errorf("got %d patches without a change, want 1", patches)
		}
		fixture.advance(time.Minute)
		fixture.requireSigned("k", otherData, "valid0")
	})
}

// TestChangesUpdateSignatures checks that each kind of change to tokens and config map updates the
// signatures.
func TestChangesUpdateSignatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, nil, newSecret("aaaaaa"))
		requireNoError := func(_ any, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			fixture.advance(time.Second)
		}
		secrets, configMaps := fixture.client.CoreV1().Secrets(bootstraptoken.Namespace), fixture.client.CoreV1().ConfigMaps(clusterinfo.Namespace)
		if fixture.controller.Check(nil) != nil || fixture.patches() != 0 {
			t.Errorf("without a config map: got %v, %d patches; want nil, 0", fixture.controller.Check(nil), fixture.patches())
		}
		requireNoError(configMaps.Create(t.Context(), configMap(map[string]string{"kubeconfig": "k"}), metav1.CreateOptions{}))
		fixture.requireSigned("k", nil, "aaaaaa")
		requireNoError(secrets.Create(t.Context(), newSecret("bbbbbb"), metav1.CreateOptions{}))
		fixture.requireSigned("k", nil, "aaaaaa", "bbbbbb")
		requireNoError(configMaps.Update(t.Context(), configMap(map[string]string{"kubeconfig": "k2"}), metav1.UpdateOptions{}))
		fixture.requireSigned("k2", nil, "aaaaaa", "bbbbbb")
		requireNoError(secrets.Update(t.Context(), newSecret("aaaaaa", bootstraptoken.KeySigning, "no"), metav1.UpdateOptions{}))
		fixture.requireSigned("k2", nil, "bbbbbb")
		requireNoError(nil, secrets.Delete(t.Context(), bootstraptoken.SecretName("bbbbbb"), metav1.DeleteOptions{}))
		fixture.requireSigned("k2", nil)
	})
}

// TestPatchIsConditionalAndRetried checks the preconditions of the patch, and that it is retried
// after errors.
func TestPatchIsConditionalAndRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failures := []error{apierrors.NewConflict(corev1.Resource("configmaps"), "x", errors.New("changed")),
			errors.New("connection refused")}
		var sent []string
		fixture := newFixture(t, func(client *fake.Clientset) {
			client.PrependReactor("patch", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
				sent = append(sent, string(action.(clienttesting.PatchAction).GetPatch()))
				if len(sent) <= len(failures) {
					return true, nil, failures[len(sent)-1]
				}
				return false, nil, nil
			})
		}, configMap(map[string]string{"kubeconfig": "k", "jws-kubeconfig-absent": "x"}))
		fixture.advance(time.Minute)
		fixture.requireSigned("k", nil)
		want := `{"data":{"jws-kubeconfig-absent":null},"metadata":{"resourceVersion":"7"}}`
		if len(sent) != 3 || sent[0] != want || sent[2] != want {
			t.Errorf("got patches %q, want three times %q", sent, want)
		}
	})
}
