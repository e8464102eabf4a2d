package definition

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/status"
)

// NameClaim holds the names that a definition asks for and those that it already holds.
type NameClaim struct {
	// Name is the name of the definition. Created is the revision of its creation.
	Name    string
	Created int64
	// Requested holds the names of the spec, Accepted those of the status.
	Requested, Accepted v1.CustomResourceDefinitionNames
	// Established reports whether the status states that the definition is established.
	Established bool
	// InvalidWebhook reports whether the CA bundle of the conversion webhook is invalid. Such a
	// definition is not established.
	InvalidWebhook bool
}

// Decision is the decision on a definition.
type Decision struct {
	// Accepted holds the accepted names, under which the resource is served.
	Accepted v1.CustomResourceDefinitionNames
	// Conflict explains why not all requested names are accepted. It is nil if all are.
	Conflict *Conflict
	// Established reports whether the definition is established. Its resource is served if
	// Config.Definable allows that.
	Established bool
}

// Conflict reports a name that another definition holds.
type Conflict struct {
	// Reason is the reason of the condition, such as "KindConflict".
	Reason, Message string
}

// NewNameClaim returns the claim of a definition that was created at a revision.
func NewNameClaim(definition *v1.CustomResourceDefinition, created int64) NameClaim {
	return NameClaim{
		Name: definition.Name, Created: created, Requested: definition.Spec.Names, Accepted: definition.Status.AcceptedNames,
		Established: IsTrue(definition, v1.Established), InvalidWebhook: hasInvalidCABundle(definition),
	}
}

// Decide returns the decision for each definition of a group, in the order of the claims. The
// decisions depend only on the contents of the claims, not on their order. Decide does not change
// the claims.
//
// Definitions get the requested names that are free, in the order of their creation. A definition
// that gets a name may free another one, for which an older definition may wait. Then the search
// restarts with the oldest definition.
func Decide(claims []NameClaim) []Decision {
	usage := newNameUsage()
	for i := range claims {
		usage.add(&claims[i].Accepted, 1)
	}
	return usage.assignNames(claims)
}

// nameUsage counts the accepted names of a group. Resources and kinds are separate namespaces.
type nameUsage struct{ resources, kinds map[string]int }

func newNameUsage() *nameUsage {
	return &nameUsage{resources: map[string]int{}, kinds: map[string]int{}}
}

// add adds delta to the counts of the names.
func (u *nameUsage) add(names *v1.CustomResourceDefinitionNames, delta int) {
	add := func(counts map[string]int, name string) {
		if name == "" {
			return
		}
		counts[name] += delta
		if counts[name] == 0 {
			delete(counts, name)
		}
	}
	add(u.resources, names.Plural)
	add(u.resources, names.Singular)
	for _, short := range names.ShortNames {
		add(u.resources, short)
	}
	add(u.kinds, names.Kind)
	add(u.kinds, names.ListKind)
}

// assignNames decides like Decide on claims whose held names are already counted. It restores the
// counts before it returns.
func (u *nameUsage) assignNames(claims []NameClaim) []Decision {
	order := make([]int, len(claims))
	decisions := make([]Decision, len(claims))
	for index := range claims {
		order[index] = index
		decisions[index].Accepted = claims[index].Accepted
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(claims[a].Created, claims[b].Created), cmp.Compare(claims[a].Name, claims[b].Name))
	})

	// 1. Assign free names, the oldest definition first.
	for next := 0; next < len(order); next++ {
		index := order[next]
		if freed := u.assignFreeNames(claims[index].Requested, &decisions[index]); freed {
			next = -1 // an older definition may wait for the name, so restart with the oldest
		}
	}

	// 2. Find the conflicts that remain after the last assignment.
	for index := range claims {
		u.assignFreeNames(claims[index].Requested, &decisions[index])
	}

	// 3. Decide which definitions are established, and restore the counts.
	for index := range claims {
		claim, decision := &claims[index], &decisions[index]
		decision.Established = claim.Established || decision.Conflict == nil && !claim.InvalidWebhook
		u.add(&decision.Accepted, -1)
		u.add(&claim.Accepted, 1)
	}
	return decisions
}

// assignFreeNames assigns the requested names that are free. freed reports whether the definition
// released a name.
func (u *nameUsage) assignFreeNames(target v1.CustomResourceDefinitionNames, decision *Decision) (freed bool) {
	accepted := decision.Accepted
	decision.Conflict = nil
	reject := func(reason string, err error) { decision.Conflict = &Conflict{Reason: reason, Message: err.Error()} }
	assign := func(reason string, counts map[string]int, target string, current *string) {
		switch {
		case target == *current:
		case counts[target] > 0:
			reject(reason, inUseError(target))
		default:
			freed = freed || *current != ""
			*current = target
		}
	}
	// If there are several conflicts, the last one is reported.
	assign("PluralConflict", u.resources, target.Plural, &accepted.Plural)
	assign("SingularConflict", u.resources, target.Singular, &accepted.Singular)
	if err := u.shortNamesInUse(target.ShortNames, accepted.ShortNames); err != nil {
		reject("ShortNamesConflict", err)
	} else if !slices.Equal(target.ShortNames, accepted.ShortNames) {
		freed = freed || len(accepted.ShortNames) > 0
		accepted.ShortNames = target.ShortNames
	}
	assign("KindConflict", u.kinds, target.Kind, &accepted.Kind)
	assign("ListKindConflict", u.kinds, target.ListKind, &accepted.ListKind)
	accepted.Categories = target.Categories
	u.add(&decision.Accepted, -1)
	u.add(&accepted, 1)
	decision.Accepted = accepted
	return freed
}

// shortNamesInUse returns an error that lists the target short names that other definitions hold.
// Short names are assigned all together or not at all.
func (u *nameUsage) shortNamesInUse(target, current []string) error {
	var errs []error
	for _, short := range target {
		if !slices.Contains(current, short) && u.resources[short] > 0 {
			errs = append(errs, inUseError(short))
		}
	}
	return status.Aggregated(errs)
}

func inUseError(name string) error { return fmt.Errorf("%q is already in use", name) }

// sameNames reports whether two sets of names are equal.
func sameNames(a, b *v1.CustomResourceDefinitionNames) bool {
	return a.Plural == b.Plural && a.Singular == b.Singular && a.Kind == b.Kind && a.ListKind == b.ListKind &&
		slices.Equal(a.ShortNames, b.ShortNames) && slices.Equal(a.Categories, b.Categories)
}

// HasOwnKeyPrefix reports whether only objects of a custom resource have its key prefix in the
// store. Of the built-in kinds, only two are stored below a group with a dot. The keys of the
// others, and other keys of the server, have no dot in the position of the group.
func HasOwnKeyPrefix(group, resource string) bool {
	if !strings.Contains(group, ".") || resource == "" || strings.Contains(group+resource, "/") {
		return false
	}
	switch resource + "." + group {
	case "customresourcedefinitions." + v1.GroupName, "apiservices.apiregistration.k8s.io":
		return false
	}
	return true
}

// Reason and message of the Terminating condition of a definition that is not Definable.
const (
	overlapReason  = "OverlappingBuiltInResource"
	overlapMessage = "instances overlap with built-in resources in storage"
)
