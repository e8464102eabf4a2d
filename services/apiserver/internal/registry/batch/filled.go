package batch

import (
	batchv1 "k8s.io/api/batch/v1"

	"binnacle/services/apiserver/internal/registry/podspec"
	"binnacle/services/apiserver/internal/transcode"
)

// labelsNumber is the field of the labels in the metadata of any object.
const labelsNumber = 11

// filledJob are the rules by which a stored job is seen to be as defaultJob leaves
// it.
func filledJob() []transcode.Rule {
	return append(podspec.FilledTemplate(),
		transcode.Checked[batchv1.Job](func(f [4][]byte) bool {
			labelled := false
			ok := transcode.Each(f[0], labelsNumber, func([]byte) bool { labelled = true; return true })
			return ok && labelled
		}, "metadata"),
		transcode.Filled[batchv1.JobSpec]("parallelism", "backoffLimit", "completionMode", "suspend", "manualSelector", "podReplacementPolicy"),
		transcode.Filled[batchv1.PodFailurePolicyOnPodConditionsPattern]("status"),
	)
}
