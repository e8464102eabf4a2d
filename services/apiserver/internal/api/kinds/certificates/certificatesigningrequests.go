package certificates

import (
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/registry/validate"
)

// certificateSigningRequests declares the cluster-scoped kind CertificateSigningRequest.
func certificateSigningRequests() *registry.Kind {
	return declare.Kind[certificatesv1.CertificateSigningRequest, certificatesv1.CertificateSigningRequestList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "certificatesigningrequests", Kind: "CertificateSigningRequest",
			ShortNames: []string{"csr"}, ValidateName: meta.PathSegment,
		},
		Parts: declare.SpecStatusAccessors(func(c *certificatesv1.CertificateSigningRequest) (*certificatesv1.CertificateSigningRequestSpec, *certificatesv1.CertificateSigningRequestStatus) {
			return &c.Spec, &c.Status
		}),
		Create: registry.Create{
			// Prepare clears the requester that the client sent. RecordCreator sets the actual one.
			Prepare: declare.Adapt(func(r *certificatesv1.CertificateSigningRequest) { stampRequester(r, registry.Requester{}) }),
			RecordCreator: func(o registry.Object, requester registry.Requester) {
				stampRequester(o.(*certificatesv1.CertificateSigningRequest), requester)
			},
			Validate: declare.AdaptValidation(func(fld validate.Field, r *certificatesv1.CertificateSigningRequest) {
				validateRequest(fld, r, nil)
			}),
		},
		Update: registry.Update{
			Order:       registry.Order{registry.MetaRules, registry.UpdateRules, registry.MetaUpdateRules},
			ResetFields: []string{"spec", "status"},
			Prepare:     declare.AdaptUpdate(func(r, old *certificatesv1.CertificateSigningRequest) { r.Spec = old.Spec }),
			Validate:    declare.AdaptUpdateValidation(updateRules{}.validate),
		},
		Presentation: registry.Presentation{
			Selectable: []registry.SelectableField{{Label: "spec.signerName"}},
			Columns:    requestColumns(),
		},
		Subresources: []registry.Subresource{
			declare.WithoutTable(declare.WithResetFields(
				declare.WithValidationOrder(
					declare.ValidatedView(
						"approval",
						"CertificateSigningRequest",
						prepareApproval,
						updateRules{mayDecide: true}.validate,
					),
					registry.MetaRules,
					registry.UpdateRules,
					registry.MetaUpdateRules,
				),
				"spec",
				"status.certificate",
			)),
			declare.WithResetFields(
				declare.WithValidationOrder(
					declare.ValidatedView("status", "CertificateSigningRequest", prepareStatus, updateRules{mayIssue: true}.validate),
					registry.MetaRules,
					registry.UpdateRules,
					registry.MetaUpdateRules,
				),
				"spec",
				"status.conditions",
			),
		},
	})
}

// stampRequester sets the fields that identify the requester.
func stampRequester(r *certificatesv1.CertificateSigningRequest, requester registry.Requester) {
	r.Spec.Username = requester.Name
	r.Spec.UID = requester.UID
	r.Spec.Groups = requester.Groups
	r.Spec.Extra = nil
	if len(requester.Extra) == 0 {
		return
	}
	r.Spec.Extra = make(map[string]certificatesv1.ExtraValue, len(requester.Extra))
	for k, v := range requester.Extra {
		r.Spec.Extra[k] = v
	}
}

// prepareApproval allows changes of the conditions only.
func prepareApproval(r, old *certificatesv1.CertificateSigningRequest) {
	conditions := r.Status.Conditions
	r.Spec = old.Spec
	r.Status = old.Status
	r.Status.Conditions = conditions
	stampConditions(r, old)
}

// prepareStatus allows changes of the status, except for approvals and denials: those conditions
// keep their values. Validation rejects the addition or removal of one.
func prepareStatus(r, old *certificatesv1.CertificateSigningRequest) {
	r.Spec = old.Spec
	for _, typ := range []certificatesv1.RequestConditionType{certificatesv1.CertificateApproved, certificatesv1.CertificateDenied} {
		oldIndices, newIndices := conditionsOf(old, typ), conditionsOf(r, typ)
		if len(oldIndices) != len(newIndices) {
			continue
		}
		for i := range newIndices {
			r.Status.Conditions[newIndices[i]] = old.Status.Conditions[oldIndices[i]]
		}
	}
	stampConditions(r, old)
}

func conditionsOf(r *certificatesv1.CertificateSigningRequest, typ certificatesv1.RequestConditionType) []int {
	var indices []int
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == typ {
			indices = append(indices, i)
		}
	}
	return indices
}

// stampConditions sets missing times. A condition whose status is unchanged keeps its transition
// time.
func stampConditions(r, old *certificatesv1.CertificateSigningRequest) {
	now := metav1.Now()
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if c.LastTransitionTime.IsZero() {
			c.LastTransitionTime = now
			for _, was := range old.Status.Conditions {
				if was.Type == c.Type && was.Status == c.Status && !was.LastTransitionTime.IsZero() {
					c.LastTransitionTime = was.LastTransitionTime
					break
				}
			}
		}
	}
}

// requestColumns uses some descriptions of an older version, as in Kubernetes.
func requestColumns() []registry.Column {
	spec := func(name string) string {
		return columns.Doc(certificatesv1beta1.CertificateSigningRequestSpec{}, name)
	}
	return []registry.Column{
		columns.Name(),
		columns.Age(),
		columns.Text("SignerName", spec("signerName"), func(r *certificatesv1.CertificateSigningRequest) string {
			return columns.OrNone(r.Spec.SignerName)
		}),
		columns.Text(
			"Requestor",
			spec("request"),
			func(r *certificatesv1.CertificateSigningRequest) string { return r.Spec.Username },
		),
		columns.Text("RequestedDuration", spec("expirationSeconds"), func(r *certificatesv1.CertificateSigningRequest) string {
			if r.Spec.ExpirationSeconds == nil {
				return columns.None
			}
			return duration.HumanDuration(time.Duration(*r.Spec.ExpirationSeconds) * time.Second)
		}),
		columns.Text("Condition", columns.Doc(certificatesv1beta1.CertificateSigningRequestStatus{}, "conditions"), conditionText),
	}
}

// conditionText returns a text such as "Approved,Issued". A denial takes precedence over an
// approval.
func conditionText(request *certificatesv1.CertificateSigningRequest) string {
	has := func(typ certificatesv1.RequestConditionType) bool { return len(conditionsOf(request, typ)) > 0 }
	text := "Pending"
	switch {
	case has(certificatesv1.CertificateDenied):
		text = "Denied"
	case has(certificatesv1.CertificateApproved):
		text = "Approved"
	}
	if has(certificatesv1.CertificateFailed) {
		text += ",Failed"
	}
	if len(request.Status.Certificate) > 0 {
		text += ",Issued"
	}
	return text
}
