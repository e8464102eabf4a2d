package app

import (
	"fmt"
	"slices"

	"binnacle/services/apiserver/internal/admission/namespacelifecycle"
	"binnacle/services/apiserver/internal/admission/noderestriction"
	"binnacle/services/apiserver/internal/admission/nodetaint"
)

// availablePlugins are the admission plugins that this server has.
func availablePlugins() []string {
	return []string{namespacelifecycle.Name, nodetaint.Name, noderestriction.Name}
}

// offPlugins are those of them that count only when they are switched on.
func offPlugins() []string { return []string{noderestriction.Name} }

// knownPlugins are the names of Kubernetes 1.33, which may be switched off even
// where this server does not have them.
func knownPlugins() []string {
	return []string{
		"AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction",
		"ClusterTrustBundleAttest", "DefaultIngressClass", "DefaultStorageClass", "DefaultTolerationSeconds", "DenyServiceExternalIPs",
		"EventRateLimit", "ExtendedResourceToleration", "ImagePolicyWebhook", "LimitPodHardAntiAffinityTopology", "LimitRanger",
		"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "NamespaceAutoProvision", "NamespaceExists", "NamespaceLifecycle",
		"NodeRestriction", "OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize", "PodNodeSelector", "PodSecurity",
		"PodTolerationRestriction", "PodTopologyLabels", "Priority", "ResourceQuota", "RuntimeClass", "ServiceAccount",
		"StorageObjectInUseProtection", "TaintNodesByCondition", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
	}
}

func (o *AdmissionOptions) validate() (errs []error) {
	for _, p := range o.Enable {
		if !slices.Contains(availablePlugins(), p) {
			errs = append(errs, fmt.Errorf("--enable-admission-plugins: %q is not one of %v", p, availablePlugins()))
		}
		if slices.Contains(o.Disable, p) {
			errs = append(errs, fmt.Errorf("admission plugin %q is both enabled and disabled", p))
		}
	}
	for _, p := range o.Disable {
		if !slices.Contains(knownPlugins(), p) {
			errs = append(errs, fmt.Errorf("--disable-admission-plugins: %q is not an admission plugin", p))
		}
	}
	return errs
}

func (o *AdmissionOptions) enabled(name string) bool {
	if slices.Contains(offPlugins(), name) {
		return slices.Contains(o.Enable, name)
	}
	return !slices.Contains(o.Disable, name)
}
