package schema

import "binnacle/services/apiserver/internal/json/tape"

// manyValues is the number of values from which an enum is indexed. Fewer are compared one by one.
const manyValues = 16

// enumIndex indexes the values of a long enum.
type enumIndex struct {
	texts  map[string]struct{}
	ints   map[int64]struct{}
	floats map[float64]struct{}
	rest   []*enumValue
}

// indexOf returns the index of an enum, or nil if it has few values.
func indexOf(enum []enumValue) *enumIndex {
	if len(enum) < manyValues {
		return nil
	}
	x := &enumIndex{texts: map[string]struct{}{}, ints: map[int64]struct{}{}, floats: map[float64]struct{}{}}
	for i := range enum {
		switch v := enum[i].value.(type) {
		case string:
			x.texts[v] = struct{}{}
		case int64:
			x.ints[v] = struct{}{}
		case float64:
			x.floats[v] = struct{}{}
		default:
			x.rest = append(x.rest, &enum[i])
		}
	}
	return x
}

// isOneOf reports whether a value is in an enum, by the conversions of isValue.
func (c *checker) isOneOf(n *node, v tape.Ref) bool {
	x := n.listed
	if x == nil {
		for i := range n.enum {
			if c.isValue(&n.enum[i], v) {
				return true
			}
		}
		return false
	}
	switch c.doc.Kind(v) {
	case tape.String:
		if _, ok := x.texts[c.doc.String(v)]; ok {
			return true
		}
	case tape.Number:
		if c.isNumberOf(x, v) {
			return true
		}
	}
	c.spend(perValue * len(x.rest))
	for _, e := range x.rest {
		if c.isValue(e, v) {
			return true
		}
	}
	return false
}

func (c *checker) isNumberOf(x *enumIndex, v tape.Ref) bool {
	f := c.doc.Float(v)
	i, whole := c.doc.Int(v)
	if whole {
		if _, ok := x.texts[runeText(i)]; ok {
			return true
		}
	} else {
		i = int64(f)
	}
	if _, ok := x.ints[i]; ok {
		return true
	}
	_, ok := x.floats[f]
	return ok
}
