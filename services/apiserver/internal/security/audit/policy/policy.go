package policy

import (
	"slices"
	"strings"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
)

// Policy implements audit.Policy.
type Policy struct {
	rules []compiledRule
	// unmatched is the decision for a request that no rule matches.
	unmatched audit.Decision
}

// compiledRule is a rule with its decision.
type compiledRule struct {
	rule
	decision audit.Decision
}

// compile returns the policy of a valid file.
func compile(f *file) *Policy {
	always := parseStages(f.OmitStages)
	p := &Policy{unmatched: audit.Decision{Level: audit.None, Omit: always, OmitManagedFields: f.OmitManagedFields}}
	for _, r := range f.Rules {
		level, _ := audit.ParseLevel(r.Level)
		c := compiledRule{r, audit.Decision{Level: level, Omit: always | parseStages(r.OmitStages), OmitManagedFields: f.OmitManagedFields}}
		if r.OmitManagedFields != nil {
			c.decision.OmitManagedFields = *r.OmitManagedFields
		}
		p.rules = append(p.rules, c)
	}
	return p
}

func parseStages(names []string) (set audit.StageSet) {
	for _, name := range names {
		if s, ok := audit.ParseStage(name); ok {
			set |= audit.SetOf(s)
		}
	}
	return set
}

// Decide implements audit.Policy.
func (p *Policy) Decide(op *requestinfo.Info, u *request.User) audit.Decision {
	for i := range p.rules {
		if p.rules[i].matches(op, u) {
			return p.rules[i].decision
		}
	}
	return p.unmatched
}

// matches reports whether a rule matches a request. Rules with users or groups do not match
// requests without a user.
func (r *rule) matches(op *requestinfo.Info, u *request.User) bool {
	if len(r.Users) > 0 && (u == nil || !slices.Contains(r.Users, u.Name)) {
		return false
	}
	if len(r.UserGroups) > 0 && (u == nil || !slices.ContainsFunc(r.UserGroups, u.InGroup)) {
		return false
	}
	if len(r.Verbs) > 0 && !slices.Contains(r.Verbs, op.Verb) {
		return false
	}
	switch {
	case len(r.Namespaces) > 0 || len(r.Resources) > 0:
		return op.IsResource && r.matchesResource(op)
	case len(r.NonResourceURLs) > 0:
		return !op.IsResource && r.matchesPath(op.Path)
	}
	return true
}

func (r *rule) matchesResource(op *requestinfo.Info) bool {
	if len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, op.Namespace) {
		return false
	}
	return len(r.Resources) == 0 || slices.ContainsFunc(r.Resources, func(g groupResources) bool { return g.matches(op) })
}

// matches reports whether the resource of a request is in the group and the list.
func (g *groupResources) matches(op *requestinfo.Info) bool {
	if g.Group != op.Group {
		return false
	}
	if len(g.Resources) == 0 {
		return true
	}
	if len(g.ResourceNames) > 0 && !slices.Contains(g.ResourceNames, op.Name) {
		return false
	}
	return slices.ContainsFunc(g.Resources, func(named string) bool {
		if named == "*" {
			return true
		}
		resource, sub, both := strings.Cut(named, "/")
		switch {
		case !both:
			return resource == op.Resource && op.Subresource == ""
		case sub == "*": // includes the resource itself
			return resource == op.Resource
		case resource == "*":
			return op.Subresource != "" && sub == op.Subresource
		}
		return resource == op.Resource && sub == op.Subresource
	})
}

func (r *rule) matchesPath(path string) bool {
	return slices.ContainsFunc(r.NonResourceURLs, func(named string) bool {
		if prefix, ok := strings.CutSuffix(named, "*"); ok {
			return strings.HasPrefix(path, prefix)
		}
		return named == path
	})
}
