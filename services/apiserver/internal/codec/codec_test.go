package codec_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// newCodec returns the built-in kinds and their codec.
func newCodec(t testing.TB) (*registry.Catalog, *codec.Codec) {
	t.Helper()
	catalog, err := builtin.DefaultCatalog()
	if err != nil {
		t.Fatal(err)
	}
	objectCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	return catalog, objectCodec
}

// storedKinds returns the kinds that have a stored form.
func storedKinds(catalog *registry.Catalog) []*registry.Kind {
	var out []*registry.Kind
	for _, kind := range catalog.Kinds() {
		if !kind.Virtual {
			out = append(out, kind)
		}
	}
	return out
}

// sample returns an object of a kind with all metadata that the codec handles.
func sample(t testing.TB, kind *registry.Kind, name string) registry.Object {
	t.Helper()
	object, ok := kind.New().(registry.Object)
	if !ok {
		t.Fatalf("%s: %T is not an object", kind.GVK(), kind.New())
	}
	object.SetName(name)
	if kind.Namespaced {
		object.SetNamespace("ns-1")
	}
	object.SetUID("11111111-2222-3333-4444-555555555555")
	object.SetLabels(map[string]string{"app": "web", "empty": ""})
	object.SetAnnotations(map[string]string{"a/b": "<&>"})
	object.SetFinalizers([]string{"example.com/hold"})
	object.SetCreationTimestamp(metav1.Unix(1700000000, 0))
	return object
}

// TestEveryKindKeepsItsMetadataInEveryForm encodes each stored kind in the stored form and all
// response forms.
func TestEveryKindKeepsItsMetadataInEveryForm(t *testing.T) {
	catalog, objectCodec := newCodec(t)
	for _, kind := range storedKinds(catalog) {
		t.Run(kind.GVK().String(), func(t *testing.T) {
			kindCodec := objectCodec.ForKind(kind)
			obj := sample(t, kind, "a")
			if kind.Default != nil {
				kind.Default(obj)
			}
			value, err := kindCodec.EncodeStored(obj)
			if err != nil {
				t.Fatal(err)
			}
			stored := codec.Item{Stored: value, Revision: 42}
			want, err := kindCodec.DecodeStored(value, 42)
			if err != nil {
				t.Fatal(err)
			}
			if want.GetName() != "a" || want.GetUID() != obj.GetUID() ||
				want.GetResourceVersion() != "42" || want.GetAnnotations()["a/b"] != "<&>" ||
				want.GetLabels()["app"] != "web" {
				t.Errorf("object after storing: got %+v, want the metadata of the original at resourceVersion 42", want)
			}

			proto, err := kindCodec.AppendProto(nil, stored)
			if err != nil {
				t.Fatal(err)
			}
			checkEqual(t, "protobuf", want, decode(t, objectCodec, api.MediaProtobuf, proto, kind.GVK()))

			for _, eventType := range []codec.EventType{codec.Added, codec.Modified, codec.Deleted} {
				frame, err := kindCodec.JSONFrame(eventType, stored)
				if err != nil {
					t.Fatal(err)
				}
				checkEqual(t, "JSON", want, decode(t, objectCodec, api.MediaJSON, frame.Object(eventType), kind.GVK()))
				checkEvent(t, frame, eventType.String(), kind)
				for _, to := range []codec.EventType{codec.Added, codec.Modified, codec.Deleted} {
					checkEvent(t, frame.AppendWithEventType(nil, eventType, to), to.String(), kind)
				}
				item := kindCodec.AppendItem(nil, frame, eventType)
				var members map[string]any
				if err := json.Unmarshal(item, &members); err != nil {
					t.Fatalf("item %s: %v", item, err)
				}
				if _, has := members["kind"]; has {
					t.Errorf("got list item %s, want no kind", item)
				}
			}

			attrs, err := kindCodec.Attributes(value)
			if err != nil {
				t.Fatal(err)
			}
			if attrs.Name != "a" || attrs.Namespace != obj.GetNamespace() || len(attrs.Labels) != len(obj.GetLabels()) {
				t.Errorf("attributes = %+v, want name a, namespace %q and %d labels", attrs, obj.GetNamespace(), len(obj.GetLabels()))
			}
			partial, err := kindCodec.PartialFrame(codec.Added, "v1", stored)
			if err != nil {
				t.Fatal(err)
			}
			var metadata metav1.PartialObjectMetadata
			if err := json.Unmarshal(partial.Object(codec.Added), &metadata); err != nil {
				t.Fatal(err)
			}
			if metadata.Kind != "PartialObjectMetadata" || metadata.APIVersion != "meta.k8s.io/v1" ||
				metadata.ResourceVersion != "42" || metadata.Labels["app"] != "web" {
				t.Errorf("metadata = %+v, want PartialObjectMetadata at resourceVersion 42 with label app=web", metadata)
			}
			checkRow(t, kindCodec, stored)
		})
	}
}

