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

// secret returns the secret of a token. fields are pairs of key and value.
func secret(id string, fields ...string) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: bootstraptoken.Namespace, Name: bootstraptoken.SecretName(id)},
		Type:       bootstraptoken.SecretType,
		Data: map[string][]byte{
			bootstraptoken.KeyID:      []byte(id),
			bootstraptoken.KeySecret:  []byte(tokenSecret),
			bootstraptoken.KeySigning: []byte("true"),
		},
	}
	for i := 0; i < len(fields); i += 2 {
		s.Data[fields[i]] = []byte(fields[i+1])
	}
	return s
}

func configMap(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: clusterinfo.Namespace, Name: clusterinfo.Name, ResourceVersion: "7"}, Data: data,
	}
}

func expiresIn(d time.Duration) string { return time.Now().Add(d).UTC().Format(time.RFC3339) }

// fixture runs a controller in a synctest bubble.
type fixture struct {
	t      *testing.T
	client *fake.Clientset
	c      *controller.Controller
}

func run(t *testing.T, prepare func(*fake.Clientset), objects ...runtime.Object) *fixture {
	t.Helper()
	b := &fixture{t: t, client: fake.NewClientset(objects...)}
	if prepare != nil {
		prepare(b.client)
	}
	b.c = controller.New(controller.Config{
		Secrets:    b.client.CoreV1().Secrets(bootstraptoken.Namespace),
		ConfigMaps: b.client.CoreV1().ConfigMaps(clusterinfo.Namespace),
		Log:        slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want %v", err, context.Canceled)
		}
	})
	b.advance(500 * time.Millisecond) // shorter than the pause after a failed list
	return b
}

// advance advances the time of the bubble.
func (b *fixture) advance(d time.Duration) {
	time.Sleep(d) // time of the bubble
	synctest.Wait()
}

// requireSigned compares the config map with the expected one: the kubeconfig signed by the tokens,
// and other data.
func (b *fixture) requireSigned(kubeconfig string, rest map[string]string, ids ...string) {
	b.t.Helper()
	want := map[string]string{clusterinfo.KeyKubeconfig: kubeconfig}
	maps.Copy(want, rest)
	for _, id := range ids {
		want[clusterinfo.SignatureKey(id)] = clusterinfo.Sign(kubeconfig, id, tokenSecret)
	}
	obj, err := b.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("configmaps"), clusterinfo.Namespace,
		clusterinfo.Name)
	if err != nil {
		b.t.Fatal(err)
	}
	if got := obj.(*corev1.ConfigMap).Data; !maps.Equal(got, want) {
		b.t.Errorf("got data %v, want %v", got, want)
	}
}

func (b *fixture) patches() int {
	n := 0
	for _, a := range b.client.Actions() {
		if a.GetVerb() == "patch" {
			n++
		}
	}
	return n
}

// TestSigningTokens checks for which tokens the config map gets signatures, and that other keys
// stay.
func TestSigningTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deleted := secret("delete")
		deleted.DeletionTimestamp, deleted.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/x"}
		misnamed, opaque := secret("misnam"), secret("opaque")
		misnamed.Name, opaque.Type = "bootstrap-token-others", corev1.SecretTypeOpaque
		rest := map[string]string{"other": "x", "jws-kubeconfi": "y"}
		data := maps.Clone(rest)
		maps.Copy(data, map[string]string{
			"kubeconfig":            "k",
			"jws-kubeconfig-absent": "a..b",
			"jws-kubeconfig-valid0": "wrong",
			"jws-kubeconfig-expire": "a..b",
		})
		fixture := run(t, nil, configMap(data), deleted, misnamed, opaque,
			secret("valid0"), secret("valid1", bootstraptoken.KeyExpiration, expiresIn(time.Hour)),
			secret("expire", bootstraptoken.KeyExpiration, expiresIn(-time.Second)),
			secret("unread", bootstraptoken.KeyExpiration, "tomorrow"),
			secret("nosign", bootstraptoken.KeySigning, "false"), secret("nosecr", bootstraptoken.KeySecret, ""))
		fixture.requireSigned("k", rest, "valid0", "valid1")
		if n := fixture.patches(); n != 1 {
			t.Errorf("got %d patches, want 1", n)
		}
		fixture.advance(59 * time.Minute)
		if n := fixture.patches(); n != 1 {
			t.Errorf("got %d patches without a change, want 1", n)
		}
		fixture.advance(time.Minute)
		fixture.requireSigned("k", rest, "valid0")
	})
}

// TestChangesUpdateSignatures checks that each kind of change to tokens and config map updates the
// signatures.
func TestChangesUpdateSignatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := run(t, nil, secret("aaaaaa"))
		requireNoError := func(_ any, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			fixture.advance(time.Second)
		}
		secrets, infos := fixture.client.CoreV1().Secrets(bootstraptoken.Namespace), fixture.client.CoreV1().ConfigMaps(clusterinfo.Namespace)
		if fixture.c.Check(nil) != nil || fixture.patches() != 0 {
			t.Errorf("without a config map: got %v, %d patches; want nil, 0", fixture.c.Check(nil), fixture.patches())
		}
		requireNoError(infos.Create(t.Context(), configMap(map[string]string{"kubeconfig": "k"}), metav1.CreateOptions{}))
		fixture.requireSigned("k", nil, "aaaaaa")
		requireNoError(secrets.Create(t.Context(), secret("bbbbbb"), metav1.CreateOptions{}))
		fixture.requireSigned("k", nil, "aaaaaa", "bbbbbb")
		requireNoError(infos.Update(t.Context(), configMap(map[string]string{"kubeconfig": "k2"}), metav1.UpdateOptions{}))
		fixture.requireSigned("k2", nil, "aaaaaa", "bbbbbb")
		requireNoError(secrets.Update(t.Context(), secret("aaaaaa", bootstraptoken.KeySigning, "no"), metav1.UpdateOptions{}))
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
		fixture := run(t, func(c *fake.Clientset) {
			c.PrependReactor("patch", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
				sent = append(sent, string(a.(clienttesting.PatchAction).GetPatch()))
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
