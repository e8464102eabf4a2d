package apps

import (
	appsv1 "k8s.io/api/apps/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/json/transcode"
)

// filledReplicaSet returns the rules that determine whether a stored replica set has the defaults
// of defaultReplicaSet.
func filledReplicaSet() []transcode.Rule {
	return append(poddefaults.FilledTemplate(), transcode.Filled[appsv1.ReplicaSetSpec]("replicas"))
}

// filledDeployment returns the rules for the defaults of defaultDeployment.
func filledDeployment() []transcode.Rule {
	return append(poddefaults.FilledTemplate(),
		transcode.Filled[appsv1.DeploymentSpec]("replicas", "revisionHistoryLimit", "progressDeadlineSeconds"),
		transcode.Filled[appsv1.DeploymentStrategy]("type"),
		transcode.Checked[appsv1.DeploymentStrategy](func(f [4][]byte) bool {
			return string(f[0]) != string(appsv1.RollingUpdateDeploymentStrategyType) || len(f[1]) > 0
		}, "type", "rollingUpdate"),
		transcode.Filled[appsv1.RollingUpdateDeployment]("maxUnavailable", "maxSurge"),
	)
}
