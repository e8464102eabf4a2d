package validate_test

import (
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/registry/validate"
)

// TestMessagesNameInternalTypes covers values of several groups in messages.
func TestMessagesNameInternalTypes(t *testing.T) {
	always := batchv1.PodFailurePolicyActionIgnore
	for want, value := range map[string]any{
		`a: Invalid value: core.Taint{Key:"k", Value:"", Effect:"", TimeAdded:<nil>}: no`: corev1.Taint{Key: "k"},
		`a: Invalid value: batch.PodFailurePolicy{Rules:[]batch.PodFailurePolicyRule{batch.PodFailurePolicyRule{Action:"Ignore", OnExitCodes:(*batch.PodFailurePolicyOnExitCodesRequirement)(nil), OnPodConditions:[]batch.PodFailurePolicyOnPodConditionsPattern(nil)}}}: no`: &batchv1.PodFailurePolicy{
			Rules: []batchv1.PodFailurePolicyRule{{Action: always}},
		},
		`a: Invalid value: v1.LabelSelector{MatchLabels:map[string]string(nil), MatchExpressions:[]v1.LabelSelectorRequirement(nil)}: no`: &metav1.LabelSelector{},
		`a: Invalid value: "v1.Pod": no`:         "v1.Pod",
		`a: Invalid value: "null": no`:           (*batchv1.PodFailurePolicy)(nil),
		`a: Invalid value: []string{"v1.X"}: no`: []string{"v1.X"},
	} {
		errs := validate.Check(func(fld validate.Field) { fld.Invalid("a", value, "no") })
		if got := errs.ToAggregate().Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
