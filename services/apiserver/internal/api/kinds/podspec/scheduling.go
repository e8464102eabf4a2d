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
func TolerationRules(fld validate.Field, t *corev1.Toleration) {
	if t.Key != "" {
		fld.CheckLabelKey("key", t.Key)
	} else if t.Operator != corev1.TolerationOpExists {
		fld.Invalid("operator", t.Operator, `operator must be Exists when `+"`key`"+` is empty, which means "match all values and all keys"`)
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		fld.Invalid("effect", t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if msgs := validate.LabelValue(t.Value); len(msgs) > 0 {
			fld.Invalid("operator", t.Value, strings.Join(msgs, ";"))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			fld.Invalid("operator", t.Value, "value must be empty when `operator` is 'Exists'")
		}
	default:
		validate.OneOf(fld, "operator", t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)
	}
	if t.Effect != "" {
		ValidateTaintEffect(fld, t.Effect)
	}
}

// ValidateTaintEffect requires a valid effect of a taint.
func ValidateTaintEffect(fld validate.Field, e corev1.TaintEffect) {
	validate.RequiredOneOf(fld, "effect", e, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
		corev1.TaintEffectNoExecute)
}

// validateSpreadConstraints validates the constraints, which must differ in topology or action. Of
// equal constraints, all but the last are reported as duplicates.
func (c *check) validateSpreadConstraints(fld validate.Field) {
	type constraintKey struct {
		topologyKey       string
		whenUnsatisfiable corev1.UnsatisfiableConstraintAction
	}
	constraints := c.spec.TopologySpreadConstraints
	lastIndex := make(map[constraintKey]int, len(constraints))
	for i := range constraints {
		lastIndex[constraintKey{constraints[i].TopologyKey, constraints[i].WhenUnsatisfiable}] = i
	}
	for i := range constraints {
		s, fld := &constraints[i], fld.Index("topologySpreadConstraints", i)
		if s.MaxSkew <= 0 {
			fld.Invalid("maxSkew", s.MaxSkew, validate.NotPositive)
		}
		if s.TopologyKey == "" {
			fld.Required("topologyKey", "can not be empty")
		}
		validate.OneOf(fld, "whenUnsatisfiable", s.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)
		if lastIndex[constraintKey{s.TopologyKey, s.WhenUnsatisfiable}] > i {
			fld.Duplicate("{topologyKey, whenUnsatisfiable}", fmt.Sprintf("{%v, %v}", s.TopologyKey, s.WhenUnsatisfiable))
		}
		if n := s.MinDomains; n != nil {
			if *n <= 0 {
				fld.Invalid("minDomains", *n, validate.NotPositive)
			}
			if s.WhenUnsatisfiable != corev1.DoNotSchedule {
				fld.Invalid("minDomains", *n,
					fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, s.WhenUnsatisfiable))
			}
		}
		validate.OptionalOneOf(fld, "nodeAffinityPolicy", s.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor,
			corev1.NodeInclusionPolicyIgnore)
		validate.OptionalOneOf(fld, "nodeTaintsPolicy", s.NodeTaintsPolicy, corev1.NodeInclusionPolicyHonor,
			corev1.NodeInclusionPolicyIgnore)
		validateSpreadKeys(fld, s)
		if !c.prior.spreadSelector {
			fld.CheckSelector("labelSelector", s.LabelSelector, false)
		}
	}
}

// validateSpreadKeys requires that matchLabelKeys holds no key of the constraint's own selector.
func validateSpreadKeys(fld validate.Field, s *corev1.TopologySpreadConstraint) {
	if len(s.MatchLabelKeys) == 0 {
		return
	}
	selectorKeys := validate.Set[string]{}
	if s.LabelSelector == nil {
		fld.Forbidden("matchLabelKeys", needsSelectorDetail)
	} else {
		for key := range s.LabelSelector.MatchLabels {
			selectorKeys.Add(key)
		}
		for _, e := range s.LabelSelector.MatchExpressions {
			selectorKeys.Add(e.Key)
		}
	}
	validate.Each(fld, "matchLabelKeys", s.MatchLabelKeys, func(fld validate.Field, key *string) {
		fld.CheckLabelKey("", *key)
		if selectorKeys.Has(*key) {
			fld.Invalid("", *key, inSelectorDetail)
		}
	})
}

// hasInvalidSpreadSelector reports whether the selector of any constraint is invalid.
func hasInvalidSpreadSelector(all []corev1.TopologySpreadConstraint) bool {
	return slices.ContainsFunc(all, func(s corev1.TopologySpreadConstraint) bool {
		return len(validate.Check(func(fld validate.Field) { fld.CheckSelector("labelSelector", s.LabelSelector, false) })) > 0
	})
}

// Limits of the resolver's configuration.
const (
	maxNameservers  = 3
	maxSearches     = 32
	maxSearchLength = 2048 // bytes of all search paths, separated by spaces
)

