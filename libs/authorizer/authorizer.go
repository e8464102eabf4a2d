package authorizer

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"binnacle/libs/api"
)

// User is the user of a request.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// InGroup reports whether the user is a member of a group.
func (u *User) InGroup(group string) bool { return slices.Contains(u.Groups, group) }

// Decision is the result of an authorizer.
type Decision uint8

// Decisions.
const (
	NoOpinion Decision = iota
	Allow
	Deny
)

func (d Decision) String() string { return [...]string{"no-opinion", "allowed", "denied"}[d] }

// Attributes is the input of a decision (specification: "Authorization"). An authorizer neither
// changes nor keeps it.
type Attributes struct {
	User *User
	Verb string
	// Resource distinguishes resource requests from requests for a path.
	Resource                        bool
	Namespace, Group, Version, Name string
	ResourceName, Subresource       string
	Path                            string
	// FieldSelector and LabelSelector limit a request for many objects. All requirements apply, so
	// omitting one requests more.
	FieldSelector fields.Requirements
	LabelSelector labels.Requirements
}

// Authorizer decides requests. The reason is for people. An error means that the authorizer could
// not decide, and is not a permission. Implementations are safe for concurrent use.
type Authorizer interface {
	Authorize(ctx context.Context, a *Attributes) (Decision, string, error)
}

// Chain calls its members in order, until one allows or denies the request. If none does, the chain
// returns all reasons and errors.
type Chain []Authorizer

// Authorize implements Authorizer.
func (c Chain) Authorize(ctx context.Context, a *Attributes) (Decision, string, error) {
	var reasons []string
	var errs []error
	for _, member := range c {
		d, reason, err := member.Authorize(ctx, a)
		if d != NoOpinion {
			return d, reason, err
		}
		if err != nil {
			errs = append(errs, err)
		}
		if reason != "" {
			reasons = append(reasons, reason)
		}
	}
	return NoOpinion, strings.Join(reasons, "\n"), utilerrors.NewAggregate(errs)
}

// AlwaysAllow allows everything.
type AlwaysAllow struct{}

// Authorize implements Authorizer.
func (AlwaysAllow) Authorize(context.Context, *Attributes) (Decision, string, error) {
	return Allow, "", nil
}

// AlwaysDeny allows nothing.
type AlwaysDeny struct{}

// Authorize implements Authorizer.
func (AlwaysDeny) Authorize(context.Context, *Attributes) (Decision, string, error) {
	return NoOpinion, "Everything is forbidden.", nil
}

// SystemMasters allows everything to the group system:masters.
type SystemMasters struct{}

// Authorize implements Authorizer.
func (SystemMasters) Authorize(_ context.Context, a *Attributes) (Decision, string, error) {
	if a.User != nil && a.User.InGroup(api.GroupMasters) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}
