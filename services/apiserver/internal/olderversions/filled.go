package olderversions

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	netutils "k8s.io/utils/net"

	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/core"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/transcode"
)

// completion fills fields that an older server did not store. They are not defaults: in what
// clients send they stay as they are.
type completion struct {
	// needed reports whether fill may change the object, without decoding it.
	needed func(message []byte) bool
	fill   func(registry.Object)
}

// completions returns the completions by kind. family is the cluster's primary IP family.
func completions(family corev1.IPFamily) map[schema.GroupKind]completion {
	return map[schema.GroupKind]completion{
		{Kind: "PersistentVolumeClaim"}: {
			needed: lacksDataSource,
			fill:   declare.Do(func(c *corev1.PersistentVolumeClaim) { core.PairDataSources(&c.Spec) }),
		},
		{Kind: "Service"}: {
			needed: lacksAddresses,
			fill:   declare.Do(func(s *corev1.Service) { fillAddresses(&s.Spec, family) }),
		},
	}
}

// complete returns a value of the storage version with the fields that it lacks, and whether there
// are any.
func (r *resource) complete(stored []byte) (value []byte, changed bool, err error) {
	if r.completion.fill == nil {
		return stored, false, nil
	}
	if message, ok := codec.StoredMessage(stored); ok && !r.completion.needed(message) {
		return stored, false, nil
	}
	obj, ok := r.coder.NewStorageVersion().(registry.Object)
	if !ok || codec.DecodeStoredInto(stored, obj) != nil {
		return stored, false, nil // the codec reports it
	}
	before := obj.DeepCopyObject()
	r.completion.fill(obj)
	if reflect.DeepEqual(before, obj) {
		return stored, false, nil
	}
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	value, err = r.coder.EncodeStorageVersion(obj)
	return value, true, err
}

// Numbers of protobuf fields.
const (
	specNumber = 2 // of an object

	dataSourceNumber    = 7 // of the spec of a PersistentVolumeClaim
	dataSourceRefNumber = 8

	serviceTypeNumber = 4 // of the spec of a Service
	clusterIPsNumber  = 18
	ipFamiliesNumber  = 19
)

// lacksDataSource reports whether a claim has one of the fields for its data source only.
func lacksDataSource(message []byte) bool {
	spec, _ := transcode.Text(message, specNumber)
	source, _ := transcode.Text(spec, dataSourceNumber)
	ref, _ := transcode.Text(spec, dataSourceRefNumber)
	return (source == nil) != (ref == nil)
}

// lacksAddresses reports whether a service lacks the lists of its addresses or families, or is an
// external name.
func lacksAddresses(message []byte) bool {
	spec, _ := transcode.Text(message, specNumber)
	addresses, _ := transcode.Text(spec, clusterIPsNumber)
	families, _ := transcode.Text(spec, ipFamiliesNumber)
	kind, _ := transcode.Text(spec, serviceTypeNumber)
	return addresses == nil || families == nil || string(kind) == string(corev1.ServiceTypeExternalName)
}

// fillAddresses sets what services have since they may have addresses of both families.
func fillAddresses(s *corev1.ServiceSpec, primary corev1.IPFamily) {
	if s.ClusterIP != "" && len(s.ClusterIPs) == 0 {
		s.ClusterIPs = []string{s.ClusterIP}
	}
	if s.Type == corev1.ServiceTypeExternalName {
		s.InternalTrafficPolicy = nil // older servers set it where it has no meaning
		return
	}
	if len(s.IPFamilies) > 0 {
		return
	}
	switch {
	case s.ClusterIP != corev1.ClusterIPNone:
		for _, ip := range s.ClusterIPs {
			s.IPFamilies = append(s.IPFamilies, familyOf(ip))
		}
	case len(s.Selector) == 0: // the addresses of its endpoints may be of both families
		s.IPFamilies = []corev1.IPFamily{primary, otherFamily(primary)}
	default:
		s.IPFamilies = []corev1.IPFamily{primary}
	}
	policy := corev1.IPFamilyPolicySingleStack
	if len(s.IPFamilies) == 2 {
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	if len(s.IPFamilies) > 0 {
		s.IPFamilyPolicy = &policy
	}
}

func familyOf(ip string) corev1.IPFamily {
	if netutils.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

func otherFamily(f corev1.IPFamily) corev1.IPFamily {
	if f == corev1.IPv4Protocol {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}
