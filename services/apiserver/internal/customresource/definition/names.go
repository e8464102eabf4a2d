package definition

import (
	"cmp"
	"fmt"
	"slices"

	v1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/status"
)

// Claim is a definition as far as names go: what it asks for and what it was
// given before.
type Claim struct {
	// Name of the definition, and the revision at which it was created.
	Name    string
	Created int64
	// Wanted are the names of its specification, Held those of its status.
	Wanted, Held v1.CustomResourceDefinitionNames
	// Established tells that its status says so.
	Established bool
	// Broken tells that it cannot be established: its webhook's certificates
	// cannot be read.
	Broken bool
}

// Verdict is what a definition gets.
type Verdict struct {
	// Accepted names; they are those that are served.
	Accepted v1.CustomResourceDefinitionNames
	// Conflict is why not all wanted names are accepted; nil when all are.
	Conflict *Conflict
	// Established reports whether the definition is established. Its resource is served if Config.Definable
	// allows that.
	Established bool
}

// Conflict is a name that somebody else has.
type Conflict struct {
	// Reason is that of the condition, such as "KindConflict".
	Reason, Message string
}

// ClaimOf reads a definition that was created at a revision.
func ClaimOf(d *v1.CustomResourceDefinition, created int64) Claim {
	return Claim{
		Name: d.Name, Created: created, Wanted: d.Spec.Names, Held: d.Status.AcceptedNames,
		Established: IsTrue(d, v1.Established), Broken: brokenWebhook(d),
	}
}

// Decide says what each definition of a group gets, in the order of the claims,
// which may come in any: the result depends on their contents alone. The caller
// keeps the claims.
//
// In the order of their creation, definitions are given those wanted names that
// nobody has. Who is given a name may give one back, which may be what an older
// definition waits for; so the search starts anew with the oldest then.
func Decide(claims []Claim) []Verdict {
	used := newInUse()
	for i := range claims {
		used.count(&claims[i].Held, 1)
	}
	return used.decide(claims)
}

// inUse counts the names that are accepted in a group. Resources and kinds are
// called by different names.
type inUse struct{ resources, kinds map[string]int }

func newInUse() *inUse { return &inUse{resources: map[string]int{}, kinds: map[string]int{}} }

func (u *inUse) count(n *v1.CustomResourceDefinitionNames, by int) {
	add := func(in map[string]int, name string) {
		if name == "" {
			return
		}
		if in[name] += by; in[name] == 0 {
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

// decide is Decide where what is held is counted already; the counts are the
// same afterwards.
func (u *inUse) decide(claims []Claim) []Verdict {
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
		if u.give(claims[i].Wanted, &verdicts[i]) {
			at = -1
		}
	}
	// What is refused is told as it is in the end.
	for i := range claims {
		u.give(claims[i].Wanted, &verdicts[i])
	}
	for i := range claims {
		c, v := &claims[i], &verdicts[i]
		v.Established = c.Established || v.Conflict == nil && !c.Broken
		u.count(&v.Accepted, -1)
		u.count(&c.Held, 1)
	}
	return verdicts
}

// give gives a definition what it wants and nobody has, and tells whether it
// gave anything back.
func (u *inUse) give(want v1.CustomResourceDefinitionNames, v *Verdict) (gaveBack bool) {
	now := v.Accepted
	v.Conflict = nil
	refuse := func(reason string, err error) { v.Conflict = &Conflict{Reason: reason, Message: err.Error()} }
	single := func(reason string, in map[string]int, want string, has *string) {
		switch {
		case want == *has:
		case in[want] > 0:
			refuse(reason, taken(want))
		default:
			gaveBack = gaveBack || *has != ""
			*has = want
		}
	}
	// The last reason is the one that is told.
	single("PluralConflict", u.resources, want.Plural, &now.Plural)
	single("SingularConflict", u.resources, want.Singular, &now.Singular)
	if err := u.takenOf(want.ShortNames, now.ShortNames); err != nil {
		refuse("ShortNamesConflict", err)
	} else if !slices.Equal(want.ShortNames, now.ShortNames) {
		gaveBack = gaveBack || len(now.ShortNames) > 0
		now.ShortNames = want.ShortNames
	}
	single("KindConflict", u.kinds, want.Kind, &now.Kind)
	single("ListKindConflict", u.kinds, want.ListKind, &now.ListKind)
	now.Categories = want.Categories
	u.count(&v.Accepted, -1)
	u.count(&now, 1)
	v.Accepted = now
	return gaveBack
}

// takenOf tells which short names others have. They are given together or not
// at all.
func (u *inUse) takenOf(want, has []string) error {
	var errs []error
	for _, short := range want {
		if !slices.Contains(has, short) && u.resources[short] > 0 {
			errs = append(errs, taken(short))
		}
	}
	return status.Aggregated(errs)
}

func taken(name string) error { return fmt.Errorf("%q is already in use", name) }

// sameNames tells whether nothing would change by writing the one for the other.
func sameNames(a, b *v1.CustomResourceDefinitionNames) bool {
	return a.Plural == b.Plural && a.Singular == b.Singular && a.Kind == b.Kind && a.ListKind == b.ListKind &&
		slices.Equal(a.ShortNames, b.ShortNames) && slices.Equal(a.Categories, b.Categories)
}
