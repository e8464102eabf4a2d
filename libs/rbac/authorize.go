package rbac

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"binnacle/libs/authorizer"
)

// Authorize implements authorizer.Authorizer on the current policy.
func (e *Engine) Authorize(_ context.Context, a *authorizer.Attributes) (authorizer.Decision, string, error) {
	d, reason := e.Snapshot().Authorize(a)
	return d, reason, nil
}

// Authorize decides a request. Roles only allow, so the result is Allow or NoOpinion. The reason
// names the binding that allows it, or the missing roles that the user's bindings refer to.
func (s *Snapshot) Authorize(attributes *authorizer.Attributes) (authorizer.Decision, string) {
	q := newQuery(attributes)
	var missing missingRoles
	var evaluated evaluatedRoles
	for b := range s.bindingsOf(attributes.User, attributes.Namespace) {
		r, ok := s.image.roles.Get(b.roleKey)
		if !ok {
			missing.add(b)
			continue
		}
		if evaluated.isNew(r) && r.allows(&q) {
			return authorizer.Allow, b.allowReason(attributes.User)
		}
		if q.evaluated >= rulesPerYield {
			q.evaluated = 0
			runtime.Gosched()
		}
	}
	if len(missing.errs) > 0 {
		return authorizer.NoOpinion, fmt.Sprintf("RBAC: %v", utilerrors.NewAggregate(missing.errs))
	}
	return authorizer.NoOpinion, ""
}

// evaluatedRoles is the set of roles that did not allow a request. Each role is evaluated once,
// because thousands of bindings may refer to one role with thousands of rules. The first eight
// roles need no allocation.
type evaluatedRoles struct {
	firstRoles [8]*role
	firstCount int
	allRoles   map[*role]bool // holds all roles if there are more than fit into few
}

// isNew reports whether a role has not been evaluated yet, and adds it.
func (a *evaluatedRoles) isNew(r *role) bool {
	if a.allRoles != nil {
		if a.allRoles[r] {
			return false
		}
		a.allRoles[r] = true
		return true
	}
	if slices.Contains(a.firstRoles[:a.firstCount], r) {
		return false
	}
	if a.firstCount < len(a.firstRoles) {
		a.firstRoles[a.firstCount] = r
		a.firstCount++
		return true
	}
	a.allRoles = map[*role]bool{r: true}
	for _, r := range a.firstRoles {
		a.allRoles[r] = true
	}
	return true
}

// rulesPerYield is the number of rules after which the goroutine yields: about 100 µs.
const rulesPerYield = 5000

// Bounds of a reason. Names of roles and subjects have no other bound, and a binding may contain
// any.
const (
	// maxUnresolved bounds the missing roles in a reason. maxUnresolvedBytes is the size of their
	// names after which no more are added.
	maxUnresolved      = 100
	maxUnresolvedBytes = 4 << 10
	// maxName bounds a name in a reason, in bytes.
	maxName = 253
)

// missingRoles collects missing roles that bindings refer to.
type missingRoles struct {
	errs  []error
	bytes int
}

func (m *missingRoles) add(b *binding) {
	if len(m.errs) < maxUnresolved && m.bytes < maxUnresolvedBytes {
		m.errs = append(m.errs, newNotFoundError(b.roleRef))
		m.bytes += min(len(b.roleRef.Name), maxName)
	}
}

// truncateName truncates a name that is longer than maxName.
func truncateName(name string) string {
	if len(name) <= maxName {
		return name
	}
	return strings.ToValidUTF8(name[:maxName], "") + "..."
}

// bindingsOf yields the bindings of a user: those of the cluster, then those of the namespace, if
// any. A binding may be yielded more than once.
func (s *Snapshot) bindingsOf(user *authorizer.User, namespace string) func(yield func(*binding) bool) {
	return func(yield func(*binding) bool) {
		if user == nil {
			return
		}
		scopes := []string{"", namespace}
		if namespace == "" {
			scopes = scopes[:1]
		}
		for _, scope := range scopes {
			if user.Name != "" && !s.eachBinding(subjectKey(scope, 'u', user.Name), yield) {
				return
			}
			for _, g := range user.Groups {
				if !s.eachBinding(subjectKey(scope, 'g', g), yield) {
					return
				}
			}
		}
	}
}

// eachBinding yields the bindings of a subject. It returns false if yield does.
func (s *Snapshot) eachBinding(key string, yield func(*binding) bool) bool {
	list, _ := s.image.index.Get(key)
	for _, b := range list {
		if !yield(b) {
			return false
		}
	}
	return true
}

// NotFoundError reports that the role of a binding does not exist.
type NotFoundError struct{ Ref rbacv1.RoleRef }

func (e *NotFoundError) Error() string {
	switch e.Ref.Kind {
	case KindRole:
		return fmt.Sprintf("role.%s %q not found", rbacv1.GroupName, truncateName(e.Ref.Name))
	case KindClusterRole:
		return fmt.Sprintf("clusterrole.%s %q not found", rbacv1.GroupName, truncateName(e.Ref.Name))
	}
	return fmt.Sprintf("unsupported role reference kind: %q", truncateName(e.Ref.Kind))
}

