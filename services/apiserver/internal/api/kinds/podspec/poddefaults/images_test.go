package poddefaults_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
)

// TestDefaultPullPolicyFollowsTag checks the default pull policy of images with and without tags.
func TestDefaultPullPolicyFollowsTag(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0123456789abcdef", 4)
	for image, want := range map[string]corev1.PullPolicy{
		"nginx":                                corev1.PullAlways,
		"nginx:latest":                         corev1.PullAlways,
		"nginx:latest" + digest:                corev1.PullAlways,
		"library/nginx":                        corev1.PullAlways,
		"localhost:5000/x":                     corev1.PullAlways,
		"r.example:5000/a/b__c:latest":         corev1.PullAlways,
		"[::1]:5000/x":                         corev1.PullAlways,
		"nginx:1.27":                           corev1.PullIfNotPresent,
		"nginx" + digest:                       corev1.PullIfNotPresent,
		"r.example:5000/x" + digest:            corev1.PullIfNotPresent,
		"nginx:Latest":                         corev1.PullIfNotPresent,
		"":                                     corev1.PullIfNotPresent,
		"Nginx":                                corev1.PullIfNotPresent,
		"nginx:":                               corev1.PullIfNotPresent,
		"a b":                                  corev1.PullIfNotPresent,
		"a//b":                                 corev1.PullIfNotPresent,
		strings.Repeat("0123456789abcdef", 4):  corev1.PullIfNotPresent,
		strings.Repeat("a", 256) + ":latest":   corev1.PullIfNotPresent,
		"nginx:" + strings.Repeat("a", 129):    corev1.PullIfNotPresent,
		"nginx@sha256:tooshort":                corev1.PullIfNotPresent,
		strings.Repeat("0123456789abcdeg", 4):  corev1.PullAlways,
		"gcr.io/k8s-staging/kube-proxy:latest": corev1.PullAlways,
		// Digests of other lengths or hashes, or in upper case, are invalid.
		"nginx:latest@sha256:" + strings.Repeat("0123456789abcdef", 2): corev1.PullIfNotPresent,
		"nginx:latest@md5:" + strings.Repeat("0123456789abcdef", 2):    corev1.PullIfNotPresent,
		"nginx:latest" + strings.ToUpper(digest):                       corev1.PullIfNotPresent,
		"nginx:latest@sha512:" + strings.Repeat("0123456789abcdef", 8): corev1.PullAlways,
		// The length limit applies to the expanded path.
		strings.Repeat("a", 247):                      corev1.PullAlways,
		strings.Repeat("a", 248):                      corev1.PullIfNotPresent,
		"docker.io/" + strings.Repeat("a", 248):       corev1.PullIfNotPresent,
		"x/" + strings.Repeat("a", 253):               corev1.PullAlways,
		"x/" + strings.Repeat("a", 254):               corev1.PullIfNotPresent,
		"r.example/" + strings.Repeat("a", 255):       corev1.PullAlways,
		"r.example/" + strings.Repeat("a", 256):       corev1.PullIfNotPresent,
		"a_b.c/" + strings.Repeat("a", 250):           corev1.PullIfNotPresent, // not a host
		"localhost/" + strings.Repeat("a", 255):       corev1.PullAlways,
		"index.docker.io/" + strings.Repeat("a", 248): corev1.PullIfNotPresent,
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}
		poddefaults.Pod(pod)
		if got := pod.Spec.Containers[0].ImagePullPolicy; got != want {
			t.Errorf("%q: got %s, want %s", image, got, want)
		}
	}
}
