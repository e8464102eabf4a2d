package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

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
