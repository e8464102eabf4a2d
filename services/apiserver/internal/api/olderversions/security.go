package olderversions

import (
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	rbacv1alpha1 "k8s.io/api/rbac/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/kinds/certificates"
	"binnacle/services/apiserver/internal/registry/declare"
)

// defaultMutatingWebhooks sets the defaults of admissionregistration.k8s.io/v1beta1.
func defaultMutatingWebhooks(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.SideEffects, &w.TimeoutSeconds, &w.AdmissionReviewVersions)
	}
}

// defaultValidatingWebhooks sets the defaults of admissionregistration.k8s.io/v1beta1.
func defaultValidatingWebhooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		defaultWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.SideEffects, &w.TimeoutSeconds, &w.AdmissionReviewVersions)
	}
}

// defaultWebhook sets the fields of a webhook that are not set to the defaults of
// admissionregistration.k8s.io/v1beta1, which differ from those of v1.
func defaultWebhook(
	failure **admissionregistrationv1.FailurePolicyType,
	match **admissionregistrationv1.MatchPolicyType,
	effects **admissionregistrationv1.SideEffectClass,
	timeout **int32,
	reviews *[]string,
) {
	declare.SetDefaultPtr(failure, admissionregistrationv1.Ignore)
	declare.SetDefaultPtr(match, admissionregistrationv1.Exact)
	declare.SetDefaultPtr(effects, admissionregistrationv1.SideEffectClassUnknown)
	declare.SetDefaultPtr(timeout, 30)
	if len(*reviews) == 0 {
		*reviews = []string{"v1beta1"}
	}
}

// defaultPolicyBinding sets the defaults of admissionregistration.k8s.io/v1alpha1.
func defaultPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	if paramRef := b.Spec.ParamRef; paramRef != nil {
		declare.SetDefaultPtr(&paramRef.ParameterNotFoundAction, admissionregistrationv1.DenyAction)
	}
}

// defaultSigningRequest sets the defaults of certificates.k8s.io/v1beta1. In that version, the
// signer may be missing, and follows from the request.
func defaultSigningRequest(r *certificatesv1.CertificateSigningRequest) {
	if r.Spec.Usages == nil {
		r.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment}
	}
	if r.Spec.SignerName == "" {
		r.Spec.SignerName = signerOf(r.Spec.Request, r.Spec.Usages)
	}
	for i := range r.Status.Conditions {
		declare.SetDefault(&r.Status.Conditions[i].Status, corev1.ConditionTrue)
	}
}

// signerOf returns the name of the signer for a certificate request without one: a kubelet signer
// if the request is for a kubelet's client or serving certificate, otherwise the legacy unknown
// signer.
func signerOf(request []byte, usages []certificatesv1.KeyUsage) string {
	const node = "system:node:"
	certificateRequest, err := certificates.ParseRequest(request)
	if err != nil || !slices.Equal(certificateRequest.Subject.Organization, []string{"system:nodes"}) ||
		!strings.HasPrefix(certificateRequest.Subject.CommonName, node) ||
		len(certificateRequest.EmailAddresses) > 0 ||
		len(certificateRequest.URIs) > 0 {
		return certificatesv1beta1.LegacyUnknownSignerName
	}
	hosts := len(certificateRequest.DNSNames) + len(certificateRequest.IPAddresses)
	switch {
	case hosts == 0 && areKubeletUsages(usages, certificatesv1.UsageClientAuth):
		return certificatesv1.KubeAPIServerClientKubeletSignerName
	case hosts > 0 && areKubeletUsages(usages, certificatesv1.UsageServerAuth):
		return certificatesv1.KubeletServingSignerName
	}
	return certificatesv1beta1.LegacyUnknownSignerName
}

// areKubeletUsages reports whether usages are the usages of a kubelet's certificate: the given
// authentication, digital signature and, only for RSA keys, key encipherment.
func areKubeletUsages(usages []certificatesv1.KeyUsage, authentication certificatesv1.KeyUsage) bool {
	isOther := func(u certificatesv1.KeyUsage) bool {
		return u != authentication && u != certificatesv1.UsageDigitalSignature && u != certificatesv1.UsageKeyEncipherment
	}
	return slices.Contains(usages, authentication) && slices.Contains(usages, certificatesv1.UsageDigitalSignature) &&
		!slices.ContainsFunc(usages, isOther)
}

// convertClusterRole converts a ClusterRole of rbac.authorization.k8s.io/v1alpha1.
func convertClusterRole(old *rbacv1alpha1.ClusterRole) (*rbacv1.ClusterRole, error) {
	clusterRole := &rbacv1.ClusterRole{ObjectMeta: old.ObjectMeta, Rules: convertRules(old.Rules)}
	if a := old.AggregationRule; a != nil {
		clusterRole.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: a.ClusterRoleSelectors}
	}
	return clusterRole, nil
}

// convertRole converts a Role of rbac.authorization.k8s.io/v1alpha1.
func convertRole(old *rbacv1alpha1.Role) (*rbacv1.Role, error) {
	return &rbacv1.Role{ObjectMeta: old.ObjectMeta, Rules: convertRules(old.Rules)}, nil
}

// convertRules converts rules of rbac.authorization.k8s.io/v1alpha1. It converts
// by Go field, because the protobuf field numbers differ from those of v1.
func convertRules(old []rbacv1alpha1.PolicyRule) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, r := range old {
		rules = append(rules, rbacv1.PolicyRule(r))
	}
	return rules
}

// convertClusterRoleBinding converts a ClusterRoleBinding of rbac.authorization.k8s.io/v1alpha1.
func convertClusterRoleBinding(old *rbacv1alpha1.ClusterRoleBinding) (*rbacv1.ClusterRoleBinding, error) {
	clusterRoleBinding := &rbacv1.ClusterRoleBinding{}
	if err := copyByFieldNumber(old, clusterRoleBinding); err != nil {
		return nil, err
	}
	fixSubjects(old.Subjects, clusterRoleBinding.Subjects)
	return clusterRoleBinding, nil
}

// convertRoleBinding converts a RoleBinding of rbac.authorization.k8s.io/v1alpha1.
func convertRoleBinding(old *rbacv1alpha1.RoleBinding) (*rbacv1.RoleBinding, error) {
	roleBinding := &rbacv1.RoleBinding{}
	if err := copyByFieldNumber(old, roleBinding); err != nil {
		return nil, err
	}
	fixSubjects(old.Subjects, roleBinding.Subjects)
	return roleBinding, nil
}

// fixSubjects completes subjects that were copied from rbac.authorization.k8s.io/v1alpha1. It sets
// their API groups, because subjects of that version have an apiVersion instead. In that version, the
// user "*" stands for all authenticated users, which is a group in v1.
func fixSubjects(originals []rbacv1alpha1.Subject, copied []rbacv1.Subject) {
	for i := range copied {
		subject := &copied[i]
		switch subject.Kind {
		case rbacv1.ServiceAccountKind:
			subject.APIGroup = ""
		case rbacv1.UserKind, rbacv1.GroupKind:
			subject.APIGroup = rbacv1.GroupName
		default:
			gv, _ := schema.ParseGroupVersion(originals[i].APIVersion) // if it is malformed, the group is empty
			subject.APIGroup = gv.Group
		}
		if subject.Kind == rbacv1.UserKind && subject.Name == "*" {
			subject.Kind = rbacv1.GroupKind
			subject.Name = allAuthenticated
		}
	}
}

// allAuthenticated is the group of all authenticated users.
const allAuthenticated = "system:authenticated"
