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
	// maxHeldValues bounds the values of held rules that are compared with submitted rules: a user may
	// have thousands of roles with 100,000 names each.
	maxHeldValues = 1 << 20
)

// comparison finds the parts of wanted rules that held rules lack. For each wanted value it keeps
// the set of rules that contain it, as bits.
type comparison struct {
	rules []rbacv1.PolicyRule
	words int // size of a set of rules

	groups, resources, names, verbs, paths map[string]ruleBits
	patterns                               []string // held paths that end with a star
	unnamed                                ruleBits // held rules for all names

	left    int // words that may still be compared
	values  int // values of held rules that may still be compared
	missing []rbacv1.PolicyRule
	most    int // maximum number of missing parts
	// more means that more parts may be missing, or were not compared.
	more bool
}

// ruleBits is a set of rules.
type ruleBits []uint64

func (b ruleBits) add(more ruleBits) {
	for i := range more {
		b[i] |= more[i]
	}
}

// intersect stores the intersection of two sets.
func (b ruleBits) intersect(one, other ruleBits) {
	for i := range b {
		b[i] = one[i] & other[i]
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

// compare compares wanted rules with held ones.
func compare(held, wanted []rbacv1.PolicyRule, missing, words, values int) *comparison {
	c := &comparison{
		rules: held, words: (len(held) + bits.UintSize - 1) / bits.UintSize, left: words, values: values, most: missing,
		groups: map[string]ruleBits{}, resources: map[string]ruleBits{}, names: map[string]ruleBits{}, verbs: map[string]ruleBits{}, paths: map[string]ruleBits{},
	}
	if !c.look(1) {
		return c
	}
	c.unnamed = make(ruleBits, c.words)
	if c.addWanted(wanted) {
		c.hold(slices.ContainsFunc(wanted, func(w rbacv1.PolicyRule) bool { return len(w.NonResourceURLs) > 0 }))
	}
	for i := range wanted {
		if !c.more {
			c.want(&wanted[i])
		}
	}
	return c
}

// addWanted allocates a set for each wanted value, and for the star. It returns false if that exceeds
// the limit.
func (c *comparison) addWanted(wanted []rbacv1.PolicyRule) bool {
	for i := range wanted {
		w := &wanted[i]
		for _, of := range []struct {
			by     map[string]ruleBits
			values []string
		}{{c.groups, w.APIGroups}, {c.resources, w.Resources}, {c.names, w.ResourceNames}, {c.verbs, w.Verbs}} {
			for _, v := range of.values {
				if !c.room(of.by, v) || !c.room(of.by, all) {
					return false
				}
			}
		}
		for _, v := range w.Resources {
			if _, sub, ok := strings.Cut(v, "/"); ok && !c.room(c.resources, all+"/"+sub) {
				return false
			}
		}
	}
	return true
}

// room allocates the set of rules that contain a value.
func (c *comparison) room(by map[string]ruleBits, value string) bool {
	if _, ok := by[value]; ok {
		return true
	}
	if !c.look(1) {
		return false
	}
	by[value] = make(ruleBits, c.words)
	return true
}

// hold records which rules contain the wanted values, and all paths if any are wanted. Rules beyond
// the limit of values count as not held.
func (c *comparison) hold(paths bool) {
	for i := range c.rules {
		r := &c.rules[i]
		if c.values -= valuesOf(r); c.values < 0 {
			return
		}
		note(c.groups, r.APIGroups, i)
		note(c.resources, r.Resources, i)
		note(c.names, r.ResourceNames, i)
		note(c.verbs, r.Verbs, i)
		for _, p := range r.NonResourceURLs {
			if paths && !c.room(c.paths, p) {
				return
			}
		}
		note(c.paths, r.NonResourceURLs, i)
		if len(r.ResourceNames) == 0 {
			c.unnamed.set(i)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(c.paths)) {
		if strings.HasSuffix(p, all) {
			c.patterns = append(c.patterns, p)
		}
	}
}

// valuesOf returns the number of values of a rule.
func valuesOf(r *rbacv1.PolicyRule) int {
	return len(r.Verbs) + len(r.APIGroups) + len(r.Resources) + len(r.ResourceNames) + len(r.NonResourceURLs)
}

// note adds a rule to the sets of values that have one.
func note(by map[string]ruleBits, values []string, rule int) {
	for _, v := range values {
		if held := by[v]; held != nil {
			held.set(rule)
		}
	}
}

func (b ruleBits) set(rule int) { b[rule/bits.UintSize] |= 1 << (rule % bits.UintSize) }

// look charges the given number of sets, and reports whether the limit permits them.
func (c *comparison) look(sets int) bool {
	if c.left -= sets * max(1, c.words); c.left < 0 {
		c.more = true
	}
	return c.left >= 0
}

func (c *comparison) over() bool { return c.more }

// want finds the parts of a rule that are not held.
func (c *comparison) want(w *rbacv1.PolicyRule) {
	verbs := c.holding(w.Verbs, c.byVerb)
	if verbs == nil && len(w.Verbs) > 0 {
		return
	}
	c.wantResources(w, verbs)
	paths := c.holding(w.NonResourceURLs, c.byPath)
	for i := range paths {
		for j := range verbs {
			if c.over() || !c.look(1) {
				return
			}
			if !paths[i].intersects(verbs[j]) {
				c.miss(rbacv1.PolicyRule{NonResourceURLs: w.NonResourceURLs[i : i+1 : i+1], Verbs: w.Verbs[j : j+1 : j+1]})
			}
		}
	}
}

func (c *comparison) wantResources(w *rbacv1.PolicyRule, verbs []ruleBits) {
	groups, resources := c.holding(w.APIGroups, c.byGroup), c.holding(w.Resources, c.byResource)
	names := []ruleBits{c.unnamed}
	if len(w.ResourceNames) > 0 {
		names = c.holding(w.ResourceNames, c.byName)
	}
	if c.over() || c.heldByOne(groups, resources, verbs, names) {
		return
	}
	one, of := make(ruleBits, c.words), make(ruleBits, c.words)
	for g := range groups {
		for r := range resources {
			one.intersect(groups[g], resources[r])
			for v := range verbs {
				of.intersect(one, verbs[v])
				for n := range names {
					if c.over() || !c.look(1) {
						return
					}
					if of.intersects(names[n]) {
						continue
					}
					part := rbacv1.PolicyRule{APIGroups: w.APIGroups[g : g+1 : g+1], Resources: w.Resources[r : r+1 : r+1], Verbs: w.Verbs[v : v+1 : v+1]}
					if len(w.ResourceNames) > 0 {
						part.ResourceNames = w.ResourceNames[n : n+1 : n+1]
					}
					c.miss(part)
				}
			}
		}
	}
}

// heldByOne reports whether a single rule contains all values of each kind.
func (c *comparison) heldByOne(kinds ...[]ruleBits) bool {
	every := slices.Repeat(ruleBits{^uint64(0)}, c.words)
	held := slices.Clone(every)
	for _, values := range kinds {
		for _, v := range values {
			held.intersect(held, v)
		}
	}
	return held.intersects(every)
}

// holding returns, for each value, the set of rules that contain it, or nil if that exceeds the
// limit.
func (c *comparison) holding(values []string, by func(ruleBits, string)) []ruleBits {
	if len(values) == 0 || c.over() || !c.look(len(values)) {
		return nil
	}
	out := make([]ruleBits, len(values))
	for i, v := range values {
		out[i] = make(ruleBits, c.words)
		by(out[i], v)
	}
	return out
}

func (c *comparison) byGroup(b ruleBits, v string) { b.add(c.groups[v]); b.add(c.groups[all]) }

func (c *comparison) byVerb(b ruleBits, v string) { b.add(c.verbs[v]); b.add(c.verbs[all]) }

func (c *comparison) byName(b ruleBits, v string) { b.add(c.names[v]); b.add(c.unnamed) }

// byResource also adds the rules for a subresource of all resources.
func (c *comparison) byResource(b ruleBits, v string) {
	b.add(c.resources[v])
	b.add(c.resources[all])
	if _, sub, ok := strings.Cut(v, "/"); ok {
		b.add(c.resources[all+"/"+sub])
	}
}

func (c *comparison) byPath(b ruleBits, v string) {
	b.add(c.paths[v])
	if !c.look(len(c.patterns)) {
		return
	}
	for _, p := range c.patterns {
		if strings.HasPrefix(v, strings.TrimRight(p, all)) {
			b.add(c.paths[p])
		}
	}
}

func (c *comparison) miss(part rbacv1.PolicyRule) {
	if len(c.missing) == c.most {
		c.more = true
		return
	}
	c.missing = append(c.missing, part)
}
