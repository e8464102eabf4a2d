package definition

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/registry/apis/apiextensions/v1beta1"
)

// statusTime is the time of status changes.
var statusTime = metav1.NewTime(time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC))

// gadgets returns a definition after its creation.
func gadgets() *v1.CustomResourceDefinition {
	return &v1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "gadgets.example.com"},
		Spec: v1.CustomResourceDefinitionSpec{
			Group: "example.com",
			Scope: v1.NamespaceScoped,
			Names: named("gadgets", "gadget", "Gadget", "GadgetList"),
			Versions: []v1.CustomResourceDefinitionVersion{
				{
					Name:    "v1",
					Served:  true,
					Storage: true,
					Schema:  &v1.CustomResourceValidation{OpenAPIV3Schema: &v1.JSONSchemaProps{Type: "object"}},
				},
			},
		},
		Status: v1.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
	}
}

// conditionsOf returns the conditions of a definition, one per line.
func conditionsOf(definition *v1.CustomResourceDefinition) string {
	var out []string
	for _, condition := range definition.Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s %s: %s", condition.Type, condition.Status, condition.Reason, condition.Message))
	}
	return strings.Join(out, "\n")
}

// acceptedConditions holds the conditions of an established definition.
const acceptedConditions = "NamesAccepted=True NoConflicts: no conflicts found\nEstablished=True InitialNamesAccepted: the initial names have been accepted"

// TestStatusSetsConditions checks the conditions that Status sets, and that a second call changes
// nothing.
func TestStatusSetsConditions(t *testing.T) {
	for _, test := range []struct {
		name     string
		change   func(*v1.CustomResourceDefinition)
		conflict *Conflict
		want     string // the conditions in the form of conditionsOf
	}{
		{name: "names accepted", want: acceptedConditions},
		{
			name: "names rejected", conflict: &Conflict{"KindConflict", `"Gadget" is already in use`},
			want: "NamesAccepted=False KindConflict: \"Gadget\" is already in use\n" +
				"Established=False NotAccepted: not all names are accepted",
		},
		{
			name: "names rejected after it was established",
			change: func(definition *v1.CustomResourceDefinition) {
				definition.Status.Conditions = []v1.CustomResourceDefinitionCondition{{Type: v1.Established, Status: v1.ConditionTrue, Reason: "Mine"}}
			},
			conflict: &Conflict{"ShortNamesConflict", "x"},
			want:     "Established=True Mine: \nNamesAccepted=False ShortNamesConflict: x",
		},
		{
			name: "invalid CA bundle",
			change: func(definition *v1.CustomResourceDefinition) {
				definition.Spec.Conversion = &v1.CustomResourceConversion{
					Strategy: v1.WebhookConverter,
					Webhook:  &v1.WebhookConversion{ClientConfig: &v1.WebhookClientConfig{CABundle: []byte("x")}},
				}
			},
			want: "NamesAccepted=True NoConflicts: no conflicts found\n" +
				"Established=False InvalidCABundle: The conversion webhook CABundle is invalid",
		},
		{
			name: "approved",
			change: func(definition *v1.CustomResourceDefinition) {
				definition.Spec.Group = "x.k8s.io"
				definition.Annotations = map[string]string{v1.KubeAPIApprovedAnnotation: "https://example.com/1"}
			},
			want: acceptedConditions +
				"\nKubernetesAPIApprovalPolicyConformant=True ApprovedAnnotation: approved in https://example.com/1",
		},
		{
			name: "unapproved",
			change: func(definition *v1.CustomResourceDefinition) {
				definition.Spec.Group = "kubernetes.io"
				definition.Annotations = map[string]string{v1.KubeAPIApprovedAnnotation: "unapproved, yet"}
			},
			want: acceptedConditions +
				"\nKubernetesAPIApprovalPolicyConformant=False UnapprovedAnnotation: not approved: \"unapproved, yet\"",
		},
		{
			name:   "approval missing",
			change: func(definition *v1.CustomResourceDefinition) { definition.Spec.Group = "k8s.io" },
			want: acceptedConditions +
				"\nKubernetesAPIApprovalPolicyConformant=False MissingAnnotation: protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
		},
		{
			name: "not structural",
			change: func(definition *v1.CustomResourceDefinition) {
				definition.Spec.PreserveUnknownFields = true
				definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = map[string]v1.JSONSchemaProps{"a": {}}
			},
			want: acceptedConditions +
				"\nNonStructuralSchema=True Violations: [spec.preserveUnknownFields: Invalid value: true: must be false, spec.versions[0].schema.openAPIV3Schema.properties[a].type: Required value: must not be empty for specified object fields]",
		},
		{
			name: "schema with an unsupported keyword",
			change: func(definition *v1.CustomResourceDefinition) {
				definition.Spec.Versions[0].Schema.OpenAPIV3Schema.ID = "x"
			},
			want: acceptedConditions +
				"\nNonStructuralSchema=Unknown StructuralError: failed to check validation schema for version v1: OpenAPIV3Schema 'id' is not supported",
		},
		{
			name: "structural after it was not",
			change: func(definition *v1.CustomResourceDefinition) {
				definition.Status.Conditions = []v1.CustomResourceDefinitionCondition{
					{Type: v1.NonStructuralSchema, Status: v1.ConditionTrue},
					{Type: "Mine", Status: "Perhaps"},
				}
			},
			want: "Mine=Perhaps : \n" + acceptedConditions,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			definition := gadgets()
			if test.change != nil {
				test.change(definition)
			}
			claim := NewNameClaim(definition, 1)
			decision := Decision{
				Accepted:    claim.Requested,
				Conflict:    test.conflict,
				Established: claim.Established || test.conflict == nil && !claim.InvalidWebhook,
			}
			if !setStatus(definition, decision, statusTime) {
				t.Error("setStatus = false, want true")
			}
			if got := conditionsOf(definition); got != test.want {
				t.Errorf("got conditions\n%s\nwant\n%s", got, test.want)
			}
			if definition.Status.AcceptedNames.Kind != "Gadget" {
				t.Errorf("got accepted kind %q, want Gadget", definition.Status.AcceptedNames.Kind)
			}
			if setStatus(definition, decision, metav1.NewTime(statusTime.Add(time.Hour))) {
				t.Errorf("second setStatus = true, want false; conditions\n%s", conditionsOf(definition))
			}
		})
	}
}

