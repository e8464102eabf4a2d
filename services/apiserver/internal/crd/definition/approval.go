package definition

import (
	"fmt"
	"net/url"
	"strings"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
)

// Approval is the state of the approval annotation of a definition in a protected group.
type Approval int

// States of the approval.
const (
	// ApprovalMissing means that there is no annotation.
	ApprovalMissing Approval = iota
	// ApprovalInvalid means that the annotation is neither a URL nor marks the definition.
	ApprovalInvalid
	// Approved means that the annotation names the page of the approval.
	Approved
	// Unapproved means that the author marked the definition as unapproved.
	Unapproved
)

// IsProtected reports whether a group belongs to Kubernetes.
func IsProtected(group string) bool {
	for _, domain := range []string{"k8s.io", "kubernetes.io"} {
		if group == domain || strings.HasSuffix(group, "."+domain) {
			return true
		}
	}
	return false
}

// ApprovalOf returns the approval of a definition and its explanation.
func ApprovalOf(definition *v1.CustomResourceDefinition) (Approval, string) {
	const reference = ", see https://github.com/kubernetes/enhancements/pull/1111"
	needed := fmt.Sprintf("protected groups must have approval annotation %q", v1.KubeAPIApprovedAnnotation)
	text := definition.Annotations[v1.KubeAPIApprovedAnnotation]
	page, err := url.ParseRequestURI(text)
	switch {
	case text == "":
		return ApprovalMissing, needed + reference
	case strings.HasPrefix(text, "unapproved"):
		return Unapproved, fmt.Sprintf("not approved: %q", text)
	case err == nil && page.Host != "" && page.Scheme != "":
		return Approved, "approved in " + text
	}
	return ApprovalInvalid, needed + ` with either a URL or a reason starting with "unapproved"` + reference
}
