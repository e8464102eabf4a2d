package watchcache

import "sync"

// scope is an interest that watchers share. Every change belongs to a few scopes: its name, its
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
	scopeKinds
)

// group holds the watchers of one scope. A change in the scope wakes all of them at once. The cost
// does not depend on watchers of other scopes.
type group struct {
	scope    scope
	watchers int // under Store.mu

	mu   sync.Mutex // after Store.mu
	wake *wake      // what the active watchers wait on; nil if there are none
}

// wake is one wake-up of a group.
type wake struct {
	ch  chan struct{} // closed by the first change
	seq uint64        // the record of that change; valid once taken from the group

	mu       sync.Mutex // a leaf lock
	happened bool       // the change has happened
	parked   []*Watcher // resumed by the change
}

// park registers a watcher to be resumed by the change. It returns false if the change has happened
// already, or if the watcher was closed.
func (wk *wake) park(w *Watcher) bool {
	wk.mu.Lock()
	defer wk.mu.Unlock()
	if wk.happened || w.closed.Load() {
		return false
	}
	if !wk.isParked(w) { // still registered from before a nudge
		w.parkedAt = len(wk.parked)
		wk.parked = append(wk.parked, w)
	}
	return true
}

// isParked reports whether the watcher is parked here, or was when it was nudged.
func (wk *wake) isParked(w *Watcher) bool {
	return w.parkedAt < len(wk.parked) && wk.parked[w.parkedAt] == w
}

// unregister removes a closed watcher.
func (wk *wake) unregister(w *Watcher) {
	wk.mu.Lock()
	defer wk.mu.Unlock()
	if !wk.isParked(w) {
		return
	}
	last := len(wk.parked) - 1
	wk.parked[w.parkedAt] = wk.parked[last]
	wk.parked[w.parkedAt].parkedAt = w.parkedAt
	wk.parked[last] = nil
	wk.parked = wk.parked[:last]
}

// crowdedWake is the number of watchers above which a separate goroutine resumes them, instead of
// the one that applies changes.
const crowdedWake = 256

// release wakes all watchers that wait for the change.
func (wk *wake) release() {
	wk.mu.Lock()
	parked := wk.parked
	wk.happened = true
	wk.parked = nil
	close(wk.ch) // no watcher parks again before it is off the list
	wk.mu.Unlock()
	if len(parked) > crowdedWake {
		go resumeAll(parked)
		return
	}
	resumeAll(parked)
}

// resumeAll calls the resume functions of parked watchers.
func resumeAll(parked []*Watcher) {
	for _, w := range parked {
		w.unpark()
	}
}

// arm makes the caller one of the active watchers. The caller holds Store.mu for reading and has
// read all records.
func (g *group) arm() *wake {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wake == nil {
		g.wake = &wake{ch: make(chan struct{})}
	}
	return g.wake
}

// armed reports whether no change has come since wk was armed. The caller holds Store.mu.
func (g *group) armed(wk *wake) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.wake == wk
}

// fire takes the wake-up from the group, to be released once the locks are free. The caller holds
// Store.mu for writing, which excludes the readers that use group.mu.
func (g *group) fire(seq uint64, fired []*wake) []*wake {
	if g.wake == nil {
		return fired
	}
	g.wake.seq = seq
	fired = append(fired, g.wake)
	g.wake = nil
	return fired
}

// groups holds the groups that have watchers. Store.mu guards them.
type groups struct {
	all    group
	scoped map[scope]*group
	kinds  [scopeKinds]int // number of groups of each kind, to avoid lookups
	// watchers is the number of watchers of all groups, for metrics.
	watchers int
}

// join adds a watcher to the group of a scope and returns the group.
func (gs *groups) join(interest scope) *group {
	g := &gs.all
	if interest.kind != scopeAll {
		g = gs.scoped[interest]
		if g == nil {
			g = &group{scope: interest}
			if gs.scoped == nil {
				gs.scoped = map[scope]*group{}
			}
			gs.scoped[interest] = g
			gs.kinds[interest.kind]++
		}
	}
	g.watchers++
	gs.watchers++
	return g
}

// leave removes a watcher from its group.
func (gs *groups) leave(g *group) {
	g.watchers--
	gs.watchers--
	if g.watchers == 0 && g != &gs.all {
		delete(gs.scoped, g.scope)
		gs.kinds[g.scope.kind]--
	}
}

// collectWakes collects the wake-ups of all groups that a change concerns.
func (gs *groups) collectWakes(r *record, seq uint64, index []string, fired []*wake) []*wake {
	fired = gs.all.fire(seq, fired)
	if len(gs.scoped) == 0 {
		return fired
	}
	prev := r.prev.LastReadable()
	if r.prev != nil && prev == nil {
		if !r.prev.neverReadable() {
			return gs.fireAll(seq, fired) // it is unknown which watchers saw the object
		}
		prev = r.prev
	}
	e := r.entry
	if e == nil {
		e = prev
	}
	if gs.kinds[scopeNamespace] > 0 {
		fired = gs.fire(scope{kind: scopeNamespace, namespace: e.Namespace()}, seq, fired)
	}
	if gs.kinds[scopeName] > 0 {
		fired = gs.fire(scope{kind: scopeName, name: e.Name()}, seq, fired)
	}
	if gs.kinds[scopeObject] > 0 {
		fired = gs.fire(scope{kind: scopeObject, namespace: e.Namespace(), name: e.Name()}, seq, fired)
	}
	if gs.kinds[scopeField] == 0 {
		return fired
	}
	for i, field := range index {
		value := e.Fields().Get(field)
		fired = gs.fire(scope{kind: scopeField, field: i, value: value}, seq, fired)
		if prev == nil {
			continue
		}
		if old := prev.Fields().Get(field); old != value {
			fired = gs.fire(scope{kind: scopeField, field: i, value: old}, seq, fired)
		}
	}
	return fired
}

// fire collects the wake-up of the group of a scope, if the group exists.
func (gs *groups) fire(interest scope, seq uint64, fired []*wake) []*wake {
	if g := gs.scoped[interest]; g != nil {
		return g.fire(seq, fired)
	}
	return fired
}

// fireAll collects the wake-ups of all groups.
func (gs *groups) fireAll(seq uint64, fired []*wake) []*wake {
	fired = gs.all.fire(seq, fired)
	for _, g := range gs.scoped {
		fired = g.fire(seq, fired)
	}
	return fired
}

// Woken returns how many watchers a change of an object wakes, based on the known state of the
// object.
func (s *Store) Woken(namespace, name string) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	groups := &s.groups
	n := groups.all.watchers
	if len(groups.scoped) == 0 {
		return n
	}
	count := func(interest scope) {
		if groups.kinds[interest.kind] > 0 {
			if g := groups.scoped[interest]; g != nil {
				n += g.watchers
			}
		}
	}
	count(scope{kind: scopeNamespace, namespace: namespace})
	count(scope{kind: scopeName, name: name})
	count(scope{kind: scopeObject, namespace: namespace, name: name})
	if groups.kinds[scopeField] == 0 {
		return n
	}
	key := s.resource.Prefix + name
	if namespace != "" {
		key = s.resource.Prefix + namespace + "/" + name
	}
	e, ok := s.live.get(key)
	for i, field := range s.resource.Index {
		value := ""
		if ok {
			value = e.Fields().Get(field)
		}
		count(scope{kind: scopeField, field: i, value: value})
	}
	return n
}
