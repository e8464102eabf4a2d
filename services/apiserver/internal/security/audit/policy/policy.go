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

// compilePolicy returns the policy of a valid file.
func compilePolicy(file *policyFile) *Policy {
	omittedByAll := parseStages(file.OmitStages) // a rule can only add stages
	policy := &Policy{unmatched: audit.Decision{Level: audit.None, Omit: omittedByAll, OmitManagedFields: file.OmitManagedFields}}
	for _, r := range file.Rules {
		level, _ := audit.ParseLevel(r.Level)
		c := compiledRule{
			rule: r,
			decision: audit.Decision{
				Level:             level,
				Omit:              omittedByAll | parseStages(r.OmitStages),
				OmitManagedFields: file.OmitManagedFields,
			},
		}
		if r.OmitManagedFields != nil {
			c.decision.OmitManagedFields = *r.OmitManagedFields
		}
		policy.rules = append(policy.rules, c)
	}
	return policy
}

// parseStages returns the set of the stages with the given valid names.
func parseStages(names []string) (set audit.StageSet) {
	for _, name := range names {
		if s, ok := audit.ParseStage(name); ok {
			set |= audit.SetOf(s)
		}
	}
	return set
}

// Decide implements audit.Policy.
func (p *Policy) Decide(info *requestinfo.Info, user *request.User) audit.Decision {
	for i := range p.rules {
		if p.rules[i].matches(info, user) {
			return p.rules[i].decision
		}
	}
	return p.unmatched
}

// matches reports whether a rule matches a request. Rules with users or groups do not match
// requests without a user.
func (r *rule) matches(info *requestinfo.Info, user *request.User) bool {
	if len(r.Users) > 0 && (user == nil || !slices.Contains(r.Users, user.Name)) {
		return false
	}
	if len(r.UserGroups) > 0 && (user == nil || !slices.ContainsFunc(r.UserGroups, user.InGroup)) {
		return false
	}
	if len(r.Verbs) > 0 && !slices.Contains(r.Verbs, info.Verb) {
		return false
	}
	switch {
	case len(r.Namespaces) > 0 || len(r.Resources) > 0:
		return info.IsResource && r.matchesResource(info)
	case len(r.NonResourceURLs) > 0:
		return !info.IsResource && r.matchesPath(info.Path)
	}
	return true
}

// matchesResource reports whether the rule names the resource and the namespace of a request.
func (r *rule) matchesResource(info *requestinfo.Info) bool {
	if len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, info.Namespace) {
		return false
	}
	return len(r.Resources) == 0 || slices.ContainsFunc(r.Resources, func(g groupResources) bool { return g.matches(info) })
}

// matches reports whether the resource of a request is in the group and the list.
func (g *groupResources) matches(info *requestinfo.Info) bool {
	if g.Group != info.Group {
		return false
	}
	if len(g.Resources) == 0 {
		return true
	}
	if len(g.ResourceNames) > 0 && !slices.Contains(g.ResourceNames, info.Name) {
		return false
	}
	return slices.ContainsFunc(g.Resources, func(pattern string) bool {
		if pattern == "*" {
			return true
		}
		resource, subresource, hasSubresource := strings.Cut(pattern, "/")
		switch {
		case !hasSubresource:
			return resource == info.Resource && info.Subresource == ""
		case subresource == "*": // includes the resource itself
			return resource == info.Resource
		case resource == "*":
			return info.Subresource != "" && subresource == info.Subresource
		}
		return resource == info.Resource && subresource == info.Subresource
	})
}

// matchesPath reports whether the rule names a path. A name that ends with an asterisk matches by
// prefix.
func (r *rule) matchesPath(path string) bool {
	return slices.ContainsFunc(r.NonResourceURLs, func(pattern string) bool {
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(path, prefix)
		}
		return pattern == path
	})
}
