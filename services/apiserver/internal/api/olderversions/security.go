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

func fillMutatingWebhooks(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		fillWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.SideEffects, &w.TimeoutSeconds, &w.AdmissionReviewVersions)
	}
}

func fillValidatingWebhooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		fillWebhook(&w.FailurePolicy, &w.MatchPolicy, &w.SideEffects, &w.TimeoutSeconds, &w.AdmissionReviewVersions)
	}
}

// fillWebhook sets the defaults of admissionregistration.k8s.io/v1beta1.
func fillWebhook(failure **admissionregistrationv1.FailurePolicyType, match **admissionregistrationv1.MatchPolicyType, effects **admissionregistrationv1.SideEffectClass, timeout **int32, reviews *[]string) {
	declare.SetDefaultPtr(failure, admissionregistrationv1.Ignore)
	declare.SetDefaultPtr(match, admissionregistrationv1.Exact)
	declare.SetDefaultPtr(effects, admissionregistrationv1.SideEffectClassUnknown)
	declare.SetDefaultPtr(timeout, 30)
	if len(*reviews) == 0 {
		*reviews = []string{"v1beta1"}
	}
}

func fillPolicyBinding(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	if p := b.Spec.ParamRef; p != nil {
		declare.SetDefaultPtr(&p.ParameterNotFoundAction, admissionregistrationv1.DenyAction)
	}
}

// fillSigningRequest sets the defaults of certificates.k8s.io/v1beta1, which derives the signer
// from the request.
func fillSigningRequest(r *certificatesv1.CertificateSigningRequest) {
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

// signerOf returns the kubelet client or serving signer if the request is for such a certificate.
// Otherwise it returns the legacy unknown signer.
func signerOf(request []byte, usages []certificatesv1.KeyUsage) string {
	const node = "system:node:"
	r, err := certificates.ParseRequest(request)
	if err != nil || !slices.Equal(r.Subject.Organization, []string{"system:nodes"}) || !strings.HasPrefix(r.Subject.CommonName, node) || len(r.EmailAddresses) > 0 || len(r.URIs) > 0 {
		return certificatesv1beta1.LegacyUnknownSignerName
	}
	hosts := len(r.DNSNames) + len(r.IPAddresses)
	switch {
	case hosts == 0 && isFor(usages, certificatesv1.UsageClientAuth):
		return certificatesv1.KubeAPIServerClientKubeletSignerName
	case hosts > 0 && isFor(usages, certificatesv1.UsageServerAuth):
		return certificatesv1.KubeletServingSignerName
	}
	return certificatesv1beta1.LegacyUnknownSignerName
}

// isFor reports whether usages are those of a kubelet's certificate: the given authentication,
// digital signature and, for RSA keys, key encipherment.
func isFor(usages []certificatesv1.KeyUsage, authentication certificatesv1.KeyUsage) bool {
	other := func(u certificatesv1.KeyUsage) bool {
		return u != authentication && u != certificatesv1.UsageDigitalSignature && u != certificatesv1.UsageKeyEncipherment
	}
	return slices.Contains(usages, authentication) && slices.Contains(usages, certificatesv1.UsageDigitalSignature) && !slices.ContainsFunc(usages, other)
}

func clusterRole(old *rbacv1alpha1.ClusterRole) (*rbacv1.ClusterRole, error) {
	r := &rbacv1.ClusterRole{ObjectMeta: old.ObjectMeta, Rules: policyRules(old.Rules)}
	if a := old.AggregationRule; a != nil {
		r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: a.ClusterRoleSelectors}
	}
	return r, nil
}

func role(old *rbacv1alpha1.Role) (*rbacv1.Role, error) {
	return &rbacv1.Role{ObjectMeta: old.ObjectMeta, Rules: policyRules(old.Rules)}, nil
}

// policyRules converts rules, whose protobuf fields have other numbers in v1alpha1.
func policyRules(old []rbacv1alpha1.PolicyRule) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, r := range old {
		rules = append(rules, rbacv1.PolicyRule(r))
	}
	return rules
}

func clusterRoleBinding(old *rbacv1alpha1.ClusterRoleBinding) (*rbacv1.ClusterRoleBinding, error) {
	b := &rbacv1.ClusterRoleBinding{}
	if err := sameNumbers(old, b); err != nil {
		return nil, err
	}
	convertSubjects(old.Subjects, b.Subjects)
	return b, nil
}

func roleBinding(old *rbacv1alpha1.RoleBinding) (*rbacv1.RoleBinding, error) {
	b := &rbacv1.RoleBinding{}
	if err := sameNumbers(old, b); err != nil {
		return nil, err
	}
	convertSubjects(old.Subjects, b.Subjects)
	return b, nil
}

// convertSubjects converts subjects of rbac.authorization.k8s.io/v1alpha1. They have an apiVersion
// instead of a group, and the user * stands for all authenticated users.
func convertSubjects(old []rbacv1alpha1.Subject, to []rbacv1.Subject) {
	for i := range to {
		s := &to[i]
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			s.APIGroup = ""
		case rbacv1.UserKind, rbacv1.GroupKind:
			s.APIGroup = rbacv1.GroupName
		default:
			gv, _ := schema.ParseGroupVersion(old[i].APIVersion) // the group of a malformed apiVersion is empty
			s.APIGroup = gv.Group
		}
		if s.Kind == rbacv1.UserKind && s.Name == "*" {
			s.Kind = rbacv1.GroupKind
			s.Name = allAuthenticated
		}
	}
}

const allAuthenticated = "system:authenticated"
