package codec_test

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/randfill"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
)

// decodedOnly lists the kinds that are always decoded: they are stored as another type or as JSON,
// or no rules describe their defaults.
var decodedOnly = map[string]bool{
	"APIService":                       true,
	"CSIDriver":                        true,
	"CronJob":                          true,
	"CustomResourceDefinition":         true,
	"DaemonSet":                        true,
	"Event.events.k8s.io":              true,
	"HorizontalPodAutoscaler":          true,
	"IngressClass":                     true,
	"LimitRange":                       true,
	"MutatingAdmissionPolicy":          true,
	"MutatingAdmissionPolicyBinding":   true,
	"MutatingWebhookConfiguration":     true,
	"Namespace":                        true,
	"NetworkPolicy":                    true,
	"PriorityLevelConfiguration":       true,
	"ReplicationController":            true,
	"ResourceClaim":                    true,
	"ResourceClaimTemplate":            true,
	"RuntimeClass":                     true,
	"StatefulSet":                      true,
	"ValidatingAdmissionPolicy":        true,
	"ValidatingAdmissionPolicyBinding": true,
	"ValidatingWebhookConfiguration":   true,
}

// TestTranscodingMatchesDecoding checks that JSON that is transcoded from stored bytes equals the
// JSON of the decoded object, for random objects with and without defaults.
func TestTranscodingMatchesDecoding(t *testing.T) {
	const rounds = 40
	catalog, objectCodec := newCodec(t)
	for _, kind := range storedKinds(catalog) {
		t.Run(kind.GVK().String(), func(t *testing.T) {
			kindCodec := objectCodec.ForKind(kind)
			want := !decodedOnly[kind.Kind] && !decodedOnly[kind.Kind+"."+kind.Group]
			if got := kindCodec.Transcodes(); got != want {
				t.Fatalf("Transcodes() = %t, want %t, because decodedOnly lists the kind: %t", got, want, !want)
			}
			transcoded := 0
			for seed := range int64(rounds) {
				obj := kind.New().(registry.Object)
				randomObjects(seed).NumElements(0, 2).NilChance(0.2 + 0.2*float64(seed%4)).Funcs(randomServices()...).Fill(obj)
				for _, defaulted := range []bool{false, true} {
					if defaulted && kind.Default != nil {
						kind.Default(obj)
					}
					if defaulted && kind.AfterDecode != nil {
						kind.AfterDecode(obj)
					}
					value, err := kindCodec.EncodeStored(obj)
					if err != nil {
						t.Fatal(err)
					}
					if checkTranscoding(t, kindCodec, codec.Item{Stored: value, Revision: 42}) && defaulted {
						transcoded++
					}
				}
			}
			// Not all objects are transcoded: random volumes with several sources lack some defaults.
			if kindCodec.Transcodes() && transcoded < rounds/4 {
				t.Errorf("%d of %d objects with defaults were transcoded, want at least %d", transcoded, rounds, rounds/4)
			}
		})
	}
}

// randomServices returns fillers for fields on which the defaults of services and subjects depend.
func randomServices() []any {
	return []any{
		func(s *rbacv1.Subject, c randfill.Continue) {
			c.FillNoCustom(s)
			s.Kind = []string{rbacv1.GroupKind, rbacv1.UserKind, rbacv1.ServiceAccountKind}[c.Intn(3)]
			s.APIGroup = []string{"", rbacv1.GroupName}[c.Intn(2)]
		},
		func(s *corev1.ServiceType, c randfill.Continue) {
			*s = []corev1.ServiceType{
				corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeExternalName,
				corev1.ServiceTypeLoadBalancer, "",
			}[c.Intn(5)]
		},
		func(s *corev1.ServiceAffinity, c randfill.Continue) {
			*s = []corev1.ServiceAffinity{
				corev1.ServiceAffinityNone, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP, "",
			}[c.Intn(4)]
		},
	}
}

// checkTranscoding checks that all JSON forms of a stored value equal those of the decoded object. It
// reports whether the value was transcoded.
func checkTranscoding(t *testing.T, kindCodec *codec.KindCodec, stored codec.Item) (transcoded bool) {
	t.Helper()
	obj, err := kindCodec.DecodeItem(t.Context(), stored)
	if err != nil {
		t.Fatal(err)
	}
	want, err := kindCodec.FrameOf(codec.Modified, obj)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual := func(form string, got, want []byte) {
		t.Helper()
		if bytes.Equal(got, want) {
			return
		}
		difference := 0
		for difference < min(len(got), len(want)) && got[difference] == want[difference] {
			difference++
		}
		from := max(0, difference-80) // shows what precedes the difference
		t.Fatalf("%s differs at byte %d: from byte %d on, got\n%.300s\nwant\n%.300s", form, difference, from, got[from:], want[from:])
	}
	frame, err := kindCodec.JSONFrame(codec.Modified, stored)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual("watch frame", frame, want)
	var memo codec.Memo
	prefix := []byte{'x'} // contents of the buffer, which appending must keep
	item, ok := kindCodec.AppendStoredItem(prefix, stored, &memo)
	if !ok {
		requireEqual("buffer after a value that is not transcoded", item, prefix)
		return false
	}
	requireEqual("list item", item, kindCodec.AppendItem(prefix, want, codec.Modified))
	object, _ := kindCodec.AppendStored(prefix, stored, &memo)
	requireEqual("object", object[len(prefix):], want.Object(codec.Modified))
	return true
}

