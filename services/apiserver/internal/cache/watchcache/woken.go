package watchcache

// Woken returns how many watchers a change of an object wakes, based on the known state of the
// object.
func (s *Store) Woken(namespace, name string) int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	gs := &s.groups
	n := gs.all.watchers
	if len(gs.scoped) == 0 {
		return n
	}
	count := func(sc scope) {
		if gs.kinds[sc.kind] > 0 {
			if g := gs.scoped[sc]; g != nil {
				n += g.watchers
			}
		}
	}
	count(scope{kind: scopeNamespace, a: namespace})
	count(scope{kind: scopeName, a: name})
	count(scope{kind: scopeObject, a: namespace, b: name})
	if gs.kinds[scopeField] == 0 {
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
		count(scope{kind: scopeField, field: i, a: value})
	}
	return n
}

// Walked returns how many entries a selection must visit, at most the given number.
func (s Snapshot) Walked(sel Selection, most int) int {
	m := sel.matcher()
	if m.Name != "" {
		return 1
	}
	if i, value, ok := m.indexed(s.store.resource.Index); ok && !s.image.selectsDamaged(m) {
		n := 0
		s.ascendIndex(i, value, "", func(*Entry) bool { n++; return n < most })
		return n
	}
	prefix := s.store.resource.Prefix
	if m.Namespace != "" {
		prefix += m.Namespace + "/"
	}
	if l, _, n := s.image.byLabel(m, prefix); l != nil {
		return min(n, most)
	}
	return min(s.Count(prefix, ""), most)
}
