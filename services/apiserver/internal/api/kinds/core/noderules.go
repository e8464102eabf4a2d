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

// nodeRules validates any node.
func nodeRules(fldPath validate.Path, n *corev1.Node) {
	nodeAnnotations(fldPath, n)
	taintRules(fldPath.Child("metadata"), "taints", n.Spec.Taints)
	nodeResources(fldPath, n)
	spec := fldPath.Child("spec")
	validate.Each(spec, "podCIDRs", n.Spec.PodCIDRs, func(fldPath validate.Path, r *string) { fldPath.CIDR("", *r) })
	if len(n.Spec.PodCIDRs) > 1 {
		spec.DualStackCIDRs("podCIDRs", n.Spec.PodCIDRs)
	}
}

func nodeAnnotations(fldPath validate.Path, n *corev1.Node) {
	place := fldPath.Child("metadata", "annotations")
	if text := n.Annotations[taintsAnnotation]; text != "" {
		var taints []corev1.Taint
		if err := json.Unmarshal([]byte(text), &taints); err != nil {
			place.Invalid("", taintsAnnotation, err.Error())
		}
		taintRules(place, taintsAnnotation, taints)
	}
	text := n.Annotations[corev1.PreferAvoidPodsAnnotationKey]
	if text == "" {
		return
	}
	var avoid corev1.AvoidPods
	if err := json.Unmarshal([]byte(text), &avoid); err != nil {
		place.Invalid("AvoidPods", corev1.PreferAvoidPodsAnnotationKey, err.Error())
		return
	}
	validate.Each(place, corev1.PreferAvoidPodsAnnotationKey, avoid.PreferAvoidPods, func(fldPath validate.Path, e *corev1.PreferAvoidPodsEntry) {
		owner := e.PodSignature.PodController
		if owner == nil {
			fldPath.Required("PodSignature", "")
		} else if owner.Controller == nil || !*owner.Controller {
			fldPath.Child("PodSignature", "PodController").Invalid("Controller", false, "must point to a controller")
		}
	})
}

func taintRules(fldPath validate.Path, name string, taints []corev1.Taint) {
	type key struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := validate.Set[key]{}
	validate.Each(fldPath, name, taints, func(fldPath validate.Path, t *corev1.Taint) {
		fldPath.LabelKey("key", t.Key)
		if msgs := validate.LabelValue(t.Value); len(msgs) > 0 {
			fldPath.Invalid("value", t.Value, strings.Join(msgs, ";"))
		}
		podspec.TaintEffect(fldPath, t.Effect)
		if !seen.Add(key{t.Key, t.Effect}) {
			fldPath.DuplicateWithDetail("", *t, "taints must be unique by key and effect pair")
		}
	})
}

// nodeResources reports paths with dots instead of brackets, as in Kubernetes.
func nodeResources(fldPath validate.Path, n *corev1.Node) {
	for _, list := range []struct {
		name      string
		resources corev1.ResourceList
	}{{"capacity", n.Status.Capacity}, {"allocatable", n.Status.Allocatable}} {
		validate.EachKey(fldPath.Child("status"), list.name, list.resources, func(_ validate.Path, name corev1.ResourceName, q resource.Quantity) {
			podspec.ResourceQuantity(fldPath.Child("status", list.name, string(name)), name, q)
		})
	}
}

// nodeChanges rejects changes of assigned values. It also runs when the status changes.
func nodeChanges(fldPath validate.Path, n, old *corev1.Node) {
	nodeAnnotations(fldPath, n)
	nodeResources(fldPath, n)
	addresses := validate.Set[corev1.NodeAddress]{}
	validate.Each(fldPath.Child("status"), "addresses", n.Status.Addresses, func(fldPath validate.Path, a *corev1.NodeAddress) {
		if !addresses.Add(*a) {
			fldPath.Duplicate("", *a)
		}
	})
	spec := fldPath.Child("spec")
	rangeChanges(spec, n.Spec.PodCIDRs, old.Spec.PodCIDRs)
	spec.Absent("providerID", old.Spec.ProviderID != "" && old.Spec.ProviderID != n.Spec.ProviderID,
		`node updates may not change providerID except from "" to valid`)
	validate.Optional(spec, "configSource", n.Spec.ConfigSource, func(fldPath validate.Path, s *corev1.NodeConfigSource) {
		configSourceRules(fldPath, s, false)
	})
	validate.Optional(fldPath.Child("status"), "config", n.Status.Config, func(fldPath validate.Path, s *corev1.NodeConfigStatus) {
		source := func(fldPath validate.Path, s *corev1.NodeConfigSource) { configSourceRules(fldPath, s, true) }
		validate.Optional(fldPath, "assigned", s.Assigned, source)
		validate.Optional(fldPath, "active", s.Active, source)
		validate.Optional(fldPath, "lastKnownGood", s.LastKnownGood, source)
	})
	taintRules(fldPath.Child("metadata"), "taints", n.Spec.Taints)
	spec.Absent("externalID", n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID, "may not be updated")
}

func rangeChanges(fldPath validate.Path, now, before []string) {
	const detail = `node updates may not change podCIDR except from "" to valid`
	switch {
	case len(before) == 0:
	case len(now) != len(before):
		fldPath.Forbidden("podCIDRs", detail)
	default:
		for i := range before {
			fldPath.Absent("podCIDRs", now[i] != before[i], detail)
		}
	}
}

// configSourceRules validates a configuration source in a config map. exact requires the fields
// that only the status has.
func configSourceRules(fldPath validate.Path, s *corev1.NodeConfigSource, exact bool) {
	if s.ConfigMap == nil {
		fldPath.Invalid("", *s, "exactly one reference subfield must be non-nil")
		return
	}
	c, fldPath := s.ConfigMap, fldPath.Child("configMap")
	if exact {
		if c.UID == "" {
			fldPath.Required("uid", "uid must be set in status")
		}
		if c.ResourceVersion == "" {
			fldPath.Required("resourceVersion", "resourceVersion must be set in status")
		}
	} else {
		fldPath.Absent("uid", c.UID != "", "uid must not be set in spec")
		fldPath.Absent("resourceVersion", c.ResourceVersion != "", "resourceVersion must not be set in spec")
	}
	for _, f := range []struct {
		name, value string
		format      validate.Format
	}{
		{name: "namespace", value: c.Namespace, format: validate.DNSLabel},
		{name: "name", value: c.Name, format: validate.DNSSubdomain},
		{name: "kubeletConfigKey", value: c.KubeletConfigKey, format: validate.DataKey},
	} {
		if f.value == "" {
			fldPath.Required(f.name, f.name+" must be set")
		} else {
			fldPath.Text(f.name, f.value, f.format)
		}
	}
}
