package tolerations_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"binnacle/services/apiserver/internal/admission/plugins/tolerations"
)

// seconds returns a pointer to a value of tolerationSeconds.
func seconds(n int64) *int64 { return &n }

// TestMergeDropsCoveredTolerations checks that a toleration is left out if another one covers
// it.
func TestMergeDropsCoveredTolerations(t *testing.T) {
	type list = []corev1.Toleration
	toleration := corev1.Toleration{Key: "x", Operator: corev1.TolerationOpExists}
	xValue := corev1.Toleration{Key: "x", Operator: corev1.TolerationOpEqual, Value: "1"}
	xOther := corev1.Toleration{Key: "x", Value: "2"}
	xNoExecute := corev1.Toleration{Key: "x", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	long := corev1.Toleration{
		Key:               "x",
		Operator:          corev1.TolerationOpExists,
		Effect:            corev1.TaintEffectNoExecute,
		TolerationSeconds: seconds(9),
	}
	short := corev1.Toleration{
		Key:               "x",
		Operator:          corev1.TolerationOpExists,
		Effect:            corev1.TaintEffectNoExecute,
		TolerationSeconds: seconds(5),
	}
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists}
	y := corev1.Toleration{Key: "y", Operator: corev1.TolerationOpExists}
	for name, test := range map[string]struct{ first, second, want list }{
		"nothing":                         {first: nil, second: nil, want: nil},
		"different keys":                  {first: list{toleration}, second: list{y}, want: list{toleration, y}},
		"the same twice":                  {first: list{toleration, y}, second: list{toleration}, want: list{toleration, y}},
		"a value, and all values":         {first: list{xValue}, second: list{toleration}, want: list{toleration}},
		"two values":                      {first: list{xValue}, second: list{xOther}, want: list{xValue, xOther}},
		"one effect, and all":             {first: list{xNoExecute}, second: list{toleration}, want: list{toleration}},
		"shorter and longer":              {first: list{short}, second: list{long}, want: list{long}},
		"unlimited and for a time":        {first: list{long}, second: list{xNoExecute}, want: list{xNoExecute}},
		"everything covers all":           {first: list{toleration, xValue, long}, second: list{everything, y}, want: list{everything}},
		"all effects cover a time of one": {first: list{toleration}, second: list{short}, want: list{toleration}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tolerations.Merge(test.first, test.second); !apiequality.Semantic.DeepEqual(got, test.want) {
				t.Errorf("Merge(%v, %v) = %v, want %v", test.first, test.second, got, test.want)
			}
		})
	}
}
