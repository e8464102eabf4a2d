package core

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry"
)

// version is the version of every kind of the group.
const version = "v1"

// Kinds returns the kinds of the core group, ordered by resource.
func Kinds(settings registry.Settings) []*registry.Kind {
	rules := podspec.NewRules(settings)
	return []*registry.Kind{
		bindings(),
		componentStatuses(),
		configMaps(),
		endpoints(),
		events(),
		limitRanges(),
		namespaces(),
		nodes(),
		persistentVolumeClaims(settings),
		persistentVolumes(settings),
		pods(rules),
		podTemplates(rules),
		replicationControllers(rules),
		resourceQuotas(),
		secrets(),
		serviceAccounts(),
		services(settings),
	}
}

func coreKind(kind string) schema.GroupVersionKind { return schema.GroupVersionKind{Kind: kind} }

// connectVerbs returns the verbs of subresources that open a stream to a pod.
func connectVerbs() []string { return []string{"create", "get"} }

// proxyVerbs returns the verbs of subresources that proxy every method.
func proxyVerbs() []string { return []string{"create", "delete", "get", "patch", "update"} }
