package authorizer

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// Rules holds the permissions of a user in a namespace, as far as they can be listed.
type Rules struct {
	Resource    []authorizationv1.ResourceRule
	NonResource []authorizationv1.NonResourceRule
	// Incomplete means that there may be more.
	Incomplete bool
}

// RuleResolver lists the permissions of a user in a namespace. It may return both rules and an
// error, which states why there may be more.
type RuleResolver interface {
	RulesFor(ctx context.Context, u *User, namespace string) (Rules, error)
}

// RulesFor lists the permissions that any member grants. It skips members that cannot list rules,
// and that allow nothing beyond the other members.
func (c Chain) RulesFor(ctx context.Context, u *User, namespace string) (Rules, error) {
	var all Rules
	var errs []error
	for _, z := range c {
		r, ok := z.(RuleResolver)
		if !ok {
			continue
		}
		rules, err := r.RulesFor(ctx, u, namespace)
		all.Resource = append(all.Resource, rules.Resource...)
		all.NonResource = append(all.NonResource, rules.NonResource...)
		all.Incomplete = all.Incomplete || rules.Incomplete
		if err != nil {
			errs = append(errs, err)
		}
	}
	return all, aggregate(errs)
}

// RulesFor implements RuleResolver.
func (AlwaysAllow) RulesFor(context.Context, *User, string) (Rules, error) {
	every := []string{"*"}
	return Rules{
		Resource:    []authorizationv1.ResourceRule{{Verbs: every, APIGroups: every, Resources: every}},
		NonResource: []authorizationv1.NonResourceRule{{Verbs: every, NonResourceURLs: every}},
	}, nil
}

// RulesFor implements RuleResolver.
func (AlwaysDeny) RulesFor(context.Context, *User, string) (Rules, error) { return Rules{}, nil }