// TestTransitionTimeIsThatOfStatusChange checks that a new reason or message keeps the time.
func TestTransitionTimeIsThatOfStatusChange(t *testing.T) {
	later := metav1.NewTime(statusTime.Add(time.Hour))
	status := &v1.CustomResourceDefinitionStatus{}
	condition := *newCondition(v1.NamesAccepted, false, "A", "a")
	const changes, unchanged = true, false
	set := func(condition v1.CustomResourceDefinitionCondition, at metav1.Time, wantChanged bool, wantTime metav1.Time) {
		t.Helper()
		if got := SetCondition(status, condition, at); got != wantChanged || !status.Conditions[0].LastTransitionTime.Equal(&wantTime) {
			t.Errorf("SetCondition(%+v, %v) = %t, time %v; want %t, %v",
				condition, at, got, status.Conditions[0].LastTransitionTime, wantChanged, wantTime)
		}
	}
	set(condition, statusTime, changes, statusTime)
	set(condition, later, unchanged, statusTime)
	condition.Reason = "B"
	set(condition, later, changes, statusTime)
	condition.Status = v1.ConditionTrue
	set(condition, later, changes, later)
	// A condition that was set without a time gets none until its status changes.
	status.Conditions[0].LastTransitionTime = metav1.Time{}
	set(condition, statusTime, unchanged, metav1.Time{})
	condition.Message = "b"
	set(condition, statusTime, changes, statusTime)
}

// TestTerminateAddsFinalizerAndCondition checks that a deleted definition gets the finalizer once.
func TestTerminateAddsFinalizerAndCondition(t *testing.T) {
	definition := gadgets()
	definition.Finalizers = []string{"example.com/other"}
	Terminate(definition, statusTime)
	Terminate(definition, statusTime)
	if want := []string{"example.com/other", v1.CustomResourceCleanupFinalizer}; !reflect.DeepEqual(definition.Finalizers, want) {
		t.Errorf("got finalizers %v, want %v", definition.Finalizers, want)
	}
	const want = "Terminating=True InstanceDeletionPending: CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
	if got := conditionsOf(definition); got != want {
		t.Errorf("got conditions %q, want %q", got, want)
	}
}

// TestDecodeSummaryOmitsLargeFields checks that a summary equals the definition without labels,
// managed fields and schemas.
func TestDecodeSummaryOmitsLargeFields(t *testing.T) {
	full := gadgets()
	full.UID, full.Generation = "u", 3
	full.CreationTimestamp, full.DeletionTimestamp = statusTime, &statusTime
	full.Labels = map[string]string{"a": "b"}
	full.Annotations = map[string]string{"c": `d "e"`}
	full.Finalizers = []string{v1.CustomResourceCleanupFinalizer}
	full.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	warning := "old"
	full.Spec.Versions = append(full.Spec.Versions, v1.CustomResourceDefinitionVersion{
		Name:               "v2",
		Deprecated:         true,
		DeprecationWarning: &warning,
		Schema:             &v1.CustomResourceValidation{OpenAPIV3Schema: &v1.JSONSchemaProps{Type: "object", Title: "t"}},
	})
	full.Spec.Conversion = &v1.CustomResourceConversion{Strategy: v1.WebhookConverter, Webhook: &v1.WebhookConversion{
		ClientConfig: &v1.WebhookClientConfig{CABundle: []byte("x")}, ConversionReviewVersions: []string{"v1"},
	}}
	full.Status.AcceptedNames = full.Spec.Names
	SetCondition(&full.Status, *newCondition(v1.Established, true, "A", "a"), statusTime)
	summarize := func(definition *v1.CustomResourceDefinition) *v1.CustomResourceDefinition {
		t.Helper()
		stored, err := json.Marshal(v1beta1.FromV1(definition))
		if err != nil {
			t.Fatal(err)
		}
		summary, err := DecodeSummary(stored)
		if err != nil {
			t.Fatal(err)
		}
		return summary
	}
	got := summarize(full)
	want := full.DeepCopy()
	want.Labels, want.ManagedFields = nil, nil
	for i := range want.Spec.Versions {
		want.Spec.Versions[i].Schema = nil
	}
	gotJSON, _ := json.Marshal(got)
	wantJSON, _ := json.Marshal(want)
	if string(gotJSON) != string(wantJSON) {
		t.Errorf("got summary\n%s\nwant\n%s", gotJSON, wantJSON)
	}
	full.Spec.PreserveUnknownFields = true
	if got := summarize(full); got.Spec.Versions[0].Schema == nil {
		t.Error("definition that preserves unknown fields: no schema, want it")
	}
	for _, invalid := range []string{
		"",
		"{",
		`{"spec":{"names":[]}}`,
		`{"status":{"conditions":{}}}`,
		`{"spec":{"preserveUnknownFields":false,"versions":[{"name":1}]}}`,
	} {
		if definition, err := DecodeSummary([]byte(invalid)); err == nil {
			t.Errorf("DecodeSummary(%q) = %+v, want an error", invalid, definition)
		}
	}
}
