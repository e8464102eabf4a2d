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
func TolerationRules(fld validate.Field, toleration *corev1.Toleration) {
	if toleration.Key != "" {
		fld.CheckLabelKey("key", toleration.Key)
	} else if toleration.Operator != corev1.TolerationOpExists {
		fld.Invalid("operator", toleration.Operator, `operator must be Exists when `+"`key`"+` is empty, which means "match all values and all keys"`)
	}
	if toleration.TolerationSeconds != nil && toleration.Effect != corev1.TaintEffectNoExecute {
		fld.Invalid("effect", toleration.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
	}
	// As in Kubernetes, the errors about the value have the path of the operator.
	switch toleration.Operator {
	case corev1.TolerationOpEqual, "":
		if msgs := validate.LabelValue(toleration.Value); len(msgs) > 0 {
			fld.Invalid("operator", toleration.Value, strings.Join(msgs, ";"))
		}
	case corev1.TolerationOpExists:
		if toleration.Value != "" {
			fld.Invalid("operator", toleration.Value, "value must be empty when `operator` is 'Exists'")
		}
	default:
		validate.OneOf(fld, "operator", toleration.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)
	}
	if toleration.Effect != "" {
		ValidateTaintEffect(fld, toleration.Effect)
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
		constraint, fld := &constraints[i], fld.Index("topologySpreadConstraints", i)
		if constraint.MaxSkew <= 0 {
			fld.Invalid("maxSkew", constraint.MaxSkew, validate.NotPositive)
		}
		if constraint.TopologyKey == "" {
			fld.Required("topologyKey", "can not be empty")
		}
		validate.OneOf(fld, "whenUnsatisfiable", constraint.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)
		if lastIndex[constraintKey{constraint.TopologyKey, constraint.WhenUnsatisfiable}] > i {
			fld.Duplicate("{topologyKey, whenUnsatisfiable}", fmt.Sprintf("{%v, %v}", constraint.TopologyKey, constraint.WhenUnsatisfiable))
		}
		if n := constraint.MinDomains; n != nil {
			if *n <= 0 {
				fld.Invalid("minDomains", *n, validate.NotPositive)
			}
			if constraint.WhenUnsatisfiable != corev1.DoNotSchedule {
				fld.Invalid("minDomains", *n,
					fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, constraint.WhenUnsatisfiable))
			}
		}
		validate.OptionalOneOf(fld, "nodeAffinityPolicy", constraint.NodeAffinityPolicy, corev1.NodeInclusionPolicyHonor,
			corev1.NodeInclusionPolicyIgnore)
		validate.OptionalOneOf(fld, "nodeTaintsPolicy", constraint.NodeTaintsPolicy, corev1.NodeInclusionPolicyHonor,
			corev1.NodeInclusionPolicyIgnore)
		validateSpreadKeys(fld, constraint)
		if !c.prior.spreadSelector {
			fld.CheckSelector("labelSelector", constraint.LabelSelector, false)
		}
	}
}