// checkEvent checks the type, kind and line break of a watch frame.
func checkEvent(t *testing.T, frame []byte, typ string, kind *registry.Kind) {
	t.Helper()
	var event struct {
		Type   string
		Object metav1.PartialObjectMetadata
	}
	if err := json.Unmarshal(frame, &event); err != nil {
		t.Fatalf("frame %s: %v", frame, err)
	}
	if event.Type != typ || event.Object.Kind != kind.Kind || event.Object.APIVersion != kind.GroupVersion().String() ||
		!bytes.HasSuffix(frame, []byte("\n")) || bytes.Count(frame, []byte("\n")) != 1 {
		t.Errorf("frame = %s, want one line of type %s with a %s", frame, typ, kind.Kind)
	}
}

// checkRow checks that an object has a table row with the right number of cells and the right age.
func checkRow(t *testing.T, kindCodec *codec.KindCodec, item codec.Item) {
	t.Helper()
	row, err := kindCodec.TableCells(item)
	if err != nil {
		t.Fatal(err)
	}
	encoded := kindCodec.AppendTableHead(nil, "v1", metav1.ListMeta{ResourceVersion: "42"}, true)
	if encoded, err = row.Append(encoded, codec.NewAgeFormatter(time.Unix(1700000000+90, 0))); err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(append(encoded, "}"+codec.ListTail...), &table); err != nil {
		t.Fatalf("%s: %v", encoded, err)
	}
	cells := max(len(table.ColumnDefinitions), len(kindCodec.Kind.Presentation.Columns))
	if len(table.Rows) != 1 || len(table.Rows[0].Cells) != cells {
		t.Fatalf("table = %+v, want one row of %d cells", table, cells)
	}
	for i, column := range table.ColumnDefinitions {
		if column.Name == "Age" && table.Rows[0].Cells[i] != "90s" {
			t.Errorf("got age %v, want 90s", table.Rows[0].Cells[i])
		}
	}
}

// decode decodes a body that must have the expected type and no unknown fields.
func decode(t *testing.T, objectCodec *codec.Codec, media string, body []byte, gvk schema.GroupVersionKind) registry.Object {
	t.Helper()
	decoded, err := objectCodec.Decode(media, body, gvk, nil, true)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if decoded.GVK != gvk || len(decoded.Unknown) > 0 {
		t.Errorf("decoded %v with unknown fields %v, want %v without any", decoded.GVK, decoded.Unknown, gvk)
	}
	return decoded.Object.(registry.Object)
}

// checkEqual fails the test if two objects differ. form names the encoding.
func checkEqual(t *testing.T, form string, want, got runtime.Object) {
	t.Helper()
	if !apiequality.Semantic.DeepEqual(want, got) {
		wantJSON, _ := json.Marshal(want)
		gotJSON, _ := json.Marshal(got)
		t.Errorf("%s: want %s\n got %s", form, wantJSON, gotJSON)
	}
}

