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
func TolerationRules(fldPath validate.Path, t *corev1.Toleration) {
	if t.Key != "" {
		fldPath.LabelKey("key", t.Key)
	} else if t.Operator != corev1.TolerationOpExists {
		fldPath.Invalid("operator", t.Operator, `operator must be Exists when `+"`key`"+` is empty, which means "match all values and all keys"`)
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		fldPath.Invalid("effect", t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if msgs := validate.LabelValue(t.Value); len(msgs) > 0 {
			fldPath.Invalid("operator", t.Value, strings.Join(msgs, ";"))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			fldPath.Invalid("operator", t.Value, "value must be empty when `operator` is 'Exists'")
		}
	default:
		validate.OneOf(fldPath, "operator", t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)
	}
	if t.Effect != "" {
		TaintEffect(fldPath, t.Effect)
	}
}

// TaintEffect requires a valid effect of a taint.
func TaintEffect(fldPath validate.Path, e corev1.TaintEffect) {
	validate.RequiredOneOf(fldPath, "effect", e, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
}

func (c *check) spreadRules(fldPath validate.Path) {
	type path struct {
		key  string
		when corev1.UnsatisfiableConstraintAction
	}
	all := c.whole.TopologySpreadConstraints
	last := make(map[path]int, len(all))
	for i := range all {
		last[path{all[i].TopologyKey, all[i].WhenUnsatisfiable}] = i
	}
	for i := range all {
		s, fldPath := &all[i], fldPath.Index("topologySpreadConstraints", i)
		if s.MaxSkew <= 0 {
			fldPath.Invalid("maxSkew", s.MaxSkew, validate.NotPositive)
		}
		if s.TopologyKey == "" {
			fldPath.Required("topologyKey", "can not be empty")
		}
		validate.OneOf(fldPath, "whenUnsatisfiable", s.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)
		if last[path{s.TopologyKey, s.WhenUnsatisfiable}] > i {
			fldPath.Duplicate("{topologyKey, whenUnsatisfiable}", fmt.Sprintf("{%v, %v}", s.TopologyKey, s.WhenUnsatisfiable))
		}
		if n := s.MinDomains; n != nil {
			if *n <= 0 {
				fldPath.Invalid("minDomains", *n, validate.NotPositive)
			}
			if s.WhenUnsatisfiable != corev1.DoNotSchedule {
				fldPath.Invalid("minDomains", *n, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, s.WhenUnsatisfiable))
			}
		}
		validate.OptionalOneOf(fldPath, "nodeAffinityPolicy", s.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		validate.OptionalOneOf(fldPath, "nodeTaintsPolicy", s.NodeTaintsPolicy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
		spreadKeyRules(fldPath, s)
		if !c.kept.spreadSelector {
			fldPath.Selector("labelSelector", s.LabelSelector, false)
		}
	}
}

func spreadKeyRules(fldPath validate.Path, s *corev1.TopologySpreadConstraint) {
	if len(s.MatchLabelKeys) == 0 {
		return
	}
	named := validate.Set[string]{}
	if s.LabelSelector == nil {
		fldPath.Forbidden("matchLabelKeys", needsSelector)
	} else {
		for key := range s.LabelSelector.MatchLabels {
			named.Add(key)
		}
		for _, e := range s.LabelSelector.MatchExpressions {
			named.Add(e.Key)
		}
	}
	validate.Each(fldPath, "matchLabelKeys", s.MatchLabelKeys, func(fldPath validate.Path, key *string) {
		fldPath.LabelKey("", *key)
		if named.Has(*key) {
			fldPath.Invalid("", *key, inSelector)
		}
	})
}

func hasInvalidSpreadSelector(all []corev1.TopologySpreadConstraint) bool {
	return slices.ContainsFunc(all, func(s corev1.TopologySpreadConstraint) bool {
		return len(validate.Check(func(fldPath validate.Path) { fldPath.Selector("labelSelector", s.LabelSelector, false) })) > 0
	})
}

// Limits of the resolver's configuration.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048
)

func (c *check) dnsRules(fldPath validate.Path) {
	d, none := c.whole.DNSConfig, c.whole.DNSPolicy == corev1.DNSNone
	switch {
	case d == nil && none:
		fldPath.Required("dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
		return
	case d == nil:
		return
	}
	fldPath = fldPath.Child("dnsConfig")
	if none && len(d.Nameservers) == 0 {
		fldPath.Required("nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
		return
	}
	if len(d.Nameservers) > maxNameservers {
		fldPath.Invalid("nameservers", d.Nameservers, fmt.Sprintf("must not have more than %v nameservers", maxNameservers))
	}
	validate.Each(fldPath, "nameservers", d.Nameservers, func(fldPath validate.Path, ip *string) { fldPath.IP("", *ip) })
	if len(d.Searches) > maxSearches {
		fldPath.Invalid("searches", d.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearches))
	}
	if len(strings.Join(d.Searches, " ")) > maxSearchLength {
		fldPath.Invalid("searches", d.Searches, fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchLength))
	}
	relaxed := c.anySearch || c.kept.search
	validate.Each(fldPath, "searches", d.Searches, func(fldPath validate.Path, s *string) {
		switch search := strings.TrimSuffix(*s, "."); {
		case !relaxed:
			fldPath.Text("", search, validate.DNSSubdomain)
		case *s != ".":
			fldPath.Text("", search, validate.DNSSubdomainUnderscore)
		}
	})
	validate.Each(fldPath, "options", d.Options, func(fldPath validate.Path, o *corev1.PodDNSConfigOption) {
		if o.Name == "" {
			fldPath.Required("", "must not be empty")
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

func (c *check) affinityRules(fldPath validate.Path, a *corev1.Affinity) {
	validate.Optional(fldPath, "nodeAffinity", a.NodeAffinity, func(fldPath validate.Path, n *corev1.NodeAffinity) {
		validate.Optional(fldPath, "requiredDuringSchedulingIgnoredDuringExecution", n.RequiredDuringSchedulingIgnoredDuringExecution,
			func(fldPath validate.Path, s *corev1.NodeSelector) { NodeSelectorRules(fldPath, s, c.kept.nodeValue) })
		validate.Each(fldPath, "preferredDuringSchedulingIgnoredDuringExecution", n.PreferredDuringSchedulingIgnoredDuringExecution,
			func(fldPath validate.Path, t *corev1.PreferredSchedulingTerm) {
				weightRule(fldPath, t.Weight)
				// A preference that can never be met is harmless.
				nodeTermRules(fldPath.Child("preference"), &t.Preference, true)
			})
	})
	terms := func(fldPath validate.Path, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		validate.Each(fldPath, "requiredDuringSchedulingIgnoredDuringExecution", required, c.podTermRules)
		validate.Each(fldPath, "preferredDuringSchedulingIgnoredDuringExecution", preferred, func(fldPath validate.Path, t *corev1.WeightedPodAffinityTerm) {
			weightRule(fldPath, t.Weight)
			c.podTermRules(fldPath.Child("podAffinityTerm"), &t.PodAffinityTerm)
		})
	}
	validate.Optional(fldPath, "podAffinity", a.PodAffinity, func(fldPath validate.Path, p *corev1.PodAffinity) {
		terms(fldPath, p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	})
	validate.Optional(fldPath, "podAntiAffinity", a.PodAntiAffinity, func(fldPath validate.Path, p *corev1.PodAntiAffinity) {
		terms(fldPath, p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	})
}

func weightRule(fldPath validate.Path, weight int32) {
	if weight <= 0 || weight > maxWeight {
		fldPath.Invalid("weight", weight, weightRange)
	}
}

// NodeSelectorRules validates a node selector. It reports invalid label values only if anyValue is
// false.
func NodeSelectorRules(fldPath validate.Path, s *corev1.NodeSelector, anyValue bool) {
	if len(s.NodeSelectorTerms) == 0 {
		fldPath.Required("nodeSelectorTerms", "must have at least one node selector term")
		return
	}
	validate.Each(fldPath, "nodeSelectorTerms", s.NodeSelectorTerms, func(fldPath validate.Path, t *corev1.NodeSelectorTerm) {
		nodeTermRules(fldPath, t, anyValue)
	})
}

func nodeTermRules(fldPath validate.Path, t *corev1.NodeSelectorTerm, anyValue bool) {
	validate.Each(fldPath, "matchExpressions", t.MatchExpressions, func(fldPath validate.Path, r *corev1.NodeSelectorRequirement) {
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(r.Values) == 0 {
				fldPath.Required("values", "must be specified when `operator` is 'In' or 'NotIn'")
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			fldPath.Absent("values", len(r.Values) > 0, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(r.Values) != 1 {
				fldPath.Required("values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
			}
		default:
			fldPath.Invalid("operator", r.Operator, "not a valid selector operator")
		}
		fldPath.LabelKey("key", r.Key)
		if !anyValue {
			validate.Each(fldPath, "values", r.Values, func(fldPath validate.Path, v *string) { fldPath.Text("", *v, validate.LabelValue) })
		}
	})
	validate.Each(fldPath, "matchFields", t.MatchFields, func(fldPath validate.Path, r *corev1.NodeSelectorRequirement) {
		if r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn {
			fldPath.Invalid("operator", r.Operator, "not a valid selector operator")
		} else if len(r.Values) != 1 {
			fldPath.Required("values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
		if r.Key != metav1.ObjectNameField {
			fldPath.Invalid("key", r.Key, "not a valid field selector key")
			return
		}
		validate.Each(fldPath, "values", r.Values, func(fldPath validate.Path, v *string) { fldPath.Text("", *v, validate.DNSSubdomain) })
	})
}

func (c *check) podTermRules(fldPath validate.Path, t *corev1.PodAffinityTerm) {
	fldPath.Selector("labelSelector", t.LabelSelector, c.kept.affinityValue)
	fldPath.Selector("namespaceSelector", t.NamespaceSelector, c.kept.affinityValue)
	for _, ns := range t.Namespaces {
		fldPath.Text("namespace", ns, validate.DNSLabel)
	}
	matchKeyRules(fldPath, t)
	if t.TopologyKey == "" {
		fldPath.Required("topologyKey", "can not be empty")
	}
	fldPath.LabelKey("topologyKey", t.TopologyKey)
}

const (
	needsSelector = "must not be specified when labelSelector is not set"
	inSelector    = "exists in both matchLabelKeys and labelSelector"
)

// matchKeyRules requires that keys whose values come from the pod's labels do not occur elsewhere
// in the selector. The selector already includes each of them once.
func matchKeyRules(fldPath validate.Path, t *corev1.PodAffinityTerm) {
	for _, list := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", t.MatchLabelKeys}, {"mismatchLabelKeys", t.MismatchLabelKeys}} {
		if len(list.keys) > 0 && t.LabelSelector == nil {
			fldPath.Forbidden(list.name, needsSelector)
			continue
		}
		validate.Each(fldPath, list.name, list.keys, func(fldPath validate.Path, key *string) { fldPath.LabelKey("", *key) })
	}
	if t.LabelSelector != nil {
		named := validate.Set[string]{}
		index := validate.KeyIndex(t.MatchLabelKeys, func(key *string) string { return *key })
		for key := range t.LabelSelector.MatchLabels {
			named.Add(key)
		}
		for _, e := range t.LabelSelector.MatchExpressions {
			if i, listed := index[e.Key]; !named.Add(e.Key) && listed {
				fldPath.Index("", i).Invalid("", e.Key, inSelector)
			}
		}
	}
	mismatch := validate.KeySet(t.MismatchLabelKeys, func(key *string) string { return *key })
	for i, key := range t.MatchLabelKeys {
		if mismatch.Has(key) {
			fldPath.Index("matchLabelKeys", i).Invalid("", key, "exists in both matchLabelKeys and mismatchLabelKeys")
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
