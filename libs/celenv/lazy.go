package celenv

import (
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Lazy is an object that computes each field once, when an expression first reads it. It is not
// safe for concurrent use.
type Lazy struct {
	opaque
	names  []string
	find   func(name string) ref.Val
	values map[string]ref.Val
}

var (
	_ traits.Mapper = (*Lazy)(nil)
	_ traits.Zeroer = (*Lazy)(nil)
)

// NewLazy returns an object of a type with the named fields. find computes the value of a field.
func NewLazy(kind *types.Type, names []string, find func(name string) ref.Val) *Lazy {
	return &Lazy{opaque: opaque{kind: kind}, names: names, find: find, values: map[string]ref.Val{}}
}

// Find implements traits.Mapper.
func (l *Lazy) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), true
	}
	if !slices.Contains(l.names, string(name)) {
		return nil, false
	}
	v, ok := l.values[string(name)]
	if !ok {
		v = l.find(string(name))
		l.values[string(name)] = v
	}
	return v, true
}

// Get implements traits.Indexer.
func (l *Lazy) Get(key ref.Val) ref.Val {
	if v, ok := l.Find(key); ok {
		return v
	}
	return types.NewErr("no such key: %v", key)
}

// Contains implements traits.Container.
func (l *Lazy) Contains(key ref.Val) ref.Val {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key)
	}
	return types.Bool(slices.Contains(l.names, string(name)))
}

// Iterator implements traits.Iterable, over the names.
func (l *Lazy) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, l.names).Iterator()
}

// Size implements traits.Sizer.
func (l *Lazy) Size() ref.Val { return types.Int(len(l.names)) }

// IsZeroValue implements traits.Zeroer.
func (l *Lazy) IsZeroValue() bool { return len(l.names) == 0 }

// Equal implements ref.Val. Lazy objects cannot be compared.
func (*Lazy) Equal(other ref.Val) ref.Val { return types.MaybeNoSuchOverloadErr(other) }

// ConvertToType implements ref.Val.
func (l *Lazy) ConvertToType(to ref.Type) ref.Val { return l.convert(l, to) }

// Value implements ref.Val.
func (l *Lazy) Value() any { return l }