func newNotFoundError(ref rbacv1.RoleRef) error { return &NotFoundError{Ref: ref} }

// allowReason names the subject through which the binding allows a request.
func (b *binding) allowReason(user *authorizer.User) string {
	subject := ""
	for i := range b.subjects {
		s := &b.subjects[i]
		kind, name := userOf(s, b.namespace)
		if kind == 'u' && name == user.Name || kind == 'g' && user.InGroup(name) {
			subject = s.Name
			if s.Kind == rbacv1.ServiceAccountKind {
				namespace := s.Namespace
				if namespace == "" {
					namespace = b.namespace
				}
				subject += "/" + namespace
			}
			subject = fmt.Sprintf("%s %q", s.Kind, truncateName(subject))
			break
		}
	}
	kind := KindClusterRoleBinding
	name := b.name
	if b.namespace != "" {
		kind = KindRoleBinding
		name = b.name + "/" + b.namespace
	}
	return fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s", kind, truncateName(name), b.roleRef.Kind,
		truncateName(b.roleRef.Name), subject)
}

// heldRules returns the rules granted to a user at cluster scope and, if given, in a namespace. It
// lists the rules of each role once. It also returns the missing roles.
func (s *Snapshot) heldRules(u *authorizer.User, namespace string) (rules []rbacv1.PolicyRule, missing []error) {
	seen := map[*role]bool{}
	missing = s.rolesOf(u, namespace, func(r *role) {
		if !seen[r] {
			seen[r] = true
			rules = append(rules, r.rules...)
		}
	})
	return rules, missing
}

// rolesOf calls visit for the roles of a user's bindings, and returns the missing ones.
func (s *Snapshot) rolesOf(u *authorizer.User, namespace string, visit func(*role)) []error {
	var missing missingRoles
	seen := map[*binding]bool{}
	for b := range s.bindingsOf(u, namespace) {
		if seen[b] {
			continue
		}
		seen[b] = true
		if r, ok := s.image.roles.Get(b.roleKey); ok {
			visit(r)
		} else {
			missing.add(b)
		}
	}
	return missing.errs
}

// RulesOf returns the rules of the role that a binding in a namespace (none: at cluster scope)
// refers to, or *NotFoundError.
func (s *Snapshot) RulesOf(ref rbacv1.RoleRef, namespace string) ([]rbacv1.PolicyRule, error) {
	if r, ok := s.image.roles.Get(compileBinding(namespace, "", ref, nil).roleKey); ok {
		return r.rules, nil
	}
	return nil, newNotFoundError(ref)
}

const (
	// maxListedRules and maxListedBytes bound the rules that are listed for a user.
	maxListedRules = 10_000
	maxListedBytes = 1 << 20
)

// errTruncated means that a user has more rules than are listed.
var errTruncated = fmt.Errorf("incomplete: the user has more than %d rules, or rules of more than %d bytes",
	maxListedRules, maxListedBytes)

// RulesFor implements authorizer.RuleResolver. Like Kubernetes it lists the rules of a role once
// for each binding, but only within the bounds above.
func (e *Engine) RulesFor(_ context.Context, u *authorizer.User, namespace string) (authorizer.Rules, error) {
	var rules []rbacv1.PolicyRule
	bytes := 0
	truncated := false
	errs := e.Snapshot().rolesOf(u, namespace, func(r *role) {
		for i := range r.rules {
			truncated = truncated || len(rules) == maxListedRules || bytes > maxListedBytes
			if truncated {
				return
			}
			rules = append(rules, r.rules[i])
			bytes += textSize(&r.rules[i])
		}
	})
	if bytes > maxListedBytes { // the last rule alone may exceed the bound
		rules, truncated = rules[:len(rules)-1], true
	}
	out := RulesOf(rules)
	out.Incomplete = truncated
	if truncated {
		errs = append(errs, errTruncated)
	}
	if len(errs) > 0 {
		return out, utilerrors.NewAggregate(errs)
	}
	return out, nil
}

// textSize returns the size of a rule's texts in bytes.
func textSize(r *rbacv1.PolicyRule) (n int) {
	for _, list := range [][]string{r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs} {
		for _, v := range list {
			n += len(v) + 3 // quotes and a comma
		}
	}
	return n
}

// RulesOf converts rules to the form of a rules review.
func RulesOf(rules []rbacv1.PolicyRule) authorizer.Rules {
	var out authorizer.Rules
	for i := range rules {
		policyRule := &rules[i]
		if len(policyRule.Resources) > 0 {
			out.Resource = append(out.Resource, authorizationv1.ResourceRule{
				Verbs: policyRule.Verbs, APIGroups: policyRule.APIGroups, Resources: policyRule.Resources, ResourceNames: policyRule.ResourceNames,
			})
		}
		if len(policyRule.NonResourceURLs) > 0 {
			out.NonResource = append(out.NonResource, authorizationv1.NonResourceRule{
				Verbs:           policyRule.Verbs,
				NonResourceURLs: policyRule.NonResourceURLs,
			})
		}
	}
	return out
}
