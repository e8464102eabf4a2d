package codec_test

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// TestPartly: what is asked for of an object is as in the whole object, the rest is
// not there.
func TestPartly(t *testing.T) {
	catalog, c := newCodec(t)
	kc := c.Of(catalog.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")))
	partly, err := kc.Partly("metadata.name", "metadata.labels", "metadata.ownerReferences.uid", "data")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range int64(200) {
		obj := kc.Decl.New().(registry.Object)
		randomObjects(seed).NumElements(0, 9).Fill(obj)
		value, err := kc.EncodeStored(obj)
		if err != nil {
			t.Fatal(err)
		}
		got, err := partly(codec.Item{Stored: value, Revision: 42})
		if err != nil {
			t.Fatal(err)
		}
		whole := obj.(*corev1.ConfigMap)
		want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: whole.Name, Labels: whole.Labels, ResourceVersion: "42"}, Data: whole.Data}
		for _, o := range whole.OwnerReferences {
			want.OwnerReferences = append(want.OwnerReferences, metav1.OwnerReference{UID: o.UID})
		}
		if !apiequality.Semantic.DeepEqual(got, want) {
			t.Fatalf("read are\n%+v, want\n%+v", got, want)
		}
		if len(value) > 20 {
			_, _ = partly(codec.Item{Stored: value[:len(value)-15], Revision: 42}) // does not panic
		}
	}
	for _, path := range []string{"nothing", "metadata.nothing", "data.x", "kind"} {
		if _, err := kc.Partly(path); err == nil {
			t.Errorf("%s can be read", path)
		}
	}
}

// TestCellsOfParts: the cells of a table are the same when only what they say they
// read is decoded.
func TestCellsOfParts(t *testing.T) {
	catalog, c := newCodec(t)
	seen := false
	for _, k := range stored(catalog) {
		if k.Shown.Reads == nil {
			continue
		}
		seen = true
		all := *k
		all.Shown.Reads = nil
		whole, err := c.Custom(&all)
		if err != nil {
			t.Fatal(err)
		}
		for seed := range int64(300) {
			obj := k.New().(registry.Object)
			randomObjects(seed).NumElements(0, 3).NilChance(0.2 + 0.2*float64(seed%4)).Fill(obj)
			value, err := whole.EncodeStored(obj)
			if err != nil {
				t.Fatal(err)
			}
			it := codec.Item{Stored: value, Revision: 42}
			want, err := whole.TableCells(it)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := c.Of(k).TableCells(it); err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%s: the cells are %q, want %q (%v)", k.Kind, got, want, err)
			}
		}
	}
	if !seen {
		t.Error("no kind says what its columns read")
	}
}

// BenchmarkPartly reads what the node authorizer does of a pod.
func BenchmarkPartly(b *testing.B) {
	catalog, c := newCodec(b)
	kc := c.Of(catalog.Resource(corev1.SchemeGroupVersion.WithResource("pods")))
	obj := kc.Decl.New().(registry.Object)
	randomObjects(3).NumElements(2, 4).Fill(obj)
	value, err := kc.EncodeStored(obj)
	if err != nil {
		b.Fatal(err)
	}
	partly, err := kc.Partly("metadata.name", "metadata.namespace", "spec.nodeName", "spec.containers.env.valueFrom", "spec.volumes")
	if err != nil {
		b.Fatal(err)
	}
	it := codec.Item{Stored: value, Revision: 42}
	b.Run("partly", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := partly(it); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := kc.DecodeStored(value, 42); err != nil {
				b.Fatal(err)
			}
		}
	})
}
