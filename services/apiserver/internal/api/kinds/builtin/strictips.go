package builtin

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	content "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
)

// Fields that have always accepted non-canonical addresses and ranges, by kind. The gate
// StrictIPCIDRValidation rejects such values if they are new (KEP-4858).
var (
	legacyAddressFields = map[string][]string{
		"/pods":                           append(podPaths("spec"), "status.podIPs[].ip", "status.hostIPs[].ip"),
		"/podtemplates":                   podPaths("template.spec"),
		"/replicationcontrollers":         podPaths("spec.template.spec"),
		"apps/daemonsets":                 podPaths("spec.template.spec"),
		"apps/deployments":                podPaths("spec.template.spec"),
		"apps/replicasets":                podPaths("spec.template.spec"),
		"apps/statefulsets":               podPaths("spec.template.spec"),
		"batch/jobs":                      podPaths("spec.template.spec"),
		"batch/cronjobs":                  podPaths("spec.jobTemplate.spec.template.spec"),
		"/services":                       {"spec.clusterIPs[]", "spec.externalIPs[]", "status.loadBalancer.ingress[].ip"},
		"/endpoints":                      {"subsets[].addresses[].ip", "subsets[].notReadyAddresses[].ip"},
		"discovery.k8s.io/endpointslices": {"endpoints[].addresses[]"},
		"networking.k8s.io/ingresses":     {"status.loadBalancer.ingress[].ip"},
	}
	legacyRangeFields = map[string][]string{
		"/services": {"spec.loadBalancerSourceRanges[]"},
		"/nodes":    {"spec.podCIDRs[]"},
		"networking.k8s.io/networkpolicies": {
			"spec.ingress[].from[].ipBlock.cidr", "spec.ingress[].from[].ipBlock.except[]",
			"spec.egress[].to[].ipBlock.cidr", "spec.egress[].to[].ipBlock.except[]",
		},
	}
)

func podPaths(spec string) []string {
	return []string{spec + ".hostAliases[].ip", spec + ".dnsConfig.nameservers[]"}
}

// requireCanonicalValues makes a kind reject non-canonical values.
func requireCanonicalValues(kind *registry.Kind) {
	name := kind.Group + "/" + kind.Resource
	if legacyAddressFields[name] == nil && legacyRangeFields[name] == nil {
		return
	}
	withCanonicalRule := func(rules func(obj, old registry.Object) field.ErrorList) func(obj, old registry.Object) field.ErrorList {
		if rules == nil {
			return nil
		}
		return func(obj, old registry.Object) field.ErrorList {
			return append(rules(obj, old), nonCanonicalErrors(name, obj, old)...)
		}
	}
	if create := kind.Create.Validate; create != nil {
		kind.Create.Validate = func(obj registry.Object) field.ErrorList {
			return append(create(obj), nonCanonicalErrors(name, obj, nil)...)
		}
	}
	kind.Update.Validate = withCanonicalRule(kind.Update.Validate)
	for i := range kind.Subresources {
		kind.Subresources[i].ValidateUpdate = withCanonicalRule(kind.Subresources[i].ValidateUpdate)
	}
}

// nonCanonicalErrors returns errors for the non-canonical values of an object that the old one does
// not have in the same field. The kind's own rules reject values that are invalid altogether.
func nonCanonicalErrors(name string, obj, old registry.Object) (errs field.ErrorList) {
	now, before := fieldsOf(obj), fieldsOf(old)
	check := func(paths []string, valid func(at *field.Path, value string, strict bool, old []string) field.ErrorList) {
		for _, path := range paths {
			var known []string
			visitTexts(before, strings.Split(path, "."), nil, func(_ *field.Path, value string) { known = append(known, value) })
			visitTexts(now, strings.Split(path, "."), nil, func(at *field.Path, value string) {
				value = strings.TrimSpace(value)
				if len(valid(at, value, false, nil)) == 0 {
					errs = append(errs, valid(at, value, true, known)...)
				}
			})
		}
	}
	check(legacyAddressFields[name], content.IsValidIPForLegacyField)
	check(legacyRangeFields[name], content.IsValidCIDRForLegacyField)
	return errs
}

// fieldsOf returns an object as a JSON tree, or nil for a nil object.
func fieldsOf(obj registry.Object) map[string]any {
	if obj == nil {
		return nil
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil // such an object has no JSON and is rejected elsewhere
	}
	return out
}

// visitTexts calls found with the strings at a path, in which [] matches every element of a list.
func visitTexts(in any, path []string, at *field.Path, found func(at *field.Path, value string)) {
	if len(path) == 0 {
		if s, ok := in.(string); ok && s != "" && s != "None" {
			found(at, s)
		}
		return
	}
	m, _ := in.(map[string]any)
	name, isList := strings.CutSuffix(path[0], "[]")
	if !isList {
		visitTexts(m[name], path[1:], at.Child(name), found)
		return
	}
	list, _ := m[name].([]any)
	for i, item := range list {
		visitTexts(item, path[1:], at.Child(name).Index(i), found)
	}
}