// validateDNS validates the resolver's configuration. The policy None requires one with nameservers.
func (c *check) validateDNS(fld validate.Field) {
	d, isPolicyNone := c.spec.DNSConfig, c.spec.DNSPolicy == corev1.DNSNone
	switch {
	case d == nil && isPolicyNone:
		fld.Required("dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
		return
	case d == nil:
		return
	}
	fld = fld.Child("dnsConfig")
	if isPolicyNone && len(d.Nameservers) == 0 {
		fld.Required("nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
		return
	}
	if len(d.Nameservers) > maxNameservers {
		fld.Invalid("nameservers", d.Nameservers, fmt.Sprintf("must not have more than %v nameservers", maxNameservers))
	}
	validate.Each(fld, "nameservers", d.Nameservers, func(fld validate.Field, ip *string) { fld.CheckIP("", *ip) })
	if len(d.Searches) > maxSearches {
		fld.Invalid("searches", d.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearches))
	}
	if len(strings.Join(d.Searches, " ")) > maxSearchLength {
		fld.Invalid("searches", d.Searches,
			fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchLength))
	}
	allowRelaxed := c.relaxedSearch || c.prior.search
	validate.Each(fld, "searches", d.Searches, func(fld validate.Field, s *string) {
		switch search := strings.TrimSuffix(*s, "."); {
		case !allowRelaxed:
			fld.CheckText("", search, validate.DNSSubdomain)
		case *s != ".":
			fld.CheckText("", search, validate.DNSSubdomainUnderscore)
		}
	})
	validate.Each(fld, "options", d.Options, func(fld validate.Field, o *corev1.PodDNSConfigOption) {
		if o.Name == "" {
			fld.Required("", "must not be empty")
		}
	})
}

// hasRelaxedSearch reports whether a search path is valid only with relaxed rules.
func hasRelaxedSearch(searches []string) bool {
	return slices.ContainsFunc(searches, func(s string) bool {
		return s == "." || strings.Contains(s, "_")
	})
}

// maxWeight is the maximum weight of a preferred term. The minimum is 1.
const maxWeight = 100

