package rbac

import (
	"maps"
	"math/bits"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

const (
	// maxMissing bounds the missing parts of rules in an error.
	maxMissing = 1000
	// maxCompared bounds the words of bits that are compared for submitted rules: a rule of a few
	// hundred bytes has millions of parts.
	maxCompared = 1 << 20
	// maxHeldValues bounds the values of held rules that are compared with submitted rules: a user
	// may have thousands of roles with 100,000 names each.
	maxHeldValues = 1 << 20
)

// comparison finds the parts of wanted rules that held rules lack. A part is one verb for one
// resource or path. For each wanted value, comparison keeps the set of held rules that contain the
// value.
type comparison struct {
	rules    []rbacv1.PolicyRule
	setWords int // length of each ruleBits

	groups, resources, names, verbs, paths map[string]ruleBits
	patterns                               []string // held paths that end with a star
	unnamed                                ruleBits // held rules for all names

	remainingWords  int // words of bits that may still be compared
	remainingValues int // values of held rules that may still be compared
	missing         []rbacv1.PolicyRule
	maxMissing      int // maximum number of missing parts
	// truncated means that more parts may be missing or were not compared.
	truncated bool
}

// ruleBits is a set of held rules: bit i of the set stands for comparison.rules[i].
type ruleBits []uint64

func (b ruleBits) addAll(added ruleBits) {
	for i := range added {
		b[i] |= added[i]
	}
}

// setIntersection stores the intersection of two sets.
func (b ruleBits) setIntersection(first, second ruleBits) {
	for i := range b {
		b[i] = first[i] & second[i]
	}
}

// intersects reports whether the sets intersect.
func (b ruleBits) intersects(other ruleBits) bool {
	for i := range b {
		if b[i]&other[i] != 0 {
			return true
		}
	}
	return false
}

// findMissingParts finds the parts of the desired rules that the held rules lack. missing, words
// and values limit the number of missing parts, of compared words of bits, and of values of held
// rules.
func findMissingParts(held, desired []rbacv1.PolicyRule, missing, words, values int) *comparison {
	c := &comparison{
		rules:           held,
		setWords:        (len(held) + bits.UintSize - 1) / bits.UintSize,
		remainingWords:  words,
		remainingValues: values,
		maxMissing:      missing,
		groups:          map[string]ruleBits{},
		resources:       map[string]ruleBits{},
		names:           map[string]ruleBits{},
		verbs:           map[string]ruleBits{},
		paths:           map[string]ruleBits{},
	}
	if !c.spendWords(1) {
		return c
	}
	c.unnamed = make(ruleBits, c.setWords)
	if c.addWanted(desired) {
		c.indexHeld(slices.ContainsFunc(desired, func(w rbacv1.PolicyRule) bool { return len(w.NonResourceURLs) > 0 }))
	}
	for i := range desired {
		if !c.truncated {
			c.findMissing(&desired[i])
		}
	}
	return c
}

// addWanted allocates a set for each wanted value, and for the star. It returns false if that
// exceeds the limit.
func (c *comparison) addWanted(desired []rbacv1.PolicyRule) bool {
	for i := range desired {
		policyRule := &desired[i]
		for _, list := range []struct {
			sets   map[string]ruleBits
			values []string
		}{{c.groups, policyRule.APIGroups}, {c.resources, policyRule.Resources}, {c.names, policyRule.ResourceNames}, {c.verbs, policyRule.Verbs}} {
			for _, v := range list.values {
				if !c.addSet(list.sets, v) || !c.addSet(list.sets, wildcard) {
					return false
				}
			}
		}
		for _, v := range policyRule.Resources {
			if _, sub, ok := strings.Cut(v, "/"); ok && !c.addSet(c.resources, wildcard+"/"+sub) {
				return false
			}
		}
	}
	return true
}

// addSet allocates the set of rules that contain a value.
func (c *comparison) addSet(sets map[string]ruleBits, value string) bool {
	if _, ok := sets[value]; ok {
		return true
	}
	if !c.spendWords(1) {
		return false
	}
	sets[value] = make(ruleBits, c.setWords)
	return true
}

// indexHeld records which held rules contain each wanted value. If paths are wanted, it records all
// held paths. Rules beyond the limit of values count as not held.
func (c *comparison) indexHeld(paths bool) {
	for i := range c.rules {
		policyRule := &c.rules[i]
		c.remainingValues -= valuesOf(policyRule)
		if c.remainingValues < 0 {
			return
		}
		addRule(c.groups, policyRule.APIGroups, i)
		addRule(c.resources, policyRule.Resources, i)
		addRule(c.names, policyRule.ResourceNames, i)
		addRule(c.verbs, policyRule.Verbs, i)
		for _, p := range policyRule.NonResourceURLs {
			if paths && !c.addSet(c.paths, p) {
				return
			}
		}
		addRule(c.paths, policyRule.NonResourceURLs, i)
		if len(policyRule.ResourceNames) == 0 {
			c.unnamed.addRule(i)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(c.paths)) {
		if strings.HasSuffix(p, wildcard) {
			c.patterns = append(c.patterns, p)
		}
	}
}

// valuesOf returns the number of values of a rule.
func valuesOf(r *rbacv1.PolicyRule) int {
	return len(r.Verbs) + len(r.APIGroups) + len(r.Resources) + len(r.ResourceNames) + len(r.NonResourceURLs)
}

// addRule adds a rule to the sets of values that have one.
func addRule(sets map[string]ruleBits, values []string, rule int) {
	for _, v := range values {
		if held := sets[v]; held != nil {
			held.addRule(rule)
		}
	}
}

func (b ruleBits) addRule(rule int) { b[rule/bits.UintSize] |= 1 << (rule % bits.UintSize) }

// spendWords takes the words of some sets from remainingWords. It returns false if too few remain.
func (c *comparison) spendWords(sets int) bool {
	c.remainingWords -= sets * max(1, c.setWords)
	if c.remainingWords < 0 {
		c.truncated = true
	}
	return c.remainingWords >= 0
}

// findMissing records the parts of a wanted rule that are not held.
func (c *comparison) findMissing(policyRule *rbacv1.PolicyRule) {
	verbs := c.setsOf(policyRule.Verbs, c.addRulesForVerb)
	if verbs == nil && len(policyRule.Verbs) > 0 {
		return
	}
	c.findMissingResources(policyRule, verbs)
	paths := c.setsOf(policyRule.NonResourceURLs, c.addRulesForPath)
	for i := range paths {
		for j := range verbs {
			if c.truncated || !c.spendWords(1) {
				return
			}
			if !paths[i].intersects(verbs[j]) {
				c.addMissing(rbacv1.PolicyRule{NonResourceURLs: policyRule.NonResourceURLs[i : i+1 : i+1], Verbs: policyRule.Verbs[j : j+1 : j+1]})
			}
		}
	}
}

// findMissingResources checks each combination of group, resource, verb and name of a rule. verbs
// holds the sets of rules with each verb.
func (c *comparison) findMissingResources(policyRule *rbacv1.PolicyRule, verbs []ruleBits) {
	groups := c.setsOf(policyRule.APIGroups, c.addRulesForGroup)
	resources := c.setsOf(policyRule.Resources, c.addRulesForResource)
	names := []ruleBits{c.unnamed}
	if len(policyRule.ResourceNames) > 0 {
		names = c.setsOf(policyRule.ResourceNames, c.addRulesForName)
	}
	if c.truncated || c.heldByOne(groups, resources, verbs, names) {
		return
	}
	ofResource := make(ruleBits, c.setWords) // rules for the group and the resource
	ofVerb := make(ruleBits, c.setWords)     // those that also have the verb
	for groupIndex := range groups {
		for resourceIndex := range resources {
			ofResource.setIntersection(groups[groupIndex], resources[resourceIndex])
			for verbIndex := range verbs {
				ofVerb.setIntersection(ofResource, verbs[verbIndex])
				for nameIndex := range names {
					if c.truncated || !c.spendWords(1) {
						return
					}
					if ofVerb.intersects(names[nameIndex]) {
						continue
					}
					missing := rbacv1.PolicyRule{
						APIGroups: policyRule.APIGroups[groupIndex : groupIndex+1 : groupIndex+1],
						Resources: policyRule.Resources[resourceIndex : resourceIndex+1 : resourceIndex+1],
						Verbs:     policyRule.Verbs[verbIndex : verbIndex+1 : verbIndex+1],
					}
					if len(policyRule.ResourceNames) > 0 {
						missing.ResourceNames = policyRule.ResourceNames[nameIndex : nameIndex+1 : nameIndex+1]
					}
					c.addMissing(missing)
				}
			}
		}
	}
}

// heldByOne reports whether a single rule contains all values of each kind.
func (c *comparison) heldByOne(kinds ...[]ruleBits) bool {
	every := slices.Repeat(ruleBits{^uint64(0)}, c.setWords)
	held := slices.Clone(every)
	for _, values := range kinds {
		for _, v := range values {
			held.setIntersection(held, v)
		}
	}
	return held.intersects(every)
}

// setsOf returns, for each value, the set of rules that contain it, or nil if that exceeds the
// limit.
func (c *comparison) setsOf(values []string, addRules func(ruleBits, string)) []ruleBits {
	if len(values) == 0 || c.truncated || !c.spendWords(len(values)) {
		return nil
	}
	out := make([]ruleBits, len(values))
	for i, v := range values {
		out[i] = make(ruleBits, c.setWords)
		addRules(out[i], v)
	}
	return out
}

// addRulesForGroup adds to b the held rules that contain an API group. The other addRulesFor
// functions do the same for values of other kinds.
func (c *comparison) addRulesForGroup(b ruleBits, v string) {
	b.addAll(c.groups[v])
	b.addAll(c.groups[wildcard])
}

func (c *comparison) addRulesForVerb(b ruleBits, v string) {
	b.addAll(c.verbs[v])
	b.addAll(c.verbs[wildcard])
}

func (c *comparison) addRulesForName(b ruleBits, v string) {
	b.addAll(c.names[v])
	b.addAll(c.unnamed)
}

// addRulesForResource also adds the rules for a subresource of all resources.
func (c *comparison) addRulesForResource(b ruleBits, v string) {
	b.addAll(c.resources[v])
	b.addAll(c.resources[wildcard])
	if _, sub, ok := strings.Cut(v, "/"); ok {
		b.addAll(c.resources[wildcard+"/"+sub])
	}
}

// addRulesForPath adds the rules for the path and for patterns that match it.
func (c *comparison) addRulesForPath(b ruleBits, v string) {
	b.addAll(c.paths[v])
	if !c.spendWords(len(c.patterns)) {
		return
	}
	for _, p := range c.patterns {
		if strings.HasPrefix(v, strings.TrimRight(p, wildcard)) {
			b.addAll(c.paths[p])
		}
	}
}

// addMissing records a missing part.
func (c *comparison) addMissing(part rbacv1.PolicyRule) {
	if len(c.missing) == c.maxMissing {
		c.truncated = true
		return
	}
	c.missing = append(c.missing, part)
}
