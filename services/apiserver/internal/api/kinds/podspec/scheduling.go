package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"binnacle/services/apiserver/internal/registry/validate"
)

// TolerationRules validates a toleration.
func TolerationRules(at validate.At, t *corev1.Toleration) {
	if t.Key != "" {
		at.LabelKey("key", t.Key)
	} else if t.Operator != corev1.TolerationOpExists {
		at.Invalid("operator", t.Operator, `operator must be Exists when `+"`key`"+` is empty, which means "match all values and all keys"`)
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		at.Invalid("effect", t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if msgs := validate.LabelValue(t.Value); len(msgs) > 0 {
			at.Invalid("operator", t.Value, strings.Join(msgs, ";"))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			at.Invalid("operator", t.Value, "value must be empty when `operator` is 'Exists'")
		}
	default:
		validate.OneOf(at, "operator", t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)
	}
	if t.Effect != "" {
		TaintEffect(at, t.Effect)
	}
}

// TaintEffect requires a valid effect of a taint.
func TaintEffect(at validate.At, e corev1.TaintEffect) {
	validate.RequiredOneOf(at, "effect", e, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}

func (c *check) spreadRules(at validate.At) {
	type place struct {
		key  string
		when corev1.UnsatisfiableConstraintAction
	}
	all := c.whole.TopologySpreadConstraints
	last := make(map[place]int, len(all))
	for i := range all {
		last[place{all[i].TopologyKey, all[i].WhenUnsatisfiable}] = i
	}
	for i := range all {
		s, at := &all[i], at.Index("topologySpreadConstraints", i)
		if s.MaxSkew <= 0 {
			at.Invalid("maxSkew", s.MaxSkew, validate.NotPositive)
		}
		if s.TopologyKey == "" {
			at.Required("topologyKey", "can not be empty")
		}
		validate.OneOf(at, "whenUnsatisfiable", s.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)
		if last[place{s.TopologyKey, s.WhenUnsatisfiable}] > i {
			at.Duplicate("{topologyKey, whenUnsatisfiable}", fmt.Sprintf("{%v, %v}", s.TopologyKey, s.WhenUnsatisfiable))
		}
		if n := s.MinDomains; n != nil {
			if *n <= 0 {
				at.Invalid("minDomains", *n, validate.NotPositive)
			}
			if s.WhenUnsatisfiable != corev1.DoNotSchedule {
				at.Invalid("minDomains", *n, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, s.WhenUnsatisfiable))
			}
		}
		validate.OptionalOneOf(at, "nodeAffinityPolicy", s.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		validate.OptionalOneOf(at, "nodeTaintsPolicy", s.NodeTaintsPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		spreadKeyRules(at, s)
		if !c.kept.spreadSelector {
			at.Selector("labelSelector", s.LabelSelector, false)
		}
	}
}

func spreadKeyRules(at validate.At, s *corev1.TopologySpreadConstraint) {
	if len(s.MatchLabelKeys) == 0 {
		return
	}
	named := validate.Set[string]{}
	if s.LabelSelector == nil {
		at.Forbidden("matchLabelKeys", needsSelector)
	} else {
		for key := range s.LabelSelector.MatchLabels {
			named.Add(key)
		}
		for _, e := range s.LabelSelector.MatchExpressions {
			named.Add(e.Key)
		}
	}
	validate.Each(at, "matchLabelKeys", s.MatchLabelKeys, func(at validate.At, key *string) {
		at.LabelKey("", *key)
		if named.Has(*key) {
			at.Invalid("", *key, inSelector)
		}
	})
}

func hasInvalidSpreadSelector(all []corev1.TopologySpreadConstraint) bool {
	return slices.ContainsFunc(all, func(s corev1.TopologySpreadConstraint) bool {
		return len(validate.Check(func(at validate.At) { at.Selector("labelSelector", s.LabelSelector, false) })) > 0
	})
}

// Limits of the resolver's configuration.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
)

func (c *check) dnsRules(at validate.At) {
	d, none := c.whole.DNSConfig, c.whole.DNSPolicy == corev1.DNSNone
	switch {
	case d == nil && none:
		at.Required("dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
		return
	case d == nil:
		return
	}
	at = at.Child("dnsConfig")
	if none && len(d.Nameservers) == 0 {
		at.Required("nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
		return
	}
	if len(d.Nameservers) > maxNameservers {
		at.Invalid("nameservers", d.Nameservers, fmt.Sprintf("must not have more than %v nameservers", maxNameservers))
	}
	validate.Each(at, "nameservers", d.Nameservers, func(at validate.At, ip *string) { at.IP("", *ip) })
	if len(d.Searches) > maxSearches {
		at.Invalid("searches", d.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearches))
	}
	if len(strings.Join(d.Searches, " ")) > maxSearchLength {
		at.Invalid("searches", d.Searches, fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchLength))
	}
	relaxed := c.anySearch || c.kept.search
	validate.Each(at, "searches", d.Searches, func(at validate.At, s *string) {
		switch search := strings.TrimSuffix(*s, "."); {
		case !relaxed:
			at.Text("", search, validate.DNSSubdomain)
		case *s != ".":
			at.Text("", search, validate.DNSSubdomainUnderscore)
		}
	})
	validate.Each(at, "options", d.Options, func(at validate.At, o *corev1.PodDNSConfigOption) {
		if o.Name == "" {
			at.Required("", "must not be empty")
		}
	})
}

func hasRelaxedSearch(searches []string) bool {
	return slices.ContainsFunc(searches, func(s string) bool {
		return s == "." || strings.Contains(s, "_")
	})
}

const (
	weightRange = "must be in the range 1-100"
	maxWeight   = 100
)

func (c *check) affinityRules(at validate.At, a *corev1.Affinity) {
	validate.Optional(at, "nodeAffinity", a.NodeAffinity, func(at validate.At, n *corev1.NodeAffinity) {
		validate.Optional(at, "requiredDuringSchedulingIgnoredDuringExecution", n.RequiredDuringSchedulingIgnoredDuringExecution,
			func(at validate.At, s *corev1.NodeSelector) { NodeSelectorRules(at, s, c.kept.nodeValue) })
		validate.Each(at, "preferredDuringSchedulingIgnoredDuringExecution", n.PreferredDuringSchedulingIgnoredDuringExecution,
			func(at validate.At, t *corev1.PreferredSchedulingTerm) {
				weightRule(at, t.Weight)
				// A preference that can never be met is harmless.
				nodeTermRules(at.Child("preference"), &t.Preference, true)
			})
	})
	terms := func(at validate.At, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		validate.Each(at, "requiredDuringSchedulingIgnoredDuringExecution", required, c.podTermRules)
		validate.Each(at, "preferredDuringSchedulingIgnoredDuringExecution", preferred, func(at validate.At, t *corev1.WeightedPodAffinityTerm) {
			weightRule(at, t.Weight)
			c.podTermRules(at.Child("podAffinityTerm"), &t.PodAffinityTerm)
		})
	}
	validate.Optional(at, "podAffinity", a.PodAffinity, func(at validate.At, p *corev1.PodAffinity) {
		terms(at, p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	})
	validate.Optional(at, "podAntiAffinity", a.PodAntiAffinity, func(at validate.At, p *corev1.PodAntiAffinity) {
		terms(at, p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	})
}

func weightRule(at validate.At, weight int32) {
	if weight <= 0 || weight > maxWeight {
		at.Invalid("weight", weight, weightRange)
	}
}

// NodeSelectorRules validates a node selector. It reports invalid label values only if anyValue is
// false.
func NodeSelectorRules(at validate.At, s *corev1.NodeSelector, anyValue bool) {
	if len(s.NodeSelectorTerms) == 0 {
		at.Required("nodeSelectorTerms", "must have at least one node selector term")
		return
	}
	validate.Each(at, "nodeSelectorTerms", s.NodeSelectorTerms, func(at validate.At, t *corev1.NodeSelectorTerm) {
		nodeTermRules(at, t, anyValue)
	})
}

func nodeTermRules(at validate.At, t *corev1.NodeSelectorTerm, anyValue bool) {
	validate.Each(at, "matchExpressions", t.MatchExpressions, func(at validate.At, r *corev1.NodeSelectorRequirement) {
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(r.Values) == 0 {
				at.Required("values", "must be specified when `operator` is 'In' or 'NotIn'")
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			at.Absent("values", len(r.Values) > 0, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(r.Values) != 1 {
				at.Required("values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
			}
		default:
			at.Invalid("operator", r.Operator, "not a valid selector operator")
		}
		at.LabelKey("key", r.Key)
		if !anyValue {
			validate.Each(at, "values", r.Values, func(at validate.At, v *string) { at.Text("", *v, validate.LabelValue) })
		}
	})
	validate.Each(at, "matchFields", t.MatchFields, func(at validate.At, r *corev1.NodeSelectorRequirement) {
		if r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn {
			at.Invalid("operator", r.Operator, "not a valid selector operator")
		} else if len(r.Values) != 1 {
			at.Required("values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
		if r.Key != metav1.ObjectNameField {
			at.Invalid("key", r.Key, "not a valid field selector key")
			return
		}
		validate.Each(at, "values", r.Values, func(at validate.At, v *string) { at.Text("", *v, validate.DNSSubdomain) })
	})
}

func (c *check) podTermRules(at validate.At, t *corev1.PodAffinityTerm) {
	at.Selector("labelSelector", t.LabelSelector, c.kept.affinityValue)
	at.Selector("namespaceSelector", t.NamespaceSelector, c.kept.affinityValue)
	for _, ns := range t.Namespaces {
		at.Text("namespace", ns, validate.DNSLabel)
	}
	matchKeyRules(at, t)
	if t.TopologyKey == "" {
		at.Required("topologyKey", "can not be empty")
	}
	at.LabelKey("topologyKey", t.TopologyKey)
}

const (
	needsSelector = "must not be specified when labelSelector is not set"
	inSelector    = "exists in both matchLabelKeys and labelSelector"
)

// matchKeyRules requires that keys whose values come from the pod's labels do not occur elsewhere
// in the selector. The selector already includes each of them once.
func matchKeyRules(at validate.At, t *corev1.PodAffinityTerm) {
	for _, list := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", t.MatchLabelKeys}, {"mismatchLabelKeys", t.MismatchLabelKeys}} {
		if len(list.keys) > 0 && t.LabelSelector == nil {
			at.Forbidden(list.name, needsSelector)
			continue
		}
		validate.Each(at, list.name, list.keys, func(at validate.At, key *string) { at.LabelKey("", *key) })
	}
	if t.LabelSelector != nil {
		named := validate.Set[string]{}
		index := validate.IndexOf(t.MatchLabelKeys, func(key *string) string { return *key })
		for key := range t.LabelSelector.MatchLabels {
			named.Add(key)
		}
		for _, e := range t.LabelSelector.MatchExpressions {
			if i, listed := index[e.Key]; !named.Add(e.Key) && listed {
				at.Index("", i).Invalid("", e.Key, inSelector)
			}
		}
	}
	mismatch := validate.SetOf(t.MismatchLabelKeys, func(key *string) string { return *key })
	for i, key := range t.MatchLabelKeys {
		if mismatch.Has(key) {
			at.Index("matchLabelKeys", i).Invalid("", key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

// podTerms calls visit with every pod affinity term.
func podTerms(a *corev1.Affinity, visit func(*corev1.PodAffinityTerm)) {
	if a == nil {
		return
	}
	all := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i := range required {
			visit(&required[i])
		}
		for i := range preferred {
			visit(&preferred[i].PodAffinityTerm)
		}
	}
	if p := a.PodAffinity; p != nil {
		all(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		all(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

func hasInvalidAffinityValue(a *corev1.Affinity) (found bool) {
	podTerms(a, func(t *corev1.PodAffinityTerm) {
		found = found || metav1validation.LabelSelectorHasInvalidLabelValue(t.LabelSelector) ||
			metav1validation.LabelSelectorHasInvalidLabelValue(t.NamespaceSelector)
	})
	return found
}

func hasInvalidNodeValue(a *corev1.Affinity) bool {
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	bad := func(v string) bool { return len(validate.LabelValue(v)) > 0 }
	for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range t.MatchExpressions {
			if slices.ContainsFunc(e.Values, bad) {
				return true
			}
		}
	}
	return false
}
