package core

import (
	"bytes"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/api/kinds/volume"
	"binnacle/services/apiserver/internal/json/transcode"
)

// Protobuf field numbers of messages that rules inspect.
const (
	podCIDRsNumber = 7 // NodeSpec
	intOrIntNumber = 2 // IntOrString
	intOrStrNumber = 3
)

// secretDefaultedRules returns the rules that determine whether a stored secret has the defaults of
// defaultSecret.
func secretDefaultedRules() []transcode.Rule {
	return []transcode.Rule{
		transcode.FieldsSet[corev1.Secret]("type"),
		transcode.FieldsPass[corev1.Secret](func(f [4][]byte) bool { return len(f[0]) == 0 }, "stringData"),
	}
}

func nodeDefaultedRules() []transcode.Rule {
	return []transcode.Rule{
		transcode.FieldsPass[corev1.NodeStatus](
			func(f [4][]byte) bool { return len(f[0]) == 0 || len(f[1]) > 0 },
			"capacity",
			"allocatable",
		),
		transcode.FieldsPass[corev1.NodeSpec](rangesArePaired, "podCIDR", "podCIDRs"),
	}
}

func rangesArePaired(f [4][]byte) bool {
	var first []byte
	count := 0
	ok := transcode.Each(f[1], podCIDRsNumber, func(r []byte) bool {
		if count == 0 {
			first = r
		}
		count++
		return true
	})
	return ok && bytes.Equal(first, f[0]) && (len(f[0]) > 0 || count == 0)
}

func volumeDefaultedRules() []transcode.Rule {
	return append(volume.SourceDefaultedRules(),
		transcode.FieldsSet[corev1.PersistentVolumeStatus]("phase"),
		transcode.FieldsSet[corev1.PersistentVolumeSpec]("persistentVolumeReclaimPolicy", "volumeMode"),
	)
}

// claimDefaultedRules returns the rules of podspec.Claim and pairDataSources.
// A claim with a data source in another namespace is decoded.
func claimDefaultedRules() []transcode.Rule {
	return append(poddefaults.ClaimDefaultedRules(),
		transcode.FieldsPass[corev1.PersistentVolumeClaimSpec](func(f [4][]byte) bool {
			return (f[0] == nil) == (f[1] == nil)
		}, "dataSource", "dataSourceRef"),
	)
}

// serviceDefaultedRules returns the rules for defaultService and readService. Load balancers, and
// services with session affinity or external addresses, are always decoded.
func serviceDefaultedRules() []transcode.Rule {
	return []transcode.Rule{
		transcode.FieldsPass[corev1.ServiceSpec](func(f [4][]byte) bool {
			if len(f[1]) > 0 && len(f[2]) == 0 {
				return false
			}
			return len(f[3]) > 0 || corev1.ServiceType(f[0]) == corev1.ServiceTypeExternalName
		}, "type", "clusterIP", "clusterIPs", "ipFamilies"),
		transcode.FieldsSet[corev1.ServicePort]("protocol", "targetPort"),
		transcode.FieldsPass[corev1.ServicePort](func(f [4][]byte) bool {
			n, ok := transcode.Number(f[0], intOrIntNumber)
			s, ok2 := transcode.Text(f[0], intOrStrNumber)
			return ok && ok2 && (n != 0 || len(s) > 0)
		}, "targetPort"),
		transcode.FieldsPass[corev1.ServiceSpec](func(f [4][]byte) bool {
			return string(f[0]) == string(corev1.ServiceAffinityNone) && f[1] == nil && len(f[2]) == 0
		}, "sessionAffinity", "sessionAffinityConfig", "externalIPs"),
		transcode.FieldsPass[corev1.ServiceSpec](func(f [4][]byte) bool {
			switch corev1.ServiceType(f[0]) {
			case corev1.ServiceTypeExternalName:
				return f[1] == nil
			case corev1.ServiceTypeClusterIP:
				return f[1] != nil
			case corev1.ServiceTypeNodePort:
				return f[1] != nil && len(f[2]) > 0
			}
			return false
		}, "type", "internalTrafficPolicy", "externalTrafficPolicy"),
	}
}
