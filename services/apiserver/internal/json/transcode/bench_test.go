package transcode_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/json/transcode"
)

// ownedFields returns the set of all fields of a document in the format of managedFields
// (FieldsV1).
func ownedFields(v any) any {
	out := map[string]any{}
	switch v := v.(type) {
	case map[string]any:
		for k, in := range v {
			out["f:"+k] = ownedFields(in)
		}
	case []any:
		for _, in := range v {
			if members, ok := in.(map[string]any); ok && members["name"] != nil {
				owned := ownedFields(in).(map[string]any)
				owned["."] = map[string]any{}
				key, _ := json.Marshal(map[string]any{"name": members["name"]})
				out["k:"+string(key)] = owned
			}
		}
	}
	return out
}

// podOf returns a pod of about 5.7 KB of JSON, half of it managedFields.
func podOf(t testing.TB) *corev1.Pod {
	t.Helper()
	env := ""
	for i := range 12 {
		env += fmt.Sprintf(`,{"name":"SETTING_%d","value":"value-%x-%x"}`, i, 0x5fe30b1c<<20+i, 0x7ad4a70f<<24+i)
	}
	doc := `{"metadata":{"labels":{"app":"app-7","tier":"t1","pod-template-hash":"6b86b273"},"annotations":{"bench/stamp":"0","checksum/config":"5fe30b1c7ad4a70f6b86b273"}},
		"spec":{"nodeName":"node-17","serviceAccountName":"default","automountServiceAccountToken":false,"containers":[
		{"name":"main","image":"registry.example/team/service-7:v1.12.3","args":["--listen=:8080","--log=info","--workers=4"],"ports":[{"containerPort":8080,"name":"http"},{"containerPort":9090,"name":"metrics"}],
		"env":[` + env[1:] + `],"resources":{"requests":{"cpu":"100m","memory":"128Mi"},"limits":{"cpu":"500m","memory":"256Mi"}},
		"readinessProbe":{"httpGet":{"path":"/ready","port":"http"},"periodSeconds":10},"livenessProbe":{"httpGet":{"path":"/live","port":"http"},"periodSeconds":20},
		"volumeMounts":[{"name":"config","mountPath":"/etc/app"},{"name":"cache","mountPath":"/cache"}]},
		{"name":"sidecar","image":"registry.example/mesh/proxy:v2.1.4","ports":[{"containerPort":15001}],"resources":{"requests":{"cpu":"10m","memory":"64Mi"}}}],
		"volumes":[{"name":"config","configMap":{"name":"app-7"}},{"name":"cache","emptyDir":{}}]},"status":{"phase":"Pending","qosClass":"Burstable"}}`
	pod := &corev1.Pod{}
	if err := json.Unmarshal([]byte(doc), pod); err != nil {
		t.Fatal(err)
	}
	poddefaults.Pod(pod)
	full, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(full, &tree); err != nil {
		t.Fatal(err)
	}
	delete(tree, "status")
	owned, err := json.Marshal(ownedFields(tree))
	if err != nil {
		t.Fatal(err)
	}
	now := metav1.NewTime(time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC))
	pod.Name = "pod-01234"
	pod.Namespace = "bench-4"
	pod.UID = "11111111-2222-3333-4444-555555555555"
	pod.CreationTimestamp = now
	pod.ManagedFields = []metav1.ManagedFieldsEntry{
		{
			Manager:    "bench",
			Operation:  "Update",
			APIVersion: "v1",
			Time:       &now,
			FieldsType: "FieldsV1",
			FieldsV1:   &metav1.FieldsV1{Raw: owned},
		},
	}
	return pod
}

func benchSubject(b *testing.B) (*subject, []byte) {
	raw, err := podOf(b).Marshal()
	if err != nil {
		b.Fatal(err)
	}
	transcoder := &subject{name: "pod", goType: reflect.TypeFor[corev1.Pod]()}
	if transcoder.program, err = transcode.Compile(transcoder.goType); err != nil {
		b.Fatal(err)
	}
	return transcoder, raw
}

// BenchmarkPod measures the transcoding of a pod.
func BenchmarkPod(b *testing.B) {
	subject, raw := benchSubject(b)
	var buf []byte
	ok := true
	b.ReportAllocs()
	for b.Loop() {
		if buf, ok = subject.program.Append(buf[:0], raw, 123456, nil); !ok {
			b.Fatal("not transcoded")
		}
	}
	b.SetBytes(int64(len(buf)))
}

// BenchmarkSimilarPods transcodes the pods of a list, whose environment differs.
func BenchmarkSimilarPods(b *testing.B) {
	subject, _ := benchSubject(b)
	var raws [][]byte
	for i := range 100 {
		pod := podOf(b)
		pod.Name = fmt.Sprintf("pod-%05d", i)
		pod.UID = types.UID(fmt.Sprintf("11111111-2222-3333-4444-%012d", i))
		pod.ManagedFields[0].Time.Time = pod.ManagedFields[0].Time.Add(time.Duration(i/10) * time.Second)
		for j := range pod.Spec.Containers[0].Env {
			pod.Spec.Containers[0].Env[j].Value = fmt.Sprintf("value-%x-%x", 0x5fe30b1c<<20+i*j, 0x7ad4a70f<<24+i)
		}
		raw, err := pod.Marshal()
		if err != nil {
			b.Fatal(err)
		}
		raws = append(raws, raw)
	}
	var buf []byte
	var memo transcode.Memo
	i, ok := 0, true
	b.ReportAllocs()
	for b.Loop() {
		if buf, ok = subject.program.Append(buf[:0], raws[i%100], 123456, &memo); !ok {
			b.Fatal("not transcoded")
		}
		i++
	}
	b.SetBytes(int64(len(buf)))
}

// BenchmarkMetadata transcodes the metadata of a list of pods that exceeds the processor's caches.
func BenchmarkMetadata(b *testing.B) {
	program, err := transcode.Compile(reflect.TypeFor[metav1.PartialObjectMetadata]())
	if err != nil {
		b.Fatal(err)
	}
	var raws [][]byte
	pod := podOf(b)
	start := pod.ManagedFields[0].Time.Time
	for i := range 10000 {
		pod.Name = fmt.Sprintf("pod-%05d", i)
		pod.UID = types.UID(fmt.Sprintf("11111111-2222-3333-4444-%012d", i))
		pod.Labels["pod-template-hash"] = fmt.Sprintf("%x", i*0x5fe30b1c)
		at := metav1.NewTime(start.Add(time.Duration(i/500) * time.Second))
		pod.ManagedFields[0].Time = &at
		raw, err := pod.Marshal()
		if err != nil {
			b.Fatal(err)
		}
		raws = append(raws, raw)
	}
	var buf []byte
	var memo transcode.Memo
	i, ok := 0, true
	b.ReportAllocs()
	for b.Loop() {
		if buf, ok = program.Append(buf[:0], raws[i*7919%len(raws)], 123456, &memo); !ok {
			b.Fatal("not transcoded")
		}
		i++
	}
	b.SetBytes(int64(len(buf)))
}

// BenchmarkPodDecoded measures the output of BenchmarkPod by decoding and encoding the pod.
func BenchmarkPodDecoded(b *testing.B) {
	subject, raw := benchSubject(b)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buf, err = subject.decodeAndEncode(raw, 123456); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(buf)))
}

// BenchmarkCompile measures the compilation of the program of a type.
func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := transcode.Compile(reflect.TypeFor[corev1.Pod]()); err != nil {
			b.Fatal(err)
		}
	}
}
