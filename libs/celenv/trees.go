package celenv

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// treeMaker converts values to trees of maps, lists and scalars that share nothing with the values.
// An expression can share a part so often that the tree would be practically unlimited, so the size
// of the tree is bounded.
type treeMaker struct {
	left int
	// strange holds an error for each value whose type name does not match its path.
	strange []error
}

// node is the approximate size of a value in bytes, without its text.
const node = 16

func (t *treeMaker) spend(bytes int) error {
	if t.left -= bytes; t.left < 0 {
		return fmt.Errorf("%w: the value is too large", ErrPatch)
	}
	return nil
}

// or returns err, or if it is nil, an error about the values in strange.
func (t *treeMaker) or(err error) error {
	if err != nil || len(t.strange) == 0 {
		return err
	}
	return fmt.Errorf("%w: %w", ErrPatch, errors.Join(t.strange...))
}

// fields converts the fields of an object at a path. Without a path, it does not check type names.
func (t *treeMaker) fields(c *constructed, path string) (map[string]any, error) {
	if name := c.kind.TypeName(); path != "" && name != path {
		t.strange = append(t.strange, fmt.Errorf("unexpected type name %q, expected %q, which matches field name path from root Object type", name, path))
	}
	out := make(map[string]any, len(c.fields))
	for _, name := range slices.Sorted(maps.Keys(c.fields)) {
		below := path
		if below != "" {
			below += "." + name
		}
		if err := t.spend(len(name)); err != nil {
			return nil, err
		}
		v, err := t.tree(c.fields[name], below)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

func (t *treeMaker) tree(v ref.Val, path string) (any, error) {
	if err := t.spend(node); err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case *constructed:
		return t.fields(v, path)
	case types.Null:
		return nil, nil
	case types.Bool:
		return bool(v), nil
	case types.Int:
		return int64(v), nil
	case types.Uint:
		if v > math.MaxInt64 {
			return float64(v), nil
		}
		return int64(v), nil
	case types.Double:
		if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, nil
		}
	case types.String:
		return string(v), t.spend(len(v))
	case types.Bytes:
		return base64.StdEncoding.EncodeToString(v), t.spend(len(v))
	case types.Timestamp, types.Duration:
		if text, ok := v.ConvertToType(types.StringType).(types.String); ok {
			return string(text), nil
		}
	case traits.Mapper:
		out := map[string]any{}
		err := each(v, func(key ref.Val) error {
			name, ok := key.(types.String)
			if !ok {
				return fmt.Errorf("map key %v is of type %s, not string", key.Value(), key.Type().TypeName())
			}
			err := t.spend(len(name))
			if err == nil {
				out[string(name)], err = t.tree(v.Get(key), path)
			}
			return err
		})
		return out, err
	case traits.Lister:
		out := []any{}
		err := each(v, func(element ref.Val) error {
			x, err := t.tree(element, path)
			out = append(out, x)
			return err
		})
		return out, err
	case *types.Err:
		return nil, v
	}
	return nil, fmt.Errorf("a value of type %s is not part of an object", v.Type().TypeName())
}

// each calls do for each element of a list or each key of a map.
func each(v ref.Val, do func(ref.Val) error) error {
	i, ok := v.(traits.Iterable)
	if !ok {
		return fmt.Errorf("%w: %s has no elements", ErrPatch, v.Type().TypeName())
	}
	for it := i.Iterator(); it.HasNext() == types.True; {
		if err := do(it.Next()); err != nil {
			return err
		}
	}
	return nil
}