// TestAssembledListsDecode checks that the library decodes lists that are assembled from heads, items and
// tails, and that the announced sizes of items are right.
func TestAssembledListsDecode(t *testing.T) {
	catalog, objectCodec := newCodec(t)
	for _, objectKind := range storedKinds(catalog) {
		kindCodec := objectCodec.ForKind(objectKind)
		var items []codec.Item
		var messages [][]byte
		encoder := kindCodec.ProtoItems(false)
		size := 0
		for i := range 3 {
			value, err := kindCodec.EncodeStored(sample(t, objectKind, fmt.Sprint("o", i)))
			if err != nil {
				t.Fatal(err)
			}
			item := codec.Item{Stored: value, Revision: int64(7 + i)}
			message, err := kindCodec.Message(item)
			if err != nil {
				t.Fatal(err)
			}
			n, err := encoder.Size(item)
			if err != nil || n != codec.ProtoMessageSize(len(message)) {
				t.Fatalf("%s: got item size %d, %v, want %d for its message", objectKind.GVK(), n, err, codec.ProtoMessageSize(len(message)))
			}
			size += n
			items = append(items, item)
			messages = append(messages, message)
		}
		remaining := int64(5)
		listMeta := metav1.ListMeta{ResourceVersion: "99", Continue: "x", RemainingItemCount: &remaining}
		kind := objectKind.Kind + "List"
		version := objectKind.GroupVersion().String()
		proto, err := codec.AppendProtoListHead(nil, kind, version, listMeta, size)
		if err != nil {
			t.Fatal(err)
		}
		data := codec.AppendListHead(nil, kind, version, listMeta)
		for i, item := range items {
			before := len(proto)
			if proto, err = encoder.Append(proto, item); err != nil {
				t.Fatal(err)
			}
			if want := kindCodec.AppendProtoMessage(nil, messages[i], false); !bytes.Equal(proto[before:], want) {
				t.Errorf("%s: got item %x, want %x", objectKind.GVK(), proto[before:], want)
			}
			frame, err := kindCodec.JSONFrame(codec.Modified, item)
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				data = append(data, ',')
			}
			data = kindCodec.AppendItem(data, frame, codec.Modified)
		}
		proto = append(proto, codec.ProtoListTail()...)
		data = append(data, codec.ListTail...)
		gvk := objectKind.GroupVersion().WithKind(kind)
		for media, b := range map[string][]byte{api.MediaProtobuf: proto, api.MediaJSON: data} {
			decoded, err := objectCodec.Decode(media, b, gvk, objectKind.NewList(), false)
			if err != nil {
				t.Fatalf("%s %s: %v", objectKind.GVK(), media, err)
			}
			list, err := meta.ListAccessor(decoded.Object)
			if err != nil {
				t.Fatal(err)
			}
			if list.GetResourceVersion() != "99" || list.GetContinue() != "x" || *list.GetRemainingItemCount() != 5 || meta.LenList(decoded.Object) != 3 {
				t.Errorf("%s %s: got %+v, want 3 items at version 99, continue x, 5 remaining", objectKind.GVK(), media, decoded.Object)
			}
			i := 0
			_ = meta.EachListItem(decoded.Object, func(o runtime.Object) error {
				listed := o.(metav1.Object)
				if listed.GetName() != fmt.Sprint("o", i) || listed.GetResourceVersion() != fmt.Sprint(7+i) {
					t.Errorf("%s %s: item %d: got %s at %s, want o%d at %d", objectKind.GVK(), media, i, listed.GetName(), listed.GetResourceVersion(), i, 7+i)
				}
				i++
				return nil
			})
		}
	}
}

// TestStoredFormIsProtobufOrJSON checks that stored values are protobuf in its envelope, or JSON for the groups
// that Kubernetes stores as JSON, and that both contain the stored version.
func TestStoredFormIsProtobufOrJSON(t *testing.T) {
	catalog, c := newCodec(t)
	for _, kind := range storedKinds(catalog) {
		value, err := c.ForKind(kind).EncodeStored(sample(t, kind, "a"))
		if err != nil {
			t.Fatal(err)
		}
		wantJSON := kind.Group == "apiextensions.k8s.io" || kind.Group == "apiregistration.k8s.io"
		if bytes.HasPrefix(value, []byte("k8s\x00")) == wantJSON {
			t.Errorf("%s: got stored value %.40q, want JSON: %t", kind.GVK(), value, wantJSON)
		}
		if wantJSON {
			var typeMeta metav1.TypeMeta
			if err := json.Unmarshal(value, &typeMeta); err != nil || typeMeta.Kind != kind.Kind ||
				typeMeta.APIVersion != kind.StoredGVK().GroupVersion().String() {
				t.Errorf("%s: got type %+v, %v, want that of the stored version, %s", kind.GVK(), typeMeta, err, kind.StoredGVK())
			}
		}
		if bytes.Contains(value, []byte("resourceVersion")) {
			t.Errorf("%s: got stored value %.300q, want no resourceVersion", kind.GVK(), value)
		}
	}
}

// TestRepeatedMessagesAreMerged checks that selectable fields are read from a repeated message as
// the decoder reads them: later values replace earlier ones.
func TestRepeatedMessagesAreMerged(t *testing.T) {
	catalog, c := newCodec(t)
	kindCodec := c.ForKind(catalog.Resource(corev1.SchemeGroupVersion.WithResource("pods")))
	first := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec:       corev1.PodSpec{NodeName: "node-1", HostNetwork: true},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	second := &corev1.Pod{
		Spec:   corev1.PodSpec{NodeName: "node-7", RestartPolicy: corev1.RestartPolicyNever},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, PodIP: "10.0.0.1"},
	}
	envelope := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	for _, part := range []*corev1.Pod{first, second} {
		data, err := part.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		envelope.Raw = append(envelope.Raw, data...)
	}
	data, err := envelope.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	attrs, err := kindCodec.Attributes(append([]byte("k8s\x00"), data...))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, field := range attrs.Fields {
		got[field.Key] = field.Value
	}
	for label, wantValue := range map[string]string{
		"spec.nodeName": "node-7", "spec.restartPolicy": "Never", "spec.hostNetwork": "false",
		"status.phase": "Failed", "status.podIP": "10.0.0.1",
	} {
		if got[label] != wantValue {
			t.Errorf("%s: got %q, want %q", label, got[label], wantValue)
		}
	}
}

