package definition

import (
	"fmt"
	"net/url"
	"strings"

	v1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
)

// Approval is what the annotation of a definition in a protected group says.
type Approval int

// The approvals.
const (
	ApprovalMissing Approval = iota
	ApprovalInvalid
	// Approved: by the page that the annotation names.
	Approved
	// Unapproved: the author says so.
	Unapproved
)

// IsProtected tells whether a group is one of Kubernetes' own.
func IsProtected(group string) bool {
	for _, domain := range []string{"k8s.io", "kubernetes.io"} {
		if group == domain || strings.HasSuffix(group, "."+domain) {
			return true
		}
	}
	return false
}

// ApprovalOf reads the annotation of a definition, and says what it means.
func ApprovalOf(d *v1.CustomResourceDefinition) (Approval, string) {
	const see = ", see https://github.com/kubernetes/enhancements/pull/1111"
	needed := fmt.Sprintf("protected groups must have approval annotation %q", v1.KubeAPIApprovedAnnotation)
	text := d.Annotations[v1.KubeAPIApprovedAnnotation]
	page, err := url.ParseRequestURI(text)
	switch {
	case text == "":
		return ApprovalMissing, needed + see
	case strings.HasPrefix(text, "unapproved"):
		return Unapproved, fmt.Sprintf("not approved: %q", text)
	case err == nil && page.Host != "" && page.Scheme != "":
		return Approved, "approved in " + text
	}
	return ApprovalInvalid, needed + ` with either a URL or a reason starting with "unapproved"` + see
}