// TestMetadataTranscodingMatchesDecoding checks that the metadata-only form of each kind is the
// same whether it is transcoded or decoded.
func TestMetadataTranscodingMatchesDecoding(t *testing.T) {
	catalog, c := newCodec(t)
	for _, kind := range storedKinds(catalog) {
		kindCodec := c.ForKind(kind)
		obj := kind.New().(registry.Object)
		randomObjects(1).NilChance(0).Fill(obj)
		value, err := kindCodec.EncodeStored(obj)
		if err != nil {
			t.Fatal(err)
		}
		item := codec.Item{Stored: value, Revision: 42}
		frame, err := kindCodec.PartialFrame(codec.Added, "v1", item)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := kindCodec.AppendPartial(nil, "v1", item, nil)
		if ok == kind.Stored.JSON {
			t.Errorf("%s: metadata was transcoded: %t, want %t", kind.Kind, ok, !kind.Stored.JSON)
		}
		if ok && !bytes.Equal(got, frame.Object(codec.Added)) {
			t.Errorf("%s: transcoded metadata is\n%s\nwant\n%s", kind.Kind, got, frame.Object(codec.Added))
		}
		// Other versions are decoded. Their frames differ only in the version.
		other, err := kindCodec.PartialFrame(codec.Added, "v1beta1", item)
		if err != nil {
			t.Fatal(err)
		}
		if want := bytes.Replace(other, []byte("/v1beta1"), []byte("/v1"), 1); !bytes.Equal(frame, want) {
			t.Errorf("%s: frame of v1 is\n%s\nwant that of v1beta1 with the version replaced\n%s", kind.Kind, frame, want)
		}
	}
}

// TestCachedPositionsGiveSameEncoding checks that the encoding is the same whether
// positions are searched or taken from an earlier call.
func TestCachedPositionsGiveSameEncoding(t *testing.T) {
	catalog, objectCodec := newCodec(t)
	for i, kind := range storedKinds(catalog) {
		for _, annotation := range []int{0, 100, 1 << 12, 1 << 17, 1 << 21} {
			if annotation > 1<<12 && i%24 > 0 { // large values are slow, so check a few kinds
				continue
			}
			obj := sample(t, kind, "a")
			obj.SetAnnotations(map[string]string{"large": strings.Repeat("x", annotation)})
			obj.SetSelfLink(strings.Repeat("s", annotation%1000)) // precedes the resource version
			value, err := objectCodec.ForKind(kind).EncodeStored(obj)
			if err != nil {
				t.Fatal(err)
			}
			checkPositions(t, objectCodec.ForKind(kind), value)
		}
	}
}

// checkPositions compares the protobuf forms of a value with and without cached positions.
func checkPositions(t *testing.T, kindCodec *codec.KindCodec, value []byte) {
	t.Helper()
	var positions atomic.Uint64
	for _, revision := range []int64{0, 7, 1 << 60} {
		plain := codec.Item{Stored: value, Revision: revision}
		for form, encode := range map[string]func(codec.Item) ([]byte, error){
			"object":   func(it codec.Item) ([]byte, error) { return kindCodec.AppendProto(nil, it) },
			"event":    func(it codec.Item) ([]byte, error) { return kindCodec.AppendProtoFrame(nil, codec.Added, it) },
			"message":  kindCodec.Message,
			"metadata": func(it codec.Item) ([]byte, error) { return kindCodec.AppendPartialProto(nil, "v1", it) },
			"item":     func(it codec.Item) ([]byte, error) { return kindCodec.ProtoItems(false).Append(nil, it) },
			"its metadata": func(it codec.Item) ([]byte, error) {
				return kindCodec.ProtoItems(true).Append(nil, it)
			},
		} {
			want, wantErr := encode(plain)
			for range 2 {
				it := plain
				it.Positions = &positions
				if got, err := encode(it); !bytes.Equal(got, want) || (err == nil) != (wantErr == nil) {
					t.Fatalf("%s at %d: got %x, %v, want %x, %v", form, revision, got, err, want, wantErr)
				}
			}
		}
	}
}
