package build

import (
	storagev1 "k8s.io/api/storage/v1"

	"binnacle/libs/features"
	"binnacle/services/apiserver/internal/admission/plugins/noderestriction"
)

// nodeRestriction creates the plugin that restricts kubelets to their own objects.
func (a *admissionBuilder) nodeRestriction() *noderestriction.Plugin {
	return &noderestriction.Plugin{
		Objects: &noderestriction.Lister{
			Objects: a.caches.objects(true),
			Claims:  a.caches.core("persistentvolumeclaims"),
			Volumes: a.caches.core("persistentvolumes"),
			Drivers: a.caches.lookup(storagev1.SchemeGroupVersion.WithResource("csidrivers")),
		},
		Authorizer:     a.authz.chain,
		Audiences:      a.gates.Enabled(features.ServiceAccountNodeAudienceRestriction),
		AnyCertificate: a.gates.Enabled(features.AllowInsecureKubeletCertificateSigningRequests),
	}
}
