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

// decodedOnly are the kinds whose objects have to be decoded to be shown: they are
// stored as another type, or as JSON, or no rules tell what their defaults change.
var decodedOnly = map[string]bool{
	"LimitRange": true, "Namespace": true, "ReplicationController": true, "DaemonSet": true, "StatefulSet": true, "CronJob": true,
	"APIService": true, "CustomResourceDefinition": true, "HorizontalPodAutoscaler": true, "IngressClass": true, "NetworkPolicy": true,
	"CSIDriver": true, "RuntimeClass": true, "PriorityLevelConfiguration": true,
	"MutatingWebhookConfiguration": true, "ValidatingWebhookConfiguration": true,
	"MutatingAdmissionPolicy": true, "MutatingAdmissionPolicyBinding": true,
	"ValidatingAdmissionPolicy": true, "ValidatingAdmissionPolicyBinding": true,
	"Event.events.k8s.io": true, "ResourceClaim": true, "ResourceClaimTemplate": true,
}

// TestStoredObjectsAreWrittenAsDecoded compares what is made from stored bytes with
// what is made from the decoded object, for objects that this server stores and for
// those that an older one may have left.
func TestStoredObjectsAreWrittenAsDecoded(t *testing.T) {
	const rounds = 40
	catalog, c := newCodec(t)
	for _, k := range stored(catalog) {
		t.Run(k.GVK().String(), func(t *testing.T) {
			kc := c.Of(k)
			if kc.Transcodes() == (decodedOnly[k.Kind] || decodedOnly[k.Kind+"."+k.Group]) {
				t.Fatalf("transcodes: %v", kc.Transcodes())
			}
			written := 0
			for seed := range int64(rounds) {
				obj := k.New().(registry.Object)
				randomObjects(seed).NumElements(0, 2).NilChance(0.2 + 0.2*float64(seed%4)).Funcs(randomServices()...).Fill(obj)
				for _, filled := range []bool{false, true} {
					if filled && k.Default != nil {
						k.Default(obj)
					}
					if filled && k.Read != nil {
						k.Read(obj)
					}
					value, err := kc.EncodeStored(obj)
					if err != nil {
						t.Fatal(err)
					}
					if asDecoded(t, kc, codec.Item{Stored: value, Revision: 42}) && filled {
						written++
					}
				}
			}
			// A volume that is of several kinds at once is not filled in all of them.
			if kc.Transcodes() && written < rounds/4 {
				t.Errorf("%d of %d objects are written from their stored form", written, rounds)
			}
		})
	}
}

// randomServices fill fields on which defaults of services, and of subjects, depend.
func randomServices() []any {
	return []any{
		func(s *rbacv1.Subject, c randfill.Continue) {
			c.FillNoCustom(s)
			s.Kind = []string{rbacv1.GroupKind, rbacv1.UserKind, rbacv1.ServiceAccountKind}[c.Intn(3)]
			s.APIGroup = []string{"", rbacv1.GroupName}[c.Intn(2)]
		},
		func(s *corev1.ServiceType, c randfill.Continue) {
			*s = []corev1.ServiceType{corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeExternalName, corev1.ServiceTypeLoadBalancer, ""}[c.Intn(5)]
		},
		func(s *corev1.ServiceAffinity, c randfill.Continue) {
			*s = []corev1.ServiceAffinity{corev1.ServiceAffinityNone, corev1.ServiceAffinityNone, corev1.ServiceAffinityClientIP, ""}[c.Intn(4)]
		},
	}
}

// asDecoded compares all JSON of a stored value with that of the decoded object, and
// tells whether it was made without decoding.
func asDecoded(t *testing.T, kc *codec.Coder, it codec.Item) bool {
	t.Helper()
	obj, err := kc.DecodeItem(t.Context(), it)
	if err != nil {
		t.Fatal(err)
	}
	want, err := kc.FrameOf(codec.Modified, obj)
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string, got, want []byte) {
		t.Helper()
		if !bytes.Equal(got, want) {
			at := 0
			for at < min(len(got), len(want)) && got[at] == want[at] {
				at++
			}
			at = max(0, at-80)
			t.Fatalf("%s is\n%.300s, want\n%.300s", what, got[min(at, len(got)):], want[min(at, len(want)):])
		}
	}
	frame, err := kc.JSONFrame(codec.Modified, it)
	if err != nil {
		t.Fatal(err)
	}
	same("the frame", frame, want)
	var memo codec.Memo
	item, mine := kc.AppendStoredItem([]byte("x"), it, &memo)
	if !mine {
		same("what is left", item, []byte("x"))
		return false
	}
	same("the item", item, kc.AppendItem([]byte("x"), want, codec.Modified))
	whole, _ := kc.AppendStored([]byte("x"), it, &memo)
	same("the object", whole[1:], want.Object(codec.Modified))
	return true
}

// TestMetadataIsWrittenAsDecoded: the metadata of objects of any kind.
func TestMetadataIsWrittenAsDecoded(t *testing.T) {
	catalog, c := newCodec(t)
	for _, k := range stored(catalog) {
		kc := c.Of(k)
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
		got, mine := kc.AppendPartial(nil, "v1", it, nil)
		if mine == k.Stored.JSON {
			t.Errorf("%s: written from its stored form: %v", k.Kind, mine)
		}
		if mine && !bytes.Equal(got, frame.Object(codec.Added)) {
			t.Errorf("%s: the metadata is\n%s, want\n%s", k.Kind, got, frame)
		}
		// What the frame is made of when it is decoded, and by other versions.
		other, err := kc.PartialFrame(codec.Added, "v1beta1", it)
		if err != nil {
			t.Fatal(err)
		}
		if want := bytes.Replace(other, []byte("/v1beta1"), []byte("/v1"), 1); !bytes.Equal(frame, want) {
			t.Errorf("%s: the frame is\n%s, want\n%s", k.Kind, frame, want)
		}
	}
}
