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
	rules []compiled
	// unfit is what is told of a request that no rule fits.
	unfit audit.Decision
}

// compiled is a rule with what it decides.
type compiled struct {
	rule
	told audit.Decision
}

func compile(f *file) *Policy {
	always := stagesOf(f.OmitStages)
	p := &Policy{unfit: audit.Decision{Level: audit.None, Omit: always, OmitManagedFields: f.OmitManagedFields}}
	for _, r := range f.Rules {
		level, _ := audit.ParseLevel(r.Level)
		c := compiled{r, audit.Decision{Level: level, Omit: always | stagesOf(r.OmitStages), OmitManagedFields: f.OmitManagedFields}}
		if r.OmitManagedFields != nil {
			c.told.OmitManagedFields = *r.OmitManagedFields
		}
		p.rules = append(p.rules, c)
	}
	return p
}

func stagesOf(names []string) (set audit.StageSet) {
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
		if p.rules[i].fits(op, u) {
			return p.rules[i].told
		}
	}
	return p.unfit
}

// fits tells whether a rule is about a request. Rules that name users are about nobody
// whom nobody knows.
func (r *rule) fits(op *requestinfo.Info, u *request.User) bool {
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
		return op.IsResource && r.fitsResource(op)
	case len(r.NonResourceURLs) > 0:
		return !op.IsResource && r.fitsPath(op.Path)
	}
	return true
}

func (r *rule) fitsResource(op *requestinfo.Info) bool {
	if len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, op.Namespace) {
		return false
	}
	return len(r.Resources) == 0 || slices.ContainsFunc(r.Resources, func(g groupResources) bool { return g.fits(op) })
}

func (g *groupResources) fits(op *requestinfo.Info) bool {
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
		case sub == "*": // the resource itself, too
			return resource == op.Resource
		case resource == "*":
			return op.Subresource != "" && sub == op.Subresource
		}
		return resource == op.Resource && sub == op.Subresource
	})
}

func (r *rule) fitsPath(path string) bool {
	return slices.ContainsFunc(r.NonResourceURLs, func(named string) bool {
		if prefix, ok := strings.CutSuffix(named, "*"); ok {
			return strings.HasPrefix(path, prefix)
		}
		return named == path
	})
}
