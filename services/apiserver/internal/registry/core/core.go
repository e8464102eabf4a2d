package core

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/podspec"
)

// Version of every kind of the group.
const version = "v1"

// Kinds of the core group, in the order of their resources.
func Kinds(s registry.Settings) []*registry.Kind {
	rules := podspec.NewRules(s)
	return []*registry.Kind{
		bindings(),
		componentStatuses(),
		configMaps(),
		endpoints(),
		events(),
		limitRanges(),
		namespaces(),
		nodes(),
		persistentVolumeClaims(s),
		persistentVolumes(s),
		pods(rules),
		podTemplates(rules),
		replicationControllers(rules),
		resourceQuotas(),
		secrets(),
		serviceAccounts(),
		services(s),
	}
}

// own names a kind of the group itself.
func own(kind string) schema.GroupVersionKind { return schema.GroupVersionKind{Kind: kind} }

// connectVerbs are the verbs of sub-resources that open a stream to a pod.
func connectVerbs() []string { return []string{"create", "get"} }

// proxyVerbs are the verbs of sub-resources that pass every method on.
func proxyVerbs() []string { return []string{"create", "delete", "get", "patch", "update"} }
