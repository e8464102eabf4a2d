package codec_test

import (
	"bytes"
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
	"LimitRange": true, "Namespace": true, "ReplicationController": true, "DaemonSet": true, "StatefulSet": true, "CronJob": true,
	"APIService": true, "CustomResourceDefinition": true, "HorizontalPodAutoscaler": true, "IngressClass": true, "NetworkPolicy": true,
	"CSIDriver": true, "RuntimeClass": true, "PriorityLevelConfiguration": true,
	"MutatingWebhookConfiguration": true, "ValidatingWebhookConfiguration": true,
	"MutatingAdmissionPolicy": true, "MutatingAdmissionPolicyBinding": true,
	"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
	"Event.events.k8s.io": true, "ResourceClaim": true, "ResourceClaimTemplate": true,
}

// TestTranscodingMatchesDecoding compares JSON from stored bytes with that of the decoded object,
// for objects with and without the defaults of this server.
func TestTranscodingMatchesDecoding(t *testing.T) {
	const rounds = 40
	catalog, c := newCodec(t)
	for _, k := range storedKinds(catalog) {
		t.Run(k.GVK().String(), func(t *testing.T) {
			kc := c.ForKind(k)
			if kc.Transcodes() == (decodedOnly[k.Kind] || decodedOnly[k.Kind+"."+k.Group]) {
				t.Fatalf("Transcodes: got %v, want the opposite", kc.Transcodes())
			}
			transcoded := 0
			for seed := range int64(rounds) {
				obj := k.New().(registry.Object)
				randomObjects(seed).NumElements(0, 2).NilChance(0.2 + 0.2*float64(seed%4)).Funcs(randomServices()...).Fill(obj)
				for _, defaulted := range []bool{false, true} {
					if defaulted && k.Default != nil {
						k.Default(obj)
					}
					if defaulted && k.AfterDecode != nil {
						k.AfterDecode(obj)
					}
					value, err := kc.EncodeStored(obj)
					if err != nil {
						t.Fatal(err)
					}
					if matchesDecoded(t, kc, codec.Item{Stored: value, Revision: 42}) && defaulted {
						transcoded++
					}
				}
			}
			// Random volumes with several sources do not have all defaults.
			if kc.Transcodes() && transcoded < rounds/4 {
				t.Errorf("%d of %d objects were transcoded, want at least a quarter", transcoded, rounds)
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

// matchesDecoded compares all JSON forms of a stored value with those of the decoded object. It
// reports whether the value was transcoded.
func matchesDecoded(t *testing.T, kc *codec.KindCodec, it codec.Item) bool {
	t.Helper()
	obj, err := kc.DecodeItem(t.Context(), it)
	if err != nil {
		t.Fatal(err)
	}
	want, err := kc.FrameOf(codec.Modified, obj)
	if err != nil {
		t.Fatal(err)
	}
	checkEqual := func(form string, got, want []byte) {
		t.Helper()
		if !bytes.Equal(got, want) {
			at := 0
			for at < min(len(got), len(want)) && got[at] == want[at] {
				at++
			}
			at = max(0, at-80)
			t.Fatalf("%s: got\n%.300s, want\n%.300s", form, got[min(at, len(got)):], want[min(at, len(want)):])
		}
	}
	frame, err := kc.JSONFrame(codec.Modified, it)
	if err != nil {
		t.Fatal(err)
	}
	checkEqual("frame", frame, want)
	var memo codec.Memo
	item, ok := kc.AppendStoredItem([]byte("x"), it, &memo)
	if !ok {
		checkEqual("buffer", item, []byte("x"))
		return false
	}
	checkEqual("item", item, kc.AppendItem([]byte("x"), want, codec.Modified))
	whole, _ := kc.AppendStored([]byte("x"), it, &memo)
	checkEqual("object", whole[1:], want.Object(codec.Modified))
	return true
}

// TestMetadataTranscodingMatchesDecoding checks that the metadata-only form of each kind is the
// same whether it is transcoded or decoded.
func TestMetadataTranscodingMatchesDecoding(t *testing.T) {
	catalog, c := newCodec(t)
	for _, k := range storedKinds(catalog) {
		kc := c.ForKind(k)
		obj := k.New().(registry.Object)
		randomObjects(1).NilChance(0).Fill(obj)
		value, err := kc.EncodeStored(obj)
		if err != nil {
			t.Fatal(err)
		}
		it := codec.Item{Stored: value, Revision: 42}
		frame, err := kc.PartialFrame(codec.Added, "v1", it)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := kc.AppendPartial(nil, "v1", it, nil)
		if ok == k.Stored.JSON {
			t.Errorf("%s: got transcoded: %t, want %t", k.Kind, ok, !k.Stored.JSON)
		}
		if ok && !bytes.Equal(got, frame.Object(codec.Added)) {
			t.Errorf("%s: got metadata\n%s, want\n%s", k.Kind, got, frame)
		}
		// Other versions are decoded. Their frames differ only in the version.
		other, err := kc.PartialFrame(codec.Added, "v1beta1", it)
		if err != nil {
			t.Fatal(err)
		}
		if want := bytes.Replace(other, []byte("/v1beta1"), []byte("/v1"), 1); !bytes.Equal(frame, want) {
			t.Errorf("%s: got frame\n%s, want\n%s", k.Kind, frame, want)
		}
	}
}
