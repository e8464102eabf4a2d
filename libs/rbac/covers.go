package rbac

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"

	"binnacle/libs/authorizer"
)

// Covers tells whether whoever holds the rules of owner may do all that wanted
// allows, and returns what is missing, each rule for one verb of one resource
// or path.
func Covers(owner, wanted []rbacv1.PolicyRule) (bool, []rbacv1.PolicyRule) {
	var missing []rbacv1.PolicyRule
	for _, w := range wanted {
		for _, part := range split(w) {
			if !anyCovers(owner, &part) {
				missing = append(missing, part)
			}
		}
	}
	return len(missing) == 0, missing
}

// split takes a rule apart into rules that say one thing each.
func split(r rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			for _, verb := range r.Verbs {
				one := rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}
				if len(r.ResourceNames) == 0 {
					out = append(out, one)
				}
				for _, name := range r.ResourceNames {
					one.ResourceNames = []string{name}
					out = append(out, one)
				}
			}
		}
	}
	for _, path := range r.NonResourceURLs {
		for _, verb := range r.Verbs {
			out = append(out, rbacv1.PolicyRule{NonResourceURLs: []string{path}, Verbs: []string{verb}})
		}
	}
	return out
}

// anyCovers tells whether one of the rules holds all of a rule that says one
// thing. A wanted star is held by a star alone.
func anyCovers(owner []rbacv1.PolicyRule, part *rbacv1.PolicyRule) bool {
	for i := range owner {
		o := &owner[i]
		if !holds(o.Verbs, part.Verbs[0]) {
			continue
		}
		if len(part.NonResourceURLs) > 0 {
			if matchesPath(o.NonResourceURLs, part.NonResourceURLs[0]) {
				return true
			}
			continue
		}
		if holds(o.APIGroups, part.APIGroups[0]) && holdsResource(o.Resources, part.Resources[0]) && holdsNames(o.ResourceNames, part.ResourceNames) {
			return true
		}
	}
	return false
}

func holdsResource(owned []string, wanted string) bool {
	if holds(owned, wanted) {
		return true
	}
	_, sub, ok := strings.Cut(wanted, "/")
	return ok && slices.Contains(owned, "*/"+sub)
}

func holdsNames(owned, wanted []string) bool {
	return len(owned) == 0 || len(wanted) > 0 && slices.Contains(owned, wanted[0])
}

// EscalationError tells that a user wants to grant what it does not hold.
type EscalationError struct {
	User    *authorizer.User
	Missing []rbacv1.PolicyRule
	// Unresolved are roles of the user that could not be looked at.
	Unresolved []error
}

func (e *EscalationError) Error() string {
	lines := map[string]bool{}
	for _, r := range compact(e.Missing) {
		lines[text(&r)] = true
	}
	msg := fmt.Sprintf("user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
		e.User.Name, e.User.Groups, strings.Join(slices.Sorted(maps.Keys(lines)), "\n"))
	if len(e.Unresolved) > 0 {
		msg += fmt.Sprintf("; resolution errors: %v", e.Unresolved)
	}
	return msg
}

// Escalation tells whether a user would grant more than it holds by granting
// rules in a namespace (none: in the cluster); the error is *EscalationError.
func (s *Snapshot) Escalation(u *authorizer.User, namespace string, rules []rbacv1.PolicyRule) error {
	held, unresolved := s.PolicyRules(u, namespace)
	if ok, missing := Covers(held, rules); !ok {
		return &EscalationError{User: u, Missing: missing, Unresolved: unresolved}
	}
	return nil
}

// compact puts the verbs of rules for the same resource together.
func compact(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	type key struct{ group, resource, name string }
	at := map[key]int{}
	var out []rbacv1.PolicyRule
	for _, r := range rules {
		if len(r.NonResourceURLs) > 0 || len(r.APIGroups) != 1 || len(r.Resources) != 1 || len(r.ResourceNames) > 1 {
			out = append(out, r)
			continue
		}
		k := key{group: r.APIGroups[0], resource: r.Resources[0]}
		if len(r.ResourceNames) == 1 {
			k.name = r.ResourceNames[0]
		}
		i, ok := at[k]
		if !ok {
			at[k] = len(out)
			r.Verbs = slices.Clone(r.Verbs)
			out = append(out, r)
			continue
		}
		for _, v := range r.Verbs {
			if !slices.Contains(out[i].Verbs, v) {
				out[i].Verbs = append(out[i].Verbs, v)
			}
		}
	}
	return out
}

// text is a rule in one line.
func text(r *rbacv1.PolicyRule) string {
	var parts []string
	for _, p := range []struct {
		name   string
		values []string
	}{
		{"APIGroups", r.APIGroups}, {"Resources", r.Resources}, {"NonResourceURLs", r.NonResourceURLs},
		{"ResourceNames", r.ResourceNames}, {"Verbs", r.Verbs},
	} {
		if len(p.values) > 0 {
			parts = append(parts, fmt.Sprintf("%s:%q", p.name, p.values))
		}
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