// validateAffinity validates node affinity, pod affinity and pod anti-affinity.
func (c *check) validateAffinity(fld validate.Field, a *corev1.Affinity) {
	validate.Optional(fld, "nodeAffinity", a.NodeAffinity, func(fld validate.Field, n *corev1.NodeAffinity) {
		validate.Optional(fld, "requiredDuringSchedulingIgnoredDuringExecution", n.RequiredDuringSchedulingIgnoredDuringExecution,
			func(fld validate.Field, s *corev1.NodeSelector) { ValidateNodeSelector(fld, s, c.prior.nodeValue) })
		validate.Each(fld, "preferredDuringSchedulingIgnoredDuringExecution", n.PreferredDuringSchedulingIgnoredDuringExecution,
			func(fld validate.Field, t *corev1.PreferredSchedulingTerm) {
				validateWeight(fld, t.Weight)
				// A preference that no node satisfies is harmless, so its label values may be invalid.
				validateNodeSelectorTerm(fld.Child("preference"), &t.Preference, true)
			})
	})
	validateTerms := func(fld validate.Field, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		validate.Each(fld, "requiredDuringSchedulingIgnoredDuringExecution", required, c.validatePodAffinityTerm)
		validate.Each(
			fld,
			"preferredDuringSchedulingIgnoredDuringExecution",
			preferred,
			func(fld validate.Field, t *corev1.WeightedPodAffinityTerm) {
				validateWeight(fld, t.Weight)
				c.validatePodAffinityTerm(fld.Child("podAffinityTerm"), &t.PodAffinityTerm)
			},
		)
	}
	validate.Optional(fld, "podAffinity", a.PodAffinity, func(fld validate.Field, p *corev1.PodAffinity) {
		validateTerms(fld, p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	})
	validate.Optional(fld, "podAntiAffinity", a.PodAntiAffinity, func(fld validate.Field, p *corev1.PodAntiAffinity) {
		validateTerms(fld, p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	})
}

func validateWeight(fld validate.Field, weight int32) {
	if weight <= 0 || weight > maxWeight {
		fld.Invalid("weight", weight, "must be in the range 1-100")
	}
}

// ValidateNodeSelector validates a node selector. It reports invalid label values only if anyValue
// is false.
func ValidateNodeSelector(fld validate.Field, s *corev1.NodeSelector, anyValue bool) {
	if len(s.NodeSelectorTerms) == 0 {
		fld.Required("nodeSelectorTerms", "must have at least one node selector term")
		return
	}
	validate.Each(fld, "nodeSelectorTerms", s.NodeSelectorTerms, func(fld validate.Field, t *corev1.NodeSelectorTerm) {
		validateNodeSelectorTerm(fld, t, anyValue)
	})
}

func validateNodeSelectorTerm(fld validate.Field, t *corev1.NodeSelectorTerm, anyValue bool) {
	validate.Each(fld, "matchExpressions", t.MatchExpressions, func(fld validate.Field, r *corev1.NodeSelectorRequirement) {
		switch r.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(r.Values) == 0 {
				fld.Required("values", "must be specified when `operator` is 'In' or 'NotIn'")
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			fld.ForbidSet("values", len(r.Values) > 0, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(r.Values) != 1 {
				fld.Required("values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
			}
		default:
			fld.Invalid("operator", r.Operator, "not a valid selector operator")
		}
		fld.CheckLabelKey("key", r.Key)
		if !anyValue {
			validate.Each(fld, "values", r.Values, func(fld validate.Field, v *string) { fld.CheckText("", *v, validate.LabelValue) })
		}
	})
	validate.Each(fld, "matchFields", t.MatchFields, func(fld validate.Field, r *corev1.NodeSelectorRequirement) {
		if r.Operator != corev1.NodeSelectorOpIn && r.Operator != corev1.NodeSelectorOpNotIn {
			fld.Invalid("operator", r.Operator, "not a valid selector operator")
		} else if len(r.Values) != 1 {
			fld.Required("values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
		if r.Key != metav1.ObjectNameField {
			fld.Invalid("key", r.Key, "not a valid field selector key")
			return
		}
		validate.Each(fld, "values", r.Values, func(fld validate.Field, v *string) { fld.CheckText("", *v, validate.DNSSubdomain) })
	})
}

func (c *check) validatePodAffinityTerm(fld validate.Field, t *corev1.PodAffinityTerm) {
	fld.CheckSelector("labelSelector", t.LabelSelector, c.prior.affinityValue)
	fld.CheckSelector("namespaceSelector", t.NamespaceSelector, c.prior.affinityValue)
	for _, ns := range t.Namespaces {
		fld.CheckText("namespace", ns, validate.DNSLabel)
	}
	validateMatchLabelKeys(fld, t)
	if t.TopologyKey == "" {
		fld.Required("topologyKey", "can not be empty")
	}
	fld.CheckLabelKey("topologyKey", t.TopologyKey)
}

const (
	needsSelectorDetail = "must not be specified when labelSelector is not set"
	inSelectorDetail    = "exists in both matchLabelKeys and labelSelector"
)

// validateMatchLabelKeys validates matchLabelKeys and mismatchLabelKeys. Their keys must not occur
// elsewhere in the selector, which already contains one requirement for each of them: see
// MergeMatchKeys.
func validateMatchLabelKeys(fld validate.Field, t *corev1.PodAffinityTerm) {
	for _, list := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", t.MatchLabelKeys}, {"mismatchLabelKeys", t.MismatchLabelKeys}} {
		if len(list.keys) > 0 && t.LabelSelector == nil {
			fld.Forbidden(list.name, needsSelectorDetail)
			continue
		}
		validate.Each(fld, list.name, list.keys, func(fld validate.Field, key *string) { fld.CheckLabelKey("", *key) })
	}
	if t.LabelSelector != nil {
		selectorKeys := validate.Set[string]{}
		index := validate.KeyIndex(t.MatchLabelKeys, func(key *string) string { return *key })
		for key := range t.LabelSelector.MatchLabels {
			selectorKeys.Add(key)
		}
		for _, e := range t.LabelSelector.MatchExpressions {
			i, isMatchKey := index[e.Key]
			if isRepeated := !selectorKeys.Add(e.Key); isRepeated && isMatchKey {
				fld.Index("", i).Invalid("", e.Key, inSelectorDetail)
			}
		}
	}
	mismatch := validate.KeySet(t.MismatchLabelKeys, func(key *string) string { return *key })
	for i, key := range t.MatchLabelKeys {
		if mismatch.Has(key) {
			fld.Index("matchLabelKeys", i).Invalid("", key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

// eachPodAffinityTerm calls visit with every pod affinity term.
func eachPodAffinityTerm(a *corev1.Affinity, visit func(*corev1.PodAffinityTerm)) {
	if a == nil {
		return
	}
	visitTerms := func(required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		for i := range required {
			visit(&required[i])
		}
		for i := range preferred {
			visit(&preferred[i].PodAffinityTerm)
		}
	}
	if p := a.PodAffinity; p != nil {
		visitTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		visitTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

// hasInvalidAffinityValue reports whether a selector of a pod affinity term has an invalid label
// value.
func hasInvalidAffinityValue(a *corev1.Affinity) (found bool) {
	eachPodAffinityTerm(a, func(t *corev1.PodAffinityTerm) {
		found = found || metav1validation.LabelSelectorHasInvalidLabelValue(t.LabelSelector) ||
			metav1validation.LabelSelectorHasInvalidLabelValue(t.NamespaceSelector)
	})
	return found
}

// hasInvalidNodeValue reports whether the required node affinity has an invalid label value.
func hasInvalidNodeValue(a *corev1.Affinity) bool {
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	isInvalid := func(v string) bool { return len(validate.LabelValue(v)) > 0 }
	for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range t.MatchExpressions {
			if slices.ContainsFunc(e.Values, isInvalid) {
				return true
			}
		}
	}
	return false
}
