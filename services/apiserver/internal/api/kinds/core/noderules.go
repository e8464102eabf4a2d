package core

import (
	"encoding/json"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
)

const taintsAnnotation = "scheduler.alpha.kubernetes.io/taints"

func validateNode(fld validate.Field, node *corev1.Node) {
	validateNodeAnnotations(fld, node)
	validateTaints(fld.Child("metadata"), "taints", node.Spec.Taints)
	validateNodeResources(fld, node)
	spec := fld.Child("spec")
	validate.Each(spec, "podCIDRs", node.Spec.PodCIDRs, func(fld validate.Field, r *string) { fld.CheckCIDR("", *r) })
	if len(node.Spec.PodCIDRs) > 1 {
		spec.CheckDualStackCIDRs("podCIDRs", node.Spec.PodCIDRs)
	}
}

// validateNodeAnnotations validates the JSON in annotations of older versions.
func validateNodeAnnotations(fld validate.Field, node *corev1.Node) {
	path := fld.Child("metadata", "annotations")
	if text := node.Annotations[taintsAnnotation]; text != "" {
		var taints []corev1.Taint
		if err := json.Unmarshal([]byte(text), &taints); err != nil {
			path.Invalid("", taintsAnnotation, err.Error())
		}
		validateTaints(path, taintsAnnotation, taints)
	}
	text := node.Annotations[corev1.PreferAvoidPodsAnnotationKey]
	if text == "" {
		return
	}
	var avoid corev1.AvoidPods
	if err := json.Unmarshal([]byte(text), &avoid); err != nil {
		path.Invalid("AvoidPods", corev1.PreferAvoidPodsAnnotationKey, err.Error())
		return
	}
	validate.Each(
		path,
		corev1.PreferAvoidPodsAnnotationKey,
		avoid.PreferAvoidPods,
		func(fld validate.Field, e *corev1.PreferAvoidPodsEntry) {
			owner := e.PodSignature.PodController
			if owner == nil {
				fld.Required("PodSignature", "")
			} else if owner.Controller == nil || !*owner.Controller {
				fld.Child("PodSignature", "PodController").Invalid("Controller", false, "must point to a controller")
			}
		},
	)
}

// validateTaints requires valid taints that differ in key or effect.
func validateTaints(fld validate.Field, name string, taints []corev1.Taint) {
	type taintKey struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := validate.Set[taintKey]{}
	validate.Each(fld, name, taints, func(fld validate.Field, taint *corev1.Taint) {
		fld.CheckLabelKey("key", taint.Key)
		if msgs := validate.LabelValue(taint.Value); len(msgs) > 0 {
			fld.Invalid("value", taint.Value, strings.Join(msgs, ";"))
		}
		podspec.ValidateTaintEffect(fld, taint.Effect)
		if !seen.Add(taintKey{taint.Key, taint.Effect}) {
			fld.DuplicateWithDetail("", *taint, "taints must be unique by key and effect pair")
		}
	})
}

// validateNodeResources validates the quantities of resources. As in Kubernetes, it reports paths with
// dots instead of brackets.
func validateNodeResources(fld validate.Field, node *corev1.Node) {
	for _, list := range []struct {
		name      string
		resources corev1.ResourceList
	}{{"capacity", node.Status.Capacity}, {"allocatable", node.Status.Allocatable}} {
		validate.EachKey(
			fld.Child("status"),
			list.name,
			list.resources,
			func(_ validate.Field, name corev1.ResourceName, q resource.Quantity) {
				podspec.ValidateResourceQuantity(fld.Child("status", list.name, string(name)), name, q)
			},
		)
	}
}

// validateNodeChanges rejects changes of assigned values. It also runs when the status changes.
func validateNodeChanges(fld validate.Field, node, old *corev1.Node) {
	validateNodeAnnotations(fld, node)
	validateNodeResources(fld, node)
	addresses := validate.Set[corev1.NodeAddress]{}
	validate.Each(fld.Child("status"), "addresses", node.Status.Addresses, func(fld validate.Field, a *corev1.NodeAddress) {
		if !addresses.Add(*a) {
			fld.Duplicate("", *a)
		}
	})
	spec := fld.Child("spec")
	validatePodCIDRChanges(spec, node.Spec.PodCIDRs, old.Spec.PodCIDRs)
	spec.ForbidSet("providerID", old.Spec.ProviderID != "" && old.Spec.ProviderID != node.Spec.ProviderID,
		`node updates may not change providerID except from "" to valid`)
	validate.Optional(spec, "configSource", node.Spec.ConfigSource, func(fld validate.Field, status *corev1.NodeConfigSource) {
		validateConfigSource(fld, status, inSpec)
	})
	validate.Optional(fld.Child("status"), "config", node.Status.Config, func(fld validate.Field, status *corev1.NodeConfigStatus) {
		validateSource := func(fld validate.Field, status *corev1.NodeConfigSource) { validateConfigSource(fld, status, inStatus) }
		validate.Optional(fld, "assigned", status.Assigned, validateSource)
		validate.Optional(fld, "active", status.Active, validateSource)
		validate.Optional(fld, "lastKnownGood", status.LastKnownGood, validateSource)
	})
	validateTaints(fld.Child("metadata"), "taints", node.Spec.Taints)
	spec.ForbidSet("externalID", node.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID, "may not be updated")
}

// validatePodCIDRChanges allows setting the ranges of a node once.
func validatePodCIDRChanges(fld validate.Field, now, before []string) {
	const detail = `node updates may not change podCIDR except from "" to valid`
	switch {
	case len(before) == 0:
	case len(now) != len(before):
		fld.Forbidden("podCIDRs", detail)
	default:
		for i := range before {
			fld.ForbidSet("podCIDRs", now[i] != before[i], detail)
		}
	}
}

// Where a configuration source is.
const (
	inStatus = true
	inSpec   = false
)

// validateConfigSource validates a configuration source in a config map. The status must identify the
// version of the config map, the spec must not.
func validateConfigSource(fld validate.Field, configSource *corev1.NodeConfigSource, inStatus bool) {
	if configSource.ConfigMap == nil {
		fld.Invalid("", *configSource, "exactly one reference subfield must be non-nil")
		return
	}
	source, fld := configSource.ConfigMap, fld.Child("configMap")
	if inStatus {
		if source.UID == "" {
			fld.Required("uid", "uid must be set in status")
		}
		if source.ResourceVersion == "" {
			fld.Required("resourceVersion", "resourceVersion must be set in status")
		}
	} else {
		fld.ForbidSet("uid", source.UID != "", "uid must not be set in spec")
		fld.ForbidSet("resourceVersion", source.ResourceVersion != "", "resourceVersion must not be set in spec")
	}
	for _, f := range []struct {
		name, value string
		format      validate.Format
	}{
		{name: "namespace", value: source.Namespace, format: validate.DNSLabel},
		{name: "name", value: source.Name, format: validate.DNSSubdomain},
		{name: "kubeletConfigKey", value: source.KubeletConfigKey, format: validate.DataKey},
	} {
		if f.value == "" {
			fld.Required(f.name, f.name+" must be set")
		} else {
			fld.CheckText(f.name, f.value, f.format)
		}
	}
}
