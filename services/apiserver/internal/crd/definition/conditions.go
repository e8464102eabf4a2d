package definition

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/crd/structural"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/validate"
	"binnacle/services/apiserver/internal/status"
)

// IsTrue reports whether a condition of a definition is true.
func IsTrue(d *v1.CustomResourceDefinition, kind v1.CustomResourceDefinitionConditionType) bool {
	c := findCondition(&d.Status, kind)
	return c != nil && c.Status == v1.ConditionTrue
}

// findCondition returns a condition of a status, or nil.
func findCondition(
	status *v1.CustomResourceDefinitionStatus,
	kind v1.CustomResourceDefinitionConditionType,
) *v1.CustomResourceDefinitionCondition {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return &status.Conditions[i]
		}
	}
	return nil
}

// SetCondition sets a condition and reports whether anything changed. The transition time is that
// of the last change of status.
func SetCondition(status *v1.CustomResourceDefinitionStatus, condition v1.CustomResourceDefinitionCondition, now metav1.Time) bool {
	condition.LastTransitionTime = now
	current := findCondition(status, condition.Type)
	if current == nil {
		status.Conditions = append(status.Conditions, condition)
		return true
	}
	if current.Status == condition.Status && current.Reason == condition.Reason && current.Message == condition.Message {
		return false
	}
	if current.Status == condition.Status && !current.LastTransitionTime.IsZero() {
		condition.LastTransitionTime = current.LastTransitionTime
	}
	*current = condition
	return true
}

// setStatus updates the status of a definition to a decision and reports whether anything changed. It
// replaces the list of conditions and does not change the old one.
func setStatus(definition *v1.CustomResourceDefinition, decision Decision, now metav1.Time) bool {
	status := &definition.Status
	status.Conditions = slices.Clone(status.Conditions)
	changed := !sameNames(&status.AcceptedNames, &decision.Accepted)
	if changed {
		status.AcceptedNames = decision.Accepted
	}
	set := func(c *v1.CustomResourceDefinitionCondition) {
		if c != nil && SetCondition(status, *c, now) {
			changed = true
		}
	}
	set(namesAcceptedCondition(decision))
	set(establishedCondition(definition, decision))
	set(approvalCondition(definition))
	if c := nonStructuralCondition(definition); c != nil {
		set(c)
	} else if findCondition(status, v1.NonStructuralSchema) != nil {
		status.Conditions = slices.DeleteFunc(status.Conditions, func(c v1.CustomResourceDefinitionCondition) bool {
			return c.Type == v1.NonStructuralSchema
		})
		changed = true
	}
	return changed
}

// newCondition returns a condition that is true or false.
func newCondition(
	kind v1.CustomResourceDefinitionConditionType,
	holds bool,
	reason, message string,
) *v1.CustomResourceDefinitionCondition {
	c := &v1.CustomResourceDefinitionCondition{Type: kind, Status: v1.ConditionFalse, Reason: reason, Message: message}
	if holds {
		c.Status = v1.ConditionTrue
	}
	return c
}

// namesAcceptedCondition returns the condition NamesAccepted.
func namesAcceptedCondition(decision Decision) *v1.CustomResourceDefinitionCondition {
	if c := decision.Conflict; c != nil {
		return newCondition(v1.NamesAccepted, false, c.Reason, c.Message)
	}
	return newCondition(v1.NamesAccepted, true, "NoConflicts", "no conflicts found")
}

// establishedCondition returns the condition Established. It returns nil once the condition holds:
// later names may be rejected, but the definition stays established.
func establishedCondition(d *v1.CustomResourceDefinition, decision Decision) *v1.CustomResourceDefinitionCondition {
	switch {
	case IsTrue(d, v1.Established):
		return nil
	case decision.Established:
		return newCondition(v1.Established, true, "InitialNamesAccepted", "the initial names have been accepted")
	case decision.Conflict == nil:
		return newCondition(v1.Established, false, "InvalidCABundle", "The conversion webhook CABundle is invalid")
	}
	return newCondition(v1.Established, false, "NotAccepted", "not all names are accepted")
}

// hasInvalidCABundle reports whether the conversion webhook has an invalid CA bundle.
func hasInvalidCABundle(d *v1.CustomResourceDefinition) bool {
	c := d.Spec.Conversion
	if c == nil || c.Webhook == nil || c.Webhook.ClientConfig == nil {
		return false
	}
	bundle := c.Webhook.ClientConfig.CABundle
	return len(bundle) > 0 && validate.CheckCABundle(bundle) != nil
}

// approvalCondition returns the condition on the approval annotation, or nil for a group that is
// not protected.
func approvalCondition(definition *v1.CustomResourceDefinition) *v1.CustomResourceDefinitionCondition {
	if !IsProtected(definition.Spec.Group) {
		return nil
	}
	state, message := ApprovalOf(definition)
	reason := map[Approval]string{
		ApprovalMissing: "MissingAnnotation", ApprovalInvalid: "InvalidAnnotation",
		Approved: "ApprovedAnnotation", Unapproved: "UnapprovedAnnotation",
	}[state]
	return newCondition(v1.KubernetesAPIApprovalPolicyConformant, state == Approved, reason, message)
}

// nonStructuralCondition returns the condition for schemas that were stored before they had to be
// structural. It returns nil if all schemas are structural.
func nonStructuralCondition(definition *v1.CustomResourceDefinition) *v1.CustomResourceDefinitionCondition {
	var errs field.ErrorList
	if definition.Spec.PreserveUnknownFields {
		errs = append(errs, field.Invalid(field.NewPath("spec", "preserveUnknownFields"), true, "must be false"))
	}
	for i, version := range definition.Spec.Versions {
		if version.Schema == nil || version.Schema.OpenAPIV3Schema == nil {
			continue
		}
		if err := structural.Unsupported(version.Schema.OpenAPIV3Schema); err != nil {
			c := newCondition(v1.NonStructuralSchema, false, "StructuralError",
				fmt.Sprintf("failed to check validation schema for version %s: %v", version.Name, err))
			c.Status = v1.ConditionUnknown
			return c
		}
		path := field.NewPath("spec", "versions").Index(i).Child("schema", "openAPIV3Schema")
		errs = append(errs, structural.Check(path, version.Schema.OpenAPIV3Schema)...)
	}
	if len(errs) == 0 {
		return nil
	}
	return newCondition(v1.NonStructuralSchema, true, "Violations", status.Aggregated(errs).Error())
}

// Terminate marks a definition whose deletion starts. Its objects are deleted first.
func Terminate(definition *v1.CustomResourceDefinition, now metav1.Time) {
	if !slices.Contains(definition.Finalizers, v1.CustomResourceCleanupFinalizer) {
		definition.Finalizers = append(definition.Finalizers, v1.CustomResourceCleanupFinalizer)
	}
	SetCondition(&definition.Status, *newCondition(v1.Terminating, true, "InstanceDeletionPending",
		"CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"), now)
}