// validateSpreadKeys requires that matchLabelKeys holds no key of the constraint's own selector.
func validateSpreadKeys(fld validate.Field, constraint *corev1.TopologySpreadConstraint) {
	if len(constraint.MatchLabelKeys) == 0 {
		return
	}
	selectorKeys := validate.Set[string]{}
	if constraint.LabelSelector == nil {
		fld.Forbidden("matchLabelKeys", needsSelectorDetail)
	} else {
		for key := range constraint.LabelSelector.MatchLabels {
			selectorKeys.Add(key)
		}
		for _, e := range constraint.LabelSelector.MatchExpressions {
			selectorKeys.Add(e.Key)
		}
	}
	validate.Each(fld, "matchLabelKeys", constraint.MatchLabelKeys, func(fld validate.Field, key *string) {
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
	podDNSConfig, isPolicyNone := c.spec.DNSConfig, c.spec.DNSPolicy == corev1.DNSNone
	switch {
	case podDNSConfig == nil && isPolicyNone:
		fld.Required("dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None")
		return
	case podDNSConfig == nil:
		return
	}
	fld = fld.Child("dnsConfig")
	if isPolicyNone && len(podDNSConfig.Nameservers) == 0 {
		fld.Required("nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
		return
	}
	if len(podDNSConfig.Nameservers) > maxNameservers {
		fld.Invalid("nameservers", podDNSConfig.Nameservers, fmt.Sprintf("must not have more than %v nameservers", maxNameservers))
	}
	validate.Each(fld, "nameservers", podDNSConfig.Nameservers, func(fld validate.Field, ip *string) { fld.CheckIP("", *ip) })
	if len(podDNSConfig.Searches) > maxSearches {
		fld.Invalid("searches", podDNSConfig.Searches, fmt.Sprintf("must not have more than %v search paths", maxSearches))
	}
	if len(strings.Join(podDNSConfig.Searches, " ")) > maxSearchLength {
		fld.Invalid("searches", podDNSConfig.Searches,
			fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchLength))
	}
	allowRelaxed := c.relaxedSearch || c.prior.search
	validate.Each(fld, "searches", podDNSConfig.Searches, func(fld validate.Field, s *string) {
		switch search := strings.TrimSuffix(*s, "."); {
		case !allowRelaxed:
			fld.CheckText("", search, validate.DNSSubdomain)
		case *s != ".":
			fld.CheckText("", search, validate.DNSSubdomainUnderscore)
		}
	})
	validate.Each(fld, "options", podDNSConfig.Options, func(fld validate.Field, o *corev1.PodDNSConfigOption) {
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
func (c *check) validateAffinity(fld validate.Field, affinity *corev1.Affinity) {
	validate.Optional(fld, "nodeAffinity", affinity.NodeAffinity, func(fld validate.Field, n *corev1.NodeAffinity) {
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
	validate.Optional(fld, "podAffinity", affinity.PodAffinity, func(fld validate.Field, p *corev1.PodAffinity) {
		validateTerms(fld, p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	})
	validate.Optional(fld, "podAntiAffinity", affinity.PodAntiAffinity, func(fld validate.Field, p *corev1.PodAntiAffinity) {
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
func ValidateNodeSelector(fld validate.Field, nodeSelector *corev1.NodeSelector, anyValue bool) {
	if len(nodeSelector.NodeSelectorTerms) == 0 {
		fld.Required("nodeSelectorTerms", "must have at least one node selector term")
		return
	}
	validate.Each(fld, "nodeSelectorTerms", nodeSelector.NodeSelectorTerms, func(fld validate.Field, t *corev1.NodeSelectorTerm) {
		validateNodeSelectorTerm(fld, t, anyValue)
	})
}

func validateNodeSelectorTerm(fld validate.Field, nodeSelectorTerm *corev1.NodeSelectorTerm, anyValue bool) {
	validate.Each(fld, "matchExpressions", nodeSelectorTerm.MatchExpressions, func(fld validate.Field, requirement *corev1.NodeSelectorRequirement) {
		switch requirement.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(requirement.Values) == 0 {
				fld.Required("values", "must be specified when `operator` is 'In' or 'NotIn'")
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			fld.ForbidSet("values", len(requirement.Values) > 0, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(requirement.Values) != 1 {
				fld.Required("values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
			}
		default:
			fld.Invalid("operator", requirement.Operator, "not a valid selector operator")
		}
		fld.CheckLabelKey("key", requirement.Key)
		if !anyValue {
			validate.Each(fld, "values", requirement.Values, func(fld validate.Field, v *string) { fld.CheckText("", *v, validate.LabelValue) })
		}
	})
	validate.Each(fld, "matchFields", nodeSelectorTerm.MatchFields, func(fld validate.Field, requirement *corev1.NodeSelectorRequirement) {
		if requirement.Operator != corev1.NodeSelectorOpIn && requirement.Operator != corev1.NodeSelectorOpNotIn {
			fld.Invalid("operator", requirement.Operator, "not a valid selector operator")
		} else if len(requirement.Values) != 1 {
			fld.Required("values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
		if requirement.Key != metav1.ObjectNameField {
			fld.Invalid("key", requirement.Key, "not a valid field selector key")
			return
		}
		validate.Each(fld, "values", requirement.Values, func(fld validate.Field, v *string) { fld.CheckText("", *v, validate.DNSSubdomain) })
	})
}

// validatePodAffinityTerm validates a term of an affinity to pods or of an anti-affinity.
func (c *check) validatePodAffinityTerm(fld validate.Field, term *corev1.PodAffinityTerm) {
	fld.CheckSelector("labelSelector", term.LabelSelector, c.prior.affinityValue)
	fld.CheckSelector("namespaceSelector", term.NamespaceSelector, c.prior.affinityValue)
	for _, ns := range term.Namespaces {
		// As in Kubernetes, the path is namespace without an index, not namespaces[i].
		fld.CheckText("namespace", ns, validate.DNSLabel)
	}
	validateMatchLabelKeys(fld, term)
	if term.TopologyKey == "" {
		fld.Required("topologyKey", "can not be empty")
	}
	fld.CheckLabelKey("topologyKey", term.TopologyKey)
}

const (
	needsSelectorDetail = "must not be specified when labelSelector is not set"
	inSelectorDetail    = "exists in both matchLabelKeys and labelSelector"
)

// validateMatchLabelKeys validates matchLabelKeys and mismatchLabelKeys. Their keys must not occur
// elsewhere in the selector, which already contains one requirement for each of them: see
// MergeMatchKeys.
func validateMatchLabelKeys(fld validate.Field, term *corev1.PodAffinityTerm) {
	for _, list := range []struct {
		name string
		keys []string
	}{{"matchLabelKeys", term.MatchLabelKeys}, {"mismatchLabelKeys", term.MismatchLabelKeys}} {
		if len(list.keys) > 0 && term.LabelSelector == nil {
			fld.Forbidden(list.name, needsSelectorDetail)
			continue
		}
		validate.Each(fld, list.name, list.keys, func(fld validate.Field, key *string) { fld.CheckLabelKey("", *key) })
	}
	if term.LabelSelector != nil {
		selectorKeys := validate.Set[string]{}
		index := validate.KeyIndex(term.MatchLabelKeys, func(key *string) string { return *key })
		for key := range term.LabelSelector.MatchLabels {
			selectorKeys.Add(key)
		}
		for _, e := range term.LabelSelector.MatchExpressions {
			i, isMatchKey := index[e.Key]
			if isRepeated := !selectorKeys.Add(e.Key); isRepeated && isMatchKey {
				// As in Kubernetes, the path lacks matchLabelKeys.
				fld.Index("", i).Invalid("", e.Key, inSelectorDetail)
			}
		}
	}
	mismatch := validate.KeySet(term.MismatchLabelKeys, func(key *string) string { return *key })
	for i, key := range term.MatchLabelKeys {
		if mismatch.Has(key) {
			fld.Index("matchLabelKeys", i).Invalid("", key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
}

// eachPodAffinityTerm calls visit with every pod affinity term.
func eachPodAffinityTerm(affinity *corev1.Affinity, visit func(*corev1.PodAffinityTerm)) {
	if affinity == nil {
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
	if p := affinity.PodAffinity; p != nil {
		visitTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := affinity.PodAntiAffinity; p != nil {
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
func hasInvalidNodeValue(affinity *corev1.Affinity) bool {
	if affinity == nil || affinity.NodeAffinity == nil || affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return false
	}
	isInvalid := func(v string) bool { return len(validate.LabelValue(v)) > 0 }
	for _, t := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, e := range t.MatchExpressions {
			if slices.ContainsFunc(e.Values, isInvalid) {
				return true
			}
		}
	}
	return false
}
