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
	// Wanted holds the names of the spec, Held those of the status.
	Wanted, Held v1.CustomResourceDefinitionNames
	// Established reports whether the status states that the definition is established.
	Established bool
	// Broken reports whether the definition cannot be established because its webhook's CA bundle
	// is invalid.
	Broken bool
}

// Verdict is the decision on a definition.
type Verdict struct {
	// Accepted holds the accepted names, under which the resource is served.
	Accepted v1.CustomResourceDefinitionNames
	// Conflict explains why not all wanted names are accepted. It is nil if all are.
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

// ClaimOf returns the claim of a definition that was created at a revision.
func ClaimOf(d *v1.CustomResourceDefinition, created int64) NameClaim {
	return NameClaim{
		Name: d.Name, Created: created, Wanted: d.Spec.Names, Held: d.Status.AcceptedNames,
		Established: IsTrue(d, v1.Established), Broken: brokenWebhook(d),
	}
}

// Decide returns the verdict for each definition of a group, in the order of the claims. The
// verdicts depend only on the contents of the claims, not on their order. Decide does not change
// the claims.
//
// Definitions get the wanted names that are free, in the order of their creation. A definition that
// gets a name may free another one, for which an older definition may wait. Then the search
// restarts with the oldest definition.
func Decide(claims []NameClaim) []Verdict {
	used := newInUse()
	for i := range claims {
		used.count(&claims[i].Held, 1)
	}
	return used.decide(claims)
}

// inUse counts the accepted names of a group. Resources and kinds are separate namespaces.
type inUse struct{ resources, kinds map[string]int }

func newInUse() *inUse { return &inUse{resources: map[string]int{}, kinds: map[string]int{}} }

// count adds by to the counts of the names.
func (u *inUse) count(n *v1.CustomResourceDefinitionNames, by int) {
	add := func(in map[string]int, name string) {
		if name == "" {
			return
		}
		in[name] += by
		if in[name] == 0 {
			delete(in, name)
		}
	}
	add(u.resources, n.Plural)
	add(u.resources, n.Singular)
	for _, short := range n.ShortNames {
		add(u.resources, short)
	}
	add(u.kinds, n.Kind)
	add(u.kinds, n.ListKind)
}

// decide is Decide for claims whose held names are already counted. It restores the counts before
// it returns.
func (u *inUse) decide(claims []NameClaim) []Verdict {
	order := make([]int, len(claims))
	verdicts := make([]Verdict, len(claims))
	for i := range claims {
		order[i] = i
		verdicts[i].Accepted = claims[i].Held
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(claims[a].Created, claims[b].Created), cmp.Compare(claims[a].Name, claims[b].Name))
	})
	for at := 0; at < len(order); at++ {
		i := order[at]
		if u.assignFreeNames(claims[i].Wanted, &verdicts[i]) {
			at = -1
		}
	}
	// Conflicts are reported as of the final assignment.
	for i := range claims {
		u.assignFreeNames(claims[i].Wanted, &verdicts[i])
	}
	for i := range claims {
		c, v := &claims[i], &verdicts[i]
		v.Established = c.Established || v.Conflict == nil && !c.Broken
		u.count(&v.Accepted, -1)
		u.count(&c.Held, 1)
	}
	return verdicts
}

// assignFreeNames assigns the wanted names that are free. freed reports whether the definition
// released a name.
func (u *inUse) assignFreeNames(want v1.CustomResourceDefinitionNames, v *Verdict) (freed bool) {
	now := v.Accepted
	v.Conflict = nil
	refuse := func(reason string, err error) { v.Conflict = &Conflict{Reason: reason, Message: err.Error()} }
	single := func(reason string, in map[string]int, want string, has *string) {
		switch {
		case want == *has:
		case in[want] > 0:
			refuse(reason, inUseError(want))
		default:
			freed = freed || *has != ""
			*has = want
		}
	}
	// The last conflict is the one that is reported.
	single("PluralConflict", u.resources, want.Plural, &now.Plural)
	single("SingularConflict", u.resources, want.Singular, &now.Singular)
	if err := u.shortNamesInUse(want.ShortNames, now.ShortNames); err != nil {
		refuse("ShortNamesConflict", err)
	} else if !slices.Equal(want.ShortNames, now.ShortNames) {
		freed = freed || len(now.ShortNames) > 0
		now.ShortNames = want.ShortNames
	}
	single("KindConflict", u.kinds, want.Kind, &now.Kind)
	single("ListKindConflict", u.kinds, want.ListKind, &now.ListKind)
	now.Categories = want.Categories
	u.count(&v.Accepted, -1)
	u.count(&now, 1)
	v.Accepted = now
	return freed
}

// shortNamesInUse returns an error that lists the wanted short names that other definitions hold.
// Short names are assigned all together or not at all.
func (u *inUse) shortNamesInUse(want, has []string) error {
	var errs []error
	for _, short := range want {
		if !slices.Contains(has, short) && u.resources[short] > 0 {
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

// HasOwnPlace reports whether the objects of a custom resource have a key prefix in the store that
// nothing else shares. Only two built-in kinds are stored below a group with a dot. The keys of
// other built-in kinds, and other keys of the server, have no dot in the position of the group.
func HasOwnPlace(group, resource string) bool {
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
