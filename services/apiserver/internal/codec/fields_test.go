package codec_test

import (
	"bytes"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// TestFieldsDecoderDecodesRequestedFields checks that the requested fields equal the same fields of
// the whole object, and that the object has no other fields.
func TestFieldsDecoderDecodesRequestedFields(t *testing.T) {
	catalog, c := newCodec(t)
	kindCodec := c.ForKind(catalog.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")))
	decodeFields, err := kindCodec.FieldsDecoder("metadata.name", "metadata.labels", "metadata.ownerReferences.uid", "data")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range int64(200) {
		obj := kindCodec.Kind.New().(registry.Object)
		randomObjects(seed).NumElements(0, 9).Fill(obj)
		value, err := kindCodec.EncodeStored(obj)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeFields(codec.Item{Stored: value, Revision: 42})
		if err != nil {
			t.Fatal(err)
		}
		whole := obj.(*corev1.ConfigMap)
		want := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: whole.Name, Labels: whole.Labels, ResourceVersion: "42"},
			Data:       whole.Data,
		}
		for _, owner := range whole.OwnerReferences {
			want.OwnerReferences = append(want.OwnerReferences, metav1.OwnerReference{UID: owner.UID})
		}
		if !apiequality.Semantic.DeepEqual(got, want) {
			t.Fatalf("seed %d: got\n%+v, want\n%+v", seed, got, want)
		}
		if len(value) > 20 {
			_, _ = decodeFields(codec.Item{Stored: value[:len(value)-15], Revision: 42}) // must not panic
		}
	}
	for _, path := range []string{"nothing", "metadata.nothing", "data.x", "kind"} {
		if _, err := kindCodec.FieldsDecoder(path); err == nil {
			t.Errorf("FieldsDecoder(%s): got no error, want one", path)
		}
	}
}

// TestTableCellsNeedOnlyColumnFields checks that decoding only the declared fields does not change table
// cells.
func TestTableCellsNeedOnlyColumnFields(t *testing.T) {
	catalog, objectCodec := newCodec(t)
	declared := false // a kind declares ColumnFields
	for _, kind := range storedKinds(catalog) {
		if kind.Presentation.ColumnFields == nil {
			continue
		}
		declared = true
		undeclared := *kind
		undeclared.Presentation.ColumnFields = nil
		whole, err := objectCodec.NewKindCodec(&undeclared)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range int64(300) {
			obj := kind.New().(registry.Object)
			randomObjects(seed).NumElements(0, 3).NilChance(0.2 + 0.2*float64(seed%4)).Fill(obj)
			value, err := whole.EncodeStored(obj)
			if err != nil {
				t.Fatal(err)
			}
			item := codec.Item{Stored: value, Revision: 42}
			want, err := whole.TableCells(item)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := objectCodec.ForKind(kind).TableCells(item); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s: got cells %q, want %q (%v)", kind.Kind, got, want, err)
			}
		}
	}
	if !declared {
		t.Error("no kind declares the fields of its columns")
	}
}

// BenchmarkFieldsDecoder reads the fields of a pod that the node authorizer needs.
func BenchmarkFieldsDecoder(b *testing.B) {
	catalog, c := newCodec(b)
	kindCodec := c.ForKind(catalog.Resource(corev1.SchemeGroupVersion.WithResource("pods")))
	obj := kindCodec.Kind.New().(registry.Object)
	randomObjects(3).NumElements(2, 4).Fill(obj)
	value, err := kindCodec.EncodeStored(obj)
	if err != nil {
		b.Fatal(err)
	}
	decodeFields, err := kindCodec.FieldsDecoder(
		"metadata.name",
		"metadata.namespace",
		"spec.nodeName",
		"spec.containers.env.valueFrom",
		"spec.volumes",
	)
	if err != nil {
		b.Fatal(err)
	}
	item := codec.Item{Stored: value, Revision: 42}
	b.Run("fields", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := decodeFields(item); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := kindCodec.DecodeStored(value, 42); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkCells computes the table cells of a running pod.
func BenchmarkCells(b *testing.B) {
	catalog, c := newCodec(b)
	kindCodec := c.ForKind(catalog.Resource(corev1.SchemeGroupVersion.WithResource("pods")))
	value, err := kindCodec.EncodeStored(runningPod())
	if err != nil {
		b.Fatal(err)
	}
	item := codec.Item{Stored: value, Revision: 42}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := kindCodec.TableCells(item); err != nil {
			b.Fatal(err)
		}
	}
}

// runningPod returns a pod of usual size with its status.
func runningPod() *corev1.Pod {
	now := metav1.NewTime(time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC))
	started := true
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:              "pod-01234",
			Namespace:         "bench-4",
			UID:               "11111111-2222-3333-4444-555555555555",
			CreationTimestamp: now,
		},
	}
	pod.Spec.NodeName = "node-17"
	pod.Status = corev1.PodStatus{
		Phase:     corev1.PodRunning,
		HostIP:    "10.0.0.17",
		PodIP:     "10.1.17.4",
		PodIPs:    []corev1.PodIP{{IP: "10.1.17.4"}},
		StartTime: &now,
		QOSClass:  corev1.PodQOSBurstable,
	}
	for _, name := range []string{"main", "sidecar"} {
		image := "registry.example/team/" + name + ":v1.12.3"
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name:  name,
			Image: image,
			Args:  []string{"--listen=:8080", "--log=info", "--workers=4"},
		})
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{
			Name:        name,
			Image:       image,
			Ready:       true,
			Started:     &started,
			State:       corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
			ImageID:     "registry.example/team@sha256:6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b",
			ContainerID: "containerd://d4735e3a265e16eee03f59718b9b5d03019c07d8b6c51f90da3a666eec13ab35",
		})
	}
	for _, conditionType := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
		corev1.PodScheduled,
	} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type:               conditionType,
			Status:             corev1.ConditionTrue,
			LastTransitionTime: now,
		})
	}
	return pod
}
