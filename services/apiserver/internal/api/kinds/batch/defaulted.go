package batch

import (
	batchv1 "k8s.io/api/batch/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/json/transcode"
)

// labelsNumber is the protobuf field number of the labels in object metadata.
const labelsNumber = 11

// jobDefaultedRules returns the rules that determine whether a stored job has the defaults of
// defaultJob.
func jobDefaultedRules() []transcode.Rule {
	return append(
		poddefaults.TemplateDefaultedRules(),
		transcode.FieldsPass[batchv1.Job](func(f [4][]byte) bool {
			labeled := false
			ok := transcode.Each(f[0], labelsNumber, func([]byte) bool { labeled = true; return true })
			return ok && labeled
		}, "metadata"),
		transcode.FieldsSet[batchv1.JobSpec](
			"parallelism",
			"backoffLimit",
			"completionMode",
			"suspend",
			"manualSelector",
			"podReplacementPolicy",
		),
		transcode.FieldsSet[batchv1.PodFailurePolicyOnPodConditionsPattern]("status"),
	)
}
