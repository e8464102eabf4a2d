package policies_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bigPod returns a pod of about 6 KB as JSON.
func bigPod() *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "default", Labels: map[string]string{"app": "web"}}}
	for i := range 6 {
		container := corev1.Container{
			Name:            fmt.Sprintf("c%d", i),
			Image:           "registry.example.com/team/image:v1",
			ImagePullPolicy: corev1.PullAlways,
		}
		for j := range 14 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("NAME_%d", j), Value: strings.Repeat("v", 32)})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	return pod
}

// policiesOfOtherKinds returns n policies for kinds that no request in the benchmark has.
func policiesOfOtherKinds(n int) (out []string) {
	for i := range n {
		name := fmt.Sprintf("other-%04d", i)
		validation := fmt.Sprintf(`"validations":[{"expression":"object.spec.replicas > %d","message":"too few"}]`, i)
		unmatched := strings.Replace(validatingPolicy(name, validation), `"configmaps","pods","pods/exec","namespaces"`, `"deployments"`, 1)
		out = append(out, unmatched, validatingBinding(name, deny))
	}
	return out
}

// BenchmarkUnmatchedPolicies measures a request with a thousand policies that do not match it.
func BenchmarkUnmatchedPolicies(b *testing.B) {
	fixture := newFixture(b, policiesOfOtherKinds(1000)...)
	req := fixture.request("pods", bigPod())
	if err := fixture.validating.Validate(b.Context(), req); err != nil { // builds the index
		b.Fatal(err)
	}
	for b.Loop() {
		if err := fixture.validating.Validate(b.Context(), req); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTenPolicies measures a pod that matches ten policies with three validations each.
func BenchmarkTenPolicies(b *testing.B) {
	var objects []string
	for i := range 10 {
		name := fmt.Sprintf("p%d", i)
		validations := fmt.Sprintf(`"validations":[`+
			`{"expression":"object.metadata.labels.app != 'x%[1]d'"},`+
			`{"expression":"object.spec.containers.all(c, c.image.startsWith('registry.example.com/') && c.name != 'n%[1]d')"},`+
			`{"expression":"!has(object.spec.hostNetwork) || !object.spec.hostNetwork || request.userInfo.username == 'u%[1]d'"}]`, i)
		objects = append(objects, validatingPolicy(name, validations), validatingBinding(name, deny))
	}
	fixture := newFixture(b, objects...)
	pod := bigPod()
	b.Logf("a pod of %d bytes", len(asJSON(pod)))
	if err := fixture.validating.Validate(b.Context(), fixture.request("pods", pod)); err != nil { // compiles the policies
		b.Fatal(err)
	}
	for b.Loop() {
		if err := fixture.validating.Validate(b.Context(), fixture.request("pods", pod)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUnusedPolicyMemory reports the memory that an unused policy takes.
func BenchmarkUnusedPolicyMemory(b *testing.B) {
	for b.Loop() {
		const policyCount = 1000
		objects := policiesOfOtherKinds(policyCount)

		// A fixture without policies shows the memory that does not depend on them.
		before := liveHeapBytes()
		empty := newFixture(b)
		_ = empty.validating.Validate(b.Context(), empty.configMap())
		emptyBytes := liveHeapBytes() - before

		before = liveHeapBytes()
		full := newFixture(b, objects...)
		if err := full.validating.Validate(b.Context(), full.configMap()); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(liveHeapBytes()-before-emptyBytes)/policyCount, "bytes/policy")
		runtime.KeepAlive(full)
		runtime.KeepAlive(empty)
	}
}

// liveHeapBytes returns the bytes of live heap objects.
func liveHeapBytes() int64 {
	var memStats runtime.MemStats
	runtime.GC()
	runtime.GC() // the second collection frees objects that had finalizers
	runtime.ReadMemStats(&memStats)
	return int64(memStats.HeapAlloc)
}