// TestSelectableFieldsAreReadFromTheEncodedForm checks that the fields of a pod are the same
// whether it is stored as protobuf or JSON.
func TestSelectableFieldsAreReadFromTheEncodedForm(t *testing.T) {
	catalog, c := newCodec(t)
	kindCodec := c.ForKind(catalog.Resource(corev1.SchemeGroupVersion.WithResource("pods")))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n"},
		Spec:       corev1.PodSpec{NodeName: "node-7", RestartPolicy: corev1.RestartPolicyNever},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	want := map[string]string{
		"spec.nodeName":      "node-7",
		"spec.restartPolicy": "Never",
		"status.phase":       "Running",
		"spec.schedulerName": "",
	}
	proto, err := kindCodec.EncodeStored(pod)
	if err != nil {
		t.Fatal(err)
	}
	pod.Kind = "Pod"
	pod.APIVersion = "v1"
	jsonText, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	for form, value := range map[string][]byte{"protobuf": proto, "JSON": jsonText} {
		attrs, err := kindCodec.Attributes(value)
		if err != nil {
			t.Fatalf("%s: %v", form, err)
		}
		got := map[string]string{}
		for _, field := range attrs.Fields {
			got[field.Key] = field.Value
		}
		for label, wantValue := range want {
			if g, ok := got[label]; !ok || g != wantValue {
				t.Errorf("%s: %s: got %q, want %q", form, label, g, wantValue)
			}
		}
	}
}

// TestCorruptStoredValuesAreErrors checks that decoding a corrupt stored value is an error and
// never panics.
func TestCorruptStoredValuesAreErrors(t *testing.T) {
	catalog, c := newCodec(t)
	kind := catalog.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	kindCodec := c.ForKind(kind)
	valid, err := kindCodec.EncodeStored(sample(t, kind, "a"))
	if err != nil {
		t.Fatal(err)
	}
	huge := append([]byte("k8s\x00\x12"), binary.AppendUvarint(nil, 1<<40)...)
	for name, b := range map[string][]byte{
		"empty": {}, "no envelope": []byte("hello"), "prefix alone": []byte("k8s\x00"), "a length beyond the end": huge,
		"cut in the middle": valid[:len(valid)/2], "JSON of a list": []byte("[]"), "a field number of zero": []byte("k8s\x00\x00\x00"),
	} {
		item := codec.Item{Stored: b, Revision: 1}
		_, decodeErr := kindCodec.DecodeStored(b, 1)
		_, protoErr := kindCodec.AppendProto(nil, item)
		_, jsonErr := kindCodec.JSONFrame(codec.Added, item)
		if protoErr == nil || (decodeErr == nil) != (jsonErr == nil) {
			t.Errorf("%s: got errors DecodeStored: %v, AppendProto: %v, JSONFrame: %v; want AppendProto to fail, and the others to agree",
				name, decodeErr, protoErr, jsonErr)
		}
	}
}

// FuzzStoredValue checks that no encoder panics on an arbitrary stored value, and that every row
// that is encoded can be appended.
func FuzzStoredValue(f *testing.F) {
	catalog, c := newCodec(f)
	kind := catalog.Resource(corev1.SchemeGroupVersion.WithResource("pods"))
	kindCodec := c.ForKind(kind)
	valid, err := kindCodec.EncodeStored(sample(f, kind, "a"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	f.Add([]byte("k8s\x00"))
	f.Add([]byte(`{"metadata":{"name":"a"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		item := codec.Item{Stored: data, Revision: 3}
		_, _ = kindCodec.Attributes(data)
		_, _ = kindCodec.Message(item)
		checkPositions(t, kindCodec, data)
		_, _ = kindCodec.PartialMessage(item)
		if row, err := kindCodec.TableCells(item); err == nil {
			if _, err := row.Append(nil, codec.NewAgeFormatter(time.Unix(1, 0))); err != nil {
				t.Errorf("row cannot be encoded: %v", err)
			}
		}
		_, _ = codec.Row(data).Append(nil, codec.NewAgeFormatter(time.Unix(1, 0)))
	})
}
