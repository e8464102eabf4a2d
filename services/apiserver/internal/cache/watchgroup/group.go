package watchgroup

import (
	"sync"

	"binnacle/services/apiserver/internal/cache/objects"
)

// scope is a set of changes that watchers share. Every change belongs to a few scopes: its name, its
// namespace, the old and new value of each indexed field, and the scope of all. Fields that the
// kind does not use are zero.
type scope struct {
	kind            scopeKind
	field           int // position in ResourceConfig.Index, for scopeField
	namespace, name string
	value           string // of the field, for scopeField
}

// scopeKind states which changes a scope includes.
type scopeKind uint8

const (
	scopeAll       scopeKind = iota
	scopeNamespace           // changes in a namespace
	scopeName                // changes of objects with a name, in every namespace
	scopeObject              // changes of one object
	scopeField               // changes of objects whose indexed field has, or had, a value
	numScopeKinds
)

// Group holds the watchers of one scope. A change in the scope wakes all of them. The cost
// does not depend on watchers of other scopes.
type Group struct {
	scope    scope
	watchers int // under Store.mu

	mu   sync.Mutex // after Store.mu
	wake *Wake      // what the active watchers wait on; nil if there are none
}

// WatchesAll reports whether the group watches all objects of the resource.
func (g *Group) WatchesAll() bool { return g.scope.kind == scopeAll }

// CurrentWake returns the wake of the next change, which all active watchers share. The caller
// holds Store.mu for reading and has read all records.
func (g *Group) CurrentWake() *Wake {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wake == nil {
		g.wake = &Wake{woken: make(chan struct{})}
	}
	return g.wake
}

// IsCurrent reports whether wk is still the group's current wake. The caller holds Store.mu.
func (g *Group) IsCurrent(wk *Wake) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wake == wk
}

// takeWake appends the group's wake to wakes and removes it from the group. The caller holds Store.mu
// for writing, so group.mu is not needed, and calls WakeAll once it has released its locks.
func (g *Group) takeWake(seq uint64, wakes []*Wake) []*Wake {
	if g.wake == nil {
		return wakes
	}
	g.wake.Seq = seq
	wakes = append(wakes, g.wake)
	g.wake = nil
	return wakes
}

// Groups holds the groups that have watchers. Store.mu guards them.
type Groups struct {
	everything   Group
	scoped       map[scope]*Group
	groupsByKind [numScopeKinds]int // number of groups of each scope kind, to avoid lookups
	// watchers is the number of watchers of all groups, for metrics.
	watchers int
}

// Join adds a watcher of a selection to its group and returns the group. index holds the indexed
// fields of the resource.
func (gs *Groups) Join(selection *objects.Selection, index []string) *Group {
	shared := narrowestScope(selection, index)
	group := &gs.everything
	if shared.kind != scopeAll {
		group = gs.scoped[shared]
		if group == nil {
			group = &Group{scope: shared}
			if gs.scoped == nil {
				gs.scoped = map[scope]*Group{}
			}
			gs.scoped[shared] = group
			gs.groupsByKind[shared.kind]++
		}
	}
	group.watchers++
	gs.watchers++
	return group
}

// Leave removes a watcher from its group.
func (gs *Groups) Leave(g *Group) {
	g.watchers--
	gs.watchers--
	if g.watchers == 0 && g != &gs.everything {
		delete(gs.scoped, g.scope)
		gs.groupsByKind[g.scope.kind]--
	}
}

