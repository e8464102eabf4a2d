package objects

import "strings"

// Ascend calls fn for the entries whose keys start with prefix and are not before from, in the
// order of their keys, until fn returns false.
func (im *Image) Ascend(prefix, from string, fn func(*Entry) bool) {
	if strings.HasPrefix(im.Prefix, prefix) { // avoids a check of each key
		im.entries.Ascend(&Entry{compact: searchKey(from)}, fn)
		return
	}
	im.entries.Ascend(&Entry{compact: searchKey(max(prefix, from))}, func(e *Entry) bool {
		return strings.HasPrefix(e.Key(), prefix) && fn(e)
	})
}

// Count returns the number of entries that Ascend would visit.
func (im *Image) Count(prefix, from string) int {
	start := 0
	if from > prefix || !strings.HasPrefix(im.Prefix, prefix) {
		start = im.countBefore(max(prefix, from))
	}
	end := im.entries.Len()
	if !strings.HasPrefix(im.Prefix, prefix) {
		end = im.countBefore(prefixEnd(prefix))
	}
	return max(0, end-start)
}

// NoIndex stands for the position of an index if the tree of keys is used instead.
const NoIndex = -1

// Select calls fn for the selected entries that are not before from, in the order of their keys,
// until fn returns false. It inspects as little as possible: one object, an index of a field or a
// label, a namespace, or all objects. It returns how many entries it inspected and selected, and
// the index that it used.
func (im *Image) Select(matcher *Matcher, from string, fn func(*Entry) bool) (fetched, returned, index int) {
	visit := func(e *Entry) bool {
		fetched++
		if fetched%PauseInterval == 0 && matcher.Pause != nil && !matcher.Pause() {
			return false
		}
		if !matcher.Matches(e) {
			return true
		}
		returned++
		return fn(e)
	}
	prefix := matcher.keyPrefix(im.Prefix)
	if matcher.Name != "" {
		e, ok := im.Get(prefix + matcher.Name)
		if matcher.Namespace != "" || ok && e.Namespace() == "" { // otherwise the name may occur in any namespace
			if ok && e.Key() >= from {
				visit(e)
			}
			return fetched, returned, NoIndex
		}
	}
	if i, value, ok := matcher.Indexed(im.Index); ok && !im.selectsCorrupt(matcher) {
		im.indexes[i].ascend(value, from, visit)
		return fetched, returned, i
	}
	if l, value, _ := im.bestLabelIndex(matcher, prefix); l != nil {
		l.used.Store(im.Now())
		l.ascendPrefix(value, prefix, from, visit)
		l.saved.Add(int64(max(0, im.Count(prefix, from)-fetched)))
	} else {
		im.Ascend(prefix, from, visit)
	}
	return fetched, returned, NoIndex
}

// InspectedCount returns the number of entries that a selection must visit, or maximum if there are
// more.
func (im *Image) InspectedCount(sel Selection, maximum int) int {
	m := sel.Compile()
	if m.Name != "" {
		return 1
	}
	if i, value, ok := m.Indexed(im.Index); ok && !im.selectsCorrupt(m) {
		n := 0
		im.indexes[i].ascend(value, "", func(*Entry) bool { n++; return n < maximum })
		return n
	}
	prefix := m.keyPrefix(im.Prefix)
	if l, _, n := im.bestLabelIndex(m, prefix); l != nil {
		return min(n, maximum)
	}
	return min(im.Count(prefix, ""), maximum)
}

// SelectCorrupt calls fn for corrupt objects that may be selected, judged by their keys, and
// that are not before from. It visits them in the order of their keys until fn returns false, and
// inspects no readable objects.
func (im *Image) SelectCorrupt(sel Selection, from string, fn func(*Entry) bool) {
	if im.CorruptCount() == 0 {
		return
	}
	m := sel.Compile()
	prefix := m.keyPrefix(im.Prefix)
	im.corrupt.Ascend(&Entry{compact: searchKey(max(prefix, from))}, func(e *Entry) bool {
		return strings.HasPrefix(e.Key(), prefix) && (!m.Named(e) || fn(e))
	})
}
