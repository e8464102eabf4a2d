package definition

import (
	"cmp"
	"maps"
	"slices"
)

// NameConflicts decides like Decide, but for a changing set of definitions. It recomputes only changed definitions
// and those whose names are not settled. It is not safe for concurrent use.
type NameConflicts struct {
	groups map[string]*group
	dirty  map[string]*group
}

// group holds the definitions of one API group.
type group struct {
	members map[string]*member
	// unsettled holds the members whose status lacks some of the requested names.
	unsettled map[string]*member
	heldNames *nameUsage // counts the accepted names of all members
	// changed holds the names of added, changed and removed definitions.
	changed map[string]bool
}

// member is a definition of the set with the decision on its names.
type member struct {
	claim    NameClaim
	decision Decision
}

// DecisionChange reports that the decision on a definition changed. A removed definition has the
// zero Decision.
type DecisionChange struct {
	Group, Name string
	Decision    Decision
	Removed     bool
}

// NewNameConflicts returns an empty set.
func NewNameConflicts() *NameConflicts {
	return &NameConflicts{groups: map[string]*group{}, dirty: map[string]*group{}}
}

// Put adds or replaces a definition of a group.
func (n *NameConflicts) Put(groupName string, nameClaim NameClaim) {
	apiGroup := n.groups[groupName]
	if apiGroup == nil {
		apiGroup = &group{
			members:   map[string]*member{},
			unsettled: map[string]*member{},
			heldNames: newNameUsage(),
			changed:   map[string]bool{},
		}
		n.groups[groupName] = apiGroup
	}
	claimant := apiGroup.members[nameClaim.Name]
	if claimant == nil {
		claimant = &member{}
		apiGroup.members[nameClaim.Name] = claimant
	} else {
		apiGroup.heldNames.add(&claimant.claim.Accepted, -1)
	}
	claimant.claim = nameClaim
	apiGroup.heldNames.add(&nameClaim.Accepted, 1)
	delete(apiGroup.unsettled, nameClaim.Name)
	if !sameNames(&nameClaim.Requested, &nameClaim.Accepted) {
		apiGroup.unsettled[nameClaim.Name] = claimant
	}
	apiGroup.changed[nameClaim.Name] = true
	n.dirty[groupName] = apiGroup
}

// Remove removes a definition from a group.
func (n *NameConflicts) Remove(groupName, definition string) {
	apiGroup := n.groups[groupName]
	if apiGroup == nil || apiGroup.members[definition] == nil {
		return
	}
	apiGroup.heldNames.add(&apiGroup.members[definition].claim.Accepted, -1)
	delete(apiGroup.members, definition)
	delete(apiGroup.unsettled, definition)
	apiGroup.changed[definition] = true
	n.dirty[groupName] = apiGroup
}

// Decision returns the decision on a definition as of the last call of Resolve.
func (n *NameConflicts) Decision(groupName, definition string) (Decision, bool) {
	if g := n.groups[groupName]; g != nil {
		if m := g.members[definition]; m != nil {
			return m.decision, true
		}
	}
	return Decision{}, false
}

// Resolve decides and returns the changes since the last call, sorted by group and name. Every
// definition that was put counts as changed.
func (n *NameConflicts) Resolve() []DecisionChange {
	var changes []DecisionChange
	for groupName, g := range n.dirty {
		changes = g.updateDecisions(groupName, changes)
		if len(g.members) == 0 {
			delete(n.groups, groupName)
		}
	}
	clear(n.dirty)
	slices.SortFunc(changes, func(a, b DecisionChange) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name))
	})
	return changes
}

// updateDecisions recomputes the decisions on changed and unsettled members, and appends the
// changes.
func (g *group) updateDecisions(groupName string, changes []DecisionChange) []DecisionChange {
	unsettled := slices.Collect(maps.Values(g.unsettled))
	claims := make([]NameClaim, len(unsettled))
	for i, member := range unsettled {
		claims[i] = member.claim
	}
	for i, decision := range g.heldNames.assignNames(claims) {
		member := unsettled[i]
		if !g.changed[member.claim.Name] && !member.decision.equal(&decision) {
			changes = append(changes, DecisionChange{Group: groupName, Name: member.claim.Name, Decision: decision})
		}
		member.decision = decision
	}
	for definition := range g.changed {
		member := g.members[definition]
		if member == nil {
			changes = append(changes, DecisionChange{Group: groupName, Name: definition, Removed: true})
			continue
		}
		if g.unsettled[definition] == nil {
			member.decision = Decision{Accepted: member.claim.Accepted, Established: member.claim.Established || !member.claim.InvalidWebhook}
		}
		changes = append(changes, DecisionChange{Group: groupName, Name: definition, Decision: member.decision})
	}
	clear(g.changed)
	return changes
}

// equal compares the contents of two decisions.
func (d *Decision) equal(other *Decision) bool {
	if !sameNames(&d.Accepted, &other.Accepted) || d.Established != other.Established {
		return false
	}
	if d.Conflict == nil || other.Conflict == nil {
		return d.Conflict == other.Conflict
	}
	return *d.Conflict == *other.Conflict
}