// TakeWakes appends the wakes of all groups that a change concerns to wakes.
func (gs *Groups) TakeWakes(record *objects.Record, seq uint64, index []string, wakes []*Wake) []*Wake {
	wakes = gs.everything.takeWake(seq, wakes)
	if len(gs.scoped) == 0 {
		return wakes
	}
	// prev is the version that watchers have seen. If the previous value is corrupt, that is the last
	// readable version before it.
	prev := record.Prev.LastReadable()
	if record.Prev != nil && prev == nil {
		if !record.Prev.NeverReadable() {
			// There was a readable version, which is not known. Any watcher may have seen it.
			return gs.TakeAllWakes(seq, wakes)
		}
		// No watcher has seen the object. The corrupt version still has its key.
		prev = record.Prev
	}
	entry := record.Entry
	if entry == nil {
		entry = prev
	}
	if gs.groupsByKind[scopeNamespace] > 0 {
		wakes = gs.takeWakeOf(scope{kind: scopeNamespace, namespace: entry.Namespace()}, seq, wakes)
	}
	if gs.groupsByKind[scopeName] > 0 {
		wakes = gs.takeWakeOf(scope{kind: scopeName, name: entry.Name()}, seq, wakes)
	}
	if gs.groupsByKind[scopeObject] > 0 {
		wakes = gs.takeWakeOf(scope{kind: scopeObject, namespace: entry.Namespace(), name: entry.Name()}, seq, wakes)
	}
	if gs.groupsByKind[scopeField] == 0 {
		return wakes
	}
	for i, field := range index {
		value := entry.Fields().Get(field)
		wakes = gs.takeWakeOf(scope{kind: scopeField, field: i, value: value}, seq, wakes)
		if prev == nil {
			continue
		}
		if old := prev.Fields().Get(field); old != value {
			wakes = gs.takeWakeOf(scope{kind: scopeField, field: i, value: old}, seq, wakes)
		}
	}
	return wakes
}

// takeWakeOf appends the wake of the group of a scope to wakes, if the group exists.
func (gs *Groups) takeWakeOf(sc scope, seq uint64, wakes []*Wake) []*Wake {
	if g := gs.scoped[sc]; g != nil {
		return g.takeWake(seq, wakes)
	}
	return wakes
}

// TakeAllWakes appends the wakes of all groups to wakes.
func (gs *Groups) TakeAllWakes(seq uint64, wakes []*Wake) []*Wake {
	wakes = gs.everything.takeWake(seq, wakes)
	for _, g := range gs.scoped {
		wakes = g.takeWake(seq, wakes)
	}
	return wakes
}

// WakeCount returns how many watchers a change of an object wakes. value returns the value of an
// indexed field.
func (gs *Groups) WakeCount(namespace, name string, index []string, value func(field string) string) int {
	n := gs.everything.watchers
	if len(gs.scoped) == 0 {
		return n
	}
	count := func(sc scope) {
		if gs.groupsByKind[sc.kind] > 0 {
			if g := gs.scoped[sc]; g != nil {
				n += g.watchers
			}
		}
	}
	count(scope{kind: scopeNamespace, namespace: namespace})
	count(scope{kind: scopeName, name: name})
	count(scope{kind: scopeObject, namespace: namespace, name: name})
	if gs.groupsByKind[scopeField] == 0 {
		return n
	}
	for i, field := range index {
		count(scope{kind: scopeField, field: i, value: value(field)})
	}
	return n
}

// Stats returns the number of groups, except the one for all objects, and the number of watchers in
// all groups.
func (gs *Groups) Stats() (scoped, watchers int) { return len(gs.scoped), gs.watchers }

// narrowestScope returns the narrowest scope that contains all selected objects of a resource with the
// given indexed fields.
func narrowestScope(selection *objects.Selection, index []string) scope {
	switch {
	case selection.Name != "" && selection.Namespace != "":
		return scope{kind: scopeObject, namespace: selection.Namespace, name: selection.Name}
	case selection.Name != "":
		return scope{kind: scopeName, name: selection.Name}
	}
	if i, v, ok := selection.Indexed(index); ok {
		return scope{kind: scopeField, field: i, value: v}
	}
	if selection.Namespace != "" {
		return scope{kind: scopeNamespace, namespace: selection.Namespace}
	}
	return scope{}
}
