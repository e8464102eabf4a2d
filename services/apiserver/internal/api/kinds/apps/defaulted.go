package apps

import (
	appsv1 "k8s.io/api/apps/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/json/transcode"
)

// replicaSetDefaultedRules returns the rules that determine whether a stored replica set has the
// defaults of defaultReplicaSet.
func replicaSetDefaultedRules() []transcode.Rule {
	return append(poddefaults.TemplateDefaultedRules(), transcode.FieldsSet[appsv1.ReplicaSetSpec]("replicas"))
}

func deploymentDefaultedRules() []transcode.Rule {
	return append(poddefaults.TemplateDefaultedRules(),
		transcode.FieldsSet[appsv1.DeploymentSpec]("replicas", "revisionHistoryLimit", "progressDeadlineSeconds"),
		transcode.FieldsSet[appsv1.DeploymentStrategy]("type"),
		transcode.FieldsPass[appsv1.DeploymentStrategy](func(f [4][]byte) bool {
			return string(f[0]) != string(appsv1.RollingUpdateDeploymentStrategyType) || len(f[1]) > 0
		}, "type", "rollingUpdate"),
		transcode.FieldsSet[appsv1.RollingUpdateDeployment]("maxUnavailable", "maxSurge"),
	)
}
