package authorizer

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Rules holds the permissions of a user in a namespace, as far as they can be listed.
type Rules struct {
	Resource    []authorizationv1.ResourceRule
	NonResource []authorizationv1.NonResourceRule
	// Incomplete means that the user may have further permissions.
	Incomplete bool
}

// RuleResolver lists the permissions of a user in a namespace. It may return both rules and an
// error, which says why the list may be incomplete.
type RuleResolver interface {
	RulesFor(ctx context.Context, u *User, namespace string) (Rules, error)
}

// RulesFor lists the permissions that any member grants. It skips members that are no RuleResolver,
// because they allow nothing that another member does not.
func (c Chain) RulesFor(ctx context.Context, user *User, namespace string) (Rules, error) {
	var all Rules
	var errs []error
	for _, member := range c {
		r, ok := member.(RuleResolver)
		if !ok {
			continue
		}
		rules, err := r.RulesFor(ctx, user, namespace)
		all.Resource = append(all.Resource, rules.Resource...)
		all.NonResource = append(all.NonResource, rules.NonResource...)
		all.Incomplete = all.Incomplete || rules.Incomplete
		if err != nil {
			errs = append(errs, err)
		}
	}
	return all, utilerrors.NewAggregate(errs)
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
