package controller_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"binnacle/libs/bootstraptoken"
	"binnacle/libs/clusterinfo"
)

// TestNoKubeconfigIsNotSigned checks that without a kubeconfig there is no signature.
func TestNoKubeconfigIsNotSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, nil, configMap(map[string]string{"jws-kubeconfig-aaaaaa": "x"}), newSecret("aaaaaa"))
		obj, err := fixture.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("configmaps"),
			clusterinfo.Namespace, clusterinfo.Name)
		if err != nil {
			t.Fatal(err)
		}
		if data := obj.(*corev1.ConfigMap).Data; len(data) != 0 {
			t.Errorf("got data %v, want none", data)
		}
	})
}

// TestSignatureExpiresWithItsToken checks that the signature is removed when the token expires, not
// at the next resync.
func TestSignatureExpiresWithItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, nil, configMap(map[string]string{"kubeconfig": "k"}),
			newSecret("expire", bootstraptoken.KeyExpiration, expiresIn(3*time.Minute)), newSecret("always"))
		fixture.requireSigned("k", nil, "always", "expire")
		fixture.advance(3 * time.Minute)
		fixture.requireSigned("k", nil, "always")
	})
}

// TestRetriesBackOff checks that the delay between retries grows.
func TestRetriesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixture := newFixture(t, func(client *fake.Clientset) {
			client.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, errors.New("connection refused")
			})
		}, configMap(map[string]string{"kubeconfig": "k"}), newSecret("aaaaaa"))
		fixture.advance(10 * time.Minute)
		if patches := fixture.patches(); patches < 10 || patches > 25 {
			t.Errorf("got %d patches in ten minutes; want at least 10, at most 25", patches)
		}
	})
}

// TestCheckFailsUntilTokensAreListed checks that the controller neither is healthy nor writes before the
// tokens are listed.
func TestCheckFailsUntilTokensAreListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool // read by the goroutine of the informer
		down.Store(true)
		fixture := newFixture(t, func(client *fake.Clientset) {
			client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				return down.Load(), nil, errors.New("connection refused")
			})
		}, configMap(map[string]string{"kubeconfig": "k", "jws-kubeconfig-aaaaaa": "x"}), newSecret("aaaaaa"))
		if err := fixture.controller.Check(nil); err == nil || fixture.patches() != 0 {
			t.Errorf("got Check() = %v, %d patches before the tokens are listed; want an error, 0", err, fixture.patches())
		}
		down.Store(false)
		fixture.advance(time.Minute)
		if err := fixture.controller.Check(nil); err != nil {
			t.Errorf("got Check() = %v, want no error", err)
		}
		fixture.requireSigned("k", nil, "aaaaaa")
	})
}

// TestSignatureOfTokenDeletedDuringOutageIsRemoved checks that the signature is removed although the deletion was
// missed.
func TestSignatureOfTokenDeletedDuringOutageIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var watches []*watch.RaceFreeFakeWatcher
		fixture := newFixture(t, func(client *fake.Clientset) {
			client.PrependWatchReactor("secrets", func(clienttesting.Action) (bool, watch.Interface, error) {
				watches = append(watches, watch.NewRaceFreeFake())
				return true, watches[len(watches)-1], nil
			})
		}, configMap(map[string]string{"kubeconfig": "k"}), newSecret("aaaaaa"), newSecret("bbbbbb"))
		fixture.requireSigned("k", nil, "aaaaaa", "bbbbbb")
		if err := fixture.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("secrets"),
			bootstraptoken.Namespace, bootstraptoken.SecretName("bbbbbb")); err != nil {
			t.Fatal(err)
		}
		expired := apierrors.NewResourceExpired("too old").Status()
		watches[0].Error(&expired) // causes a new list
		fixture.advance(2 * time.Minute)
		fixture.requireSigned("k", nil, "aaaaaa")
	})
}
