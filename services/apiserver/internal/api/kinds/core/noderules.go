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
func nodeRules(at validate.At, n *corev1.Node) {
	nodeAnnotations(at, n)
	taintRules(at.Child("metadata"), "taints", n.Spec.Taints)
	nodeResources(at, n)
	spec := at.Child("spec")
	validate.Each(spec, "podCIDRs", n.Spec.PodCIDRs, func(at validate.At, r *string) { at.CIDR("", *r) })
	if len(n.Spec.PodCIDRs) < 2 {
		return
	}
	spec.DualStackCIDRs("podCIDRs", n.Spec.PodCIDRs)
	seen := validate.Set[string]{}
	validate.Each(spec, "podCIDRs", n.Spec.PodCIDRs, func(at validate.At, r *string) { validate.Unique(at, "", *r, seen) })
}

func nodeAnnotations(at validate.At, n *corev1.Node) {
	place := at.Child("metadata", "annotations")
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
	validate.Each(place, corev1.PreferAvoidPodsAnnotationKey, avoid.PreferAvoidPods, func(at validate.At, e *corev1.PreferAvoidPodsEntry) {
		owner := e.PodSignature.PodController
		if owner == nil {
			at.Required("PodSignature", "")
		} else if owner.Controller == nil || !*owner.Controller {
			at.Child("PodSignature", "PodController").Invalid("Controller", false, "must point to a controller")
		}
	})
}

func taintRules(at validate.At, name string, taints []corev1.Taint) {
	type key struct {
		key    string
		effect corev1.TaintEffect
	}
	seen := validate.Set[key]{}
	validate.Each(at, name, taints, func(at validate.At, t *corev1.Taint) {
		at.LabelKey("key", t.Key)
		if msgs := validate.LabelValue(t.Value); len(msgs) > 0 {
			at.Invalid("value", t.Value, strings.Join(msgs, ";"))
		}
		podspec.TaintEffect(at, t.Effect)
		if !seen.Add(key{t.Key, t.Effect}) {
			at.DuplicateOf("", *t, "taints must be unique by key and effect pair")
		}
	})
}

// nodeResources reports paths with dots instead of brackets, as in Kubernetes.
func nodeResources(at validate.At, n *corev1.Node) {
	for _, list := range []struct {
		name      string
		resources corev1.ResourceList
	}{{"capacity", n.Status.Capacity}, {"allocatable", n.Status.Allocatable}} {
		validate.EachKey(at.Child("status"), list.name, list.resources, func(_ validate.At, name corev1.ResourceName, q resource.Quantity) {
			podspec.ResourceQuantity(at.Child("status", list.name, string(name)), name, q)
		})
	}
}

// nodeChanges rejects changes of assigned values. It also runs when the status changes.
func nodeChanges(at validate.At, n, old *corev1.Node) {
	nodeAnnotations(at, n)
	nodeResources(at, n)
	addresses := validate.Set[corev1.NodeAddress]{}
	validate.Each(at.Child("status"), "addresses", n.Status.Addresses, func(at validate.At, a *corev1.NodeAddress) {
		if !addresses.Add(*a) {
			at.Duplicate("", *a)
		}
	})
	spec := at.Child("spec")
	rangeChanges(spec, n.Spec.PodCIDRs, old.Spec.PodCIDRs)
	spec.Absent("providerID", old.Spec.ProviderID != "" && old.Spec.ProviderID != n.Spec.ProviderID,
		`node updates may not change providerID except from "" to valid`)
	validate.Optional(spec, "configSource", n.Spec.ConfigSource, func(at validate.At, s *corev1.NodeConfigSource) {
		configSourceRules(at, s, false)
	})
	validate.Optional(at.Child("status"), "config", n.Status.Config, func(at validate.At, s *corev1.NodeConfigStatus) {
		source := func(at validate.At, s *corev1.NodeConfigSource) { configSourceRules(at, s, true) }
		validate.Optional(at, "assigned", s.Assigned, source)
		validate.Optional(at, "active", s.Active, source)
		validate.Optional(at, "lastKnownGood", s.LastKnownGood, source)
	})
	taintRules(at.Child("metadata"), "taints", n.Spec.Taints)
	spec.Absent("externalID", n.Spec.DoNotUseExternalID != old.Spec.DoNotUseExternalID, "may not be updated")
}

func rangeChanges(at validate.At, now, before []string) {
	const detail = `node updates may not change podCIDR except from "" to valid`
	switch {
	case len(before) == 0:
	case len(now) != len(before):
		at.Forbidden("podCIDRs", detail)
	default:
		for i := range before {
			at.Absent("podCIDRs", now[i] != before[i], detail)
		}
	}
}

// configSourceRules validates a configuration source in a config map. exact requires the fields
// that only the status has.
func configSourceRules(at validate.At, s *corev1.NodeConfigSource, exact bool) {
	if s.ConfigMap == nil {
		at.Invalid("", *s, "exactly one reference subfield must be non-nil")
		return
	}
	c, at := s.ConfigMap, at.Child("configMap")
	if exact {
		if c.UID == "" {
			at.Required("uid", "uid must be set in status")
		}
		if c.ResourceVersion == "" {
			at.Required("resourceVersion", "resourceVersion must be set in status")
		}
	} else {
		at.Absent("uid", c.UID != "", "uid must not be set in spec")
		at.Absent("resourceVersion", c.ResourceVersion != "", "resourceVersion must not be set in spec")
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
			at.Required(f.name, f.name+" must be set")
		} else {
			at.Text(f.name, f.value, f.format)
		}
	}
}
