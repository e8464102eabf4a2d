package celenv

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

const objectTypeName = "Object"

// Types from which expressions build changes of objects.
var (
	// ObjectType is the type of a whole object. The type of a field is named by its path, such as
	// Object.spec.containers. Fields may have values of any type.
	ObjectType = cel.ObjectType(objectTypeName)
	// JSONPatchType is the type of an operation of a JSON patch.
	JSONPatchType = cel.ObjectType("JSONPatch")
)

// Patches returns a BaseEnv with these types and jsonpatch.escapeKey.
func (b *BaseEnv) Patches() (*BaseEnv, error) {
	env, err := b.env.Extend(cel.CustomTypeProvider(patchTypes{b.env.CELTypeProvider()}), cel.Function(escapeKey,
		cel.Overload("string_jsonpatch_escapeKey_string", []*cel.Type{cel.StringType}, cel.StringType,
			unary(func(key types.String) ref.Val { return types.String(keyEscaper.Replace(string(key))) }))))
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	functions, err := dispatcherOf(env)
	return &BaseEnv{env: env, functions: functions, standardCosts: b.standardCosts}, err
}

const escapeKey = "jsonpatch.escapeKey"

var keyEscaper = strings.NewReplacer("/", "~1", "~", "~0")

// patchTypes adds the patch types to a provider.
type patchTypes struct{ types.Provider }

func isObjectType(name string) bool {
	return name == objectTypeName || strings.HasPrefix(name, objectTypeName+".")
}

// FindStructType implements types.Provider.
func (p patchTypes) FindStructType(name string) (*types.Type, bool) {
	if isObjectType(name) || name == JSONPatchType.TypeName() {
		return types.NewTypeTypeWithParam(cel.ObjectType(name)), true
	}
	return p.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider. The fields of objects cannot be listed.
func (p patchTypes) FindStructFieldNames(name string) ([]string, bool) {
	switch {
	case name == JSONPatchType.TypeName():
		return []string{"op", "from", "path", "value"}, true
	case isObjectType(name):
		return nil, true
	}
	return p.Provider.FindStructFieldNames(name)
}

// FindStructFieldType implements types.Provider. As in Kubernetes, a field that an operation does
// not have gets no type, and the checker reports it.
func (p patchTypes) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	switch {
	case isObjectType(name):
		return &types.FieldType{Type: cel.DynType}, true
	case name != JSONPatchType.TypeName():
		return p.Provider.FindStructFieldType(name, field)
	}
	switch field {
	case "op", "from", "path":
		return &types.FieldType{Type: cel.StringType}, true
	case "value":
		return &types.FieldType{Type: cel.DynType}, true
	}
	return &types.FieldType{}, true
}

// NewValue implements types.Provider.
func (p patchTypes) NewValue(name string, fields map[string]ref.Val) ref.Val {
	switch {
	case isObjectType(name):
		return &builtObject{opaque{kind: cel.ObjectType(name)}, fields}
	case name != JSONPatchType.TypeName():
		return p.Provider.NewValue(name, fields)
	}
	for _, field := range []string{"op", "from", "path"} {
		if v, ok := fields[field]; ok && v.Type() != types.StringType {
			return types.NewErr("unexpected type %s for JSONPatchType '%s' field", v.Type().TypeName(), field)
		}
	}
	return &builtObject{opaque{kind: JSONPatchType}, fields}
}

// builtObject is a value with fields that an expression built.
type builtObject struct {
	opaque
	fields map[string]ref.Val
}

// ConvertToType implements ref.Val.
func (c *builtObject) ConvertToType(to ref.Type) ref.Val { return c.convert(c, to) }

// Value implements ref.Val.
func (c *builtObject) Value() any { return c.fields }

// Equal implements ref.Val.
func (c *builtObject) Equal(other ref.Val) ref.Val {
	o, ok := other.(*builtObject)
	if !ok || c.kind.TypeName() != o.kind.TypeName() || len(c.fields) != len(o.fields) {
		return types.False
	}
	for name, v := range c.fields {
		if w, ok := o.fields[name]; !ok || v.Equal(w) != types.True {
			return types.False
		}
	}
	return types.True
}

// IsZeroValue implements traits.Zeroer.
func (c *builtObject) IsZeroValue() bool { return len(c.fields) == 0 }

// Operation is one operation of a JSON patch. Value is absent if HasValue is false.
type Operation struct {
	Op, Path, From string
	Value          any
	HasValue       bool
}

// ErrPatch says that a value is not a patch.
var ErrPatch = errors.New("type mismatch")

// Configuration converts a value of type Object to a tree of at most limit bytes.
func Configuration(v ref.Val, limit int) (map[string]any, error) {
	c, ok := v.(*builtObject)
	if !ok || c.kind.TypeName() != objectTypeName {
		return nil, fmt.Errorf("%w: %s is not an %s", ErrPatch, v.Type().TypeName(), objectTypeName)
	}
	builder := &treeBuilder{remaining: limit}
	tree, err := builder.buildFields(c, objectTypeName)
	return tree, builder.withTypeErrors(err)
}

// Operations converts a list of JSONPatch values to operations of at most limit bytes in total.
func Operations(v ref.Val, limit int) ([]Operation, error) {
	builder := &treeBuilder{remaining: limit}
	var out []Operation
	err := visitElements(v, func(v ref.Val) error {
		built, ok := v.(*builtObject)
		if !ok || built.kind.TypeName() != JSONPatchType.TypeName() {
			return fmt.Errorf("%w: JSONPatchType.expression should evaluate to array of JSONPatch, got element of %s",
				ErrPatch, v.Type().TypeName())
		}
		operation := Operation{}
		for name, to := range map[string]*string{"op": &operation.Op, "path": &operation.Path, "from": &operation.From} {
			if text, ok := built.fields[name].(types.String); ok {
				*to = string(text)
			}
		}
		if err := builder.spend(len(operation.Op) + len(operation.Path) + len(operation.From)); err != nil {
			return err
		}
		value, ok := built.fields["value"]
		operation.HasValue = ok
		if ok {
			path := ""
			if object, ok := value.(*builtObject); ok {
				path = object.kind.TypeName()
			}
			var err error
			if operation.Value, err = builder.buildValue(value, path); err != nil {
				return fmt.Errorf("JSONPath valueExpression evaluated to a type that could not marshal to JSON: %w", err)
			}
		}
		out = append(out, operation)
		return nil
	})
	return out, builder.withTypeErrors(err)
}

// treeBuilder converts values to trees of maps, lists and scalars that share nothing with the
// values. An expression can share a part so often that the tree would be practically unlimited, so
// the size of the tree is bounded.
type treeBuilder struct {
	remaining int // size in bytes that the tree may still grow
	// typeErrors holds an error for each value whose type name does not match its path.
	typeErrors []error
}

// nodeSize is the approximate size of a value in bytes, without its text.
const nodeSize = 16

// spend subtracts from the remaining size. It fails if the tree becomes too large.
func (t *treeBuilder) spend(bytes int) error {
	t.remaining -= bytes
	if t.remaining < 0 {
		return fmt.Errorf("%w: the value is too large", ErrPatch)
	}
	return nil
}

// withTypeErrors returns err, or the typeErrors if err is nil.
func (t *treeBuilder) withTypeErrors(err error) error {
	if err != nil || len(t.typeErrors) == 0 {
		return err
	}
	return fmt.Errorf("%w: %w", ErrPatch, errors.Join(t.typeErrors...))
}

// buildFields converts the fields of an object. path is the type name that the object must have,
// such as Object.spec. With an empty path, type names are not checked.
func (t *treeBuilder) buildFields(built *builtObject, path string) (map[string]any, error) {
	if name := built.kind.TypeName(); path != "" && name != path {
		t.typeErrors = append(t.typeErrors,
			fmt.Errorf("unexpected type name %q, expected %q, which matches field name path from root Object type", name, path))
	}
	out := make(map[string]any, len(built.fields))
	for _, name := range slices.Sorted(maps.Keys(built.fields)) {
		fieldPath := path
		if fieldPath != "" {
			fieldPath += "." + name
		}
		if err := t.spend(len(name)); err != nil {
			return nil, err
		}
		v, err := t.buildValue(built.fields[name], fieldPath)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

// buildValue converts a CEL value to a JSON value. path is that of buildFields.
func (t *treeBuilder) buildValue(value ref.Val, path string) (any, error) {
	if err := t.spend(nodeSize); err != nil {
		return nil, err
	}
	switch v := value.(type) {
	case *builtObject:
		return t.buildFields(v, path)
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
		err := visitElements(v, func(key ref.Val) error {
			name, ok := key.(types.String)
			if !ok {
				return fmt.Errorf("map key %v is of type %s, not string", key.Value(), key.Type().TypeName())
			}
			err := t.spend(len(name))
			if err == nil {
				out[string(name)], err = t.buildValue(v.Get(key), path)
			}
			return err
		})
		return out, err
	case traits.Lister:
		out := []any{}
		err := visitElements(v, func(element ref.Val) error {
			x, err := t.buildValue(element, path)
			out = append(out, x)
			return err
		})
		return out, err
	case *types.Err:
		return nil, v
	}
	return nil, fmt.Errorf("a value of type %s is not part of an object", value.Type().TypeName())
}

// visitElements calls visit for each element of a list or each key of a map, until it fails.
func visitElements(v ref.Val, visit func(ref.Val) error) error {
	i, ok := v.(traits.Iterable)
	if !ok {
		return fmt.Errorf("%w: %s has no elements", ErrPatch, v.Type().TypeName())
	}
	for elements := i.Iterator(); elements.HasNext() == types.True; {
		if err := visit(elements.Next()); err != nil {
			return err
		}
	}
	return nil
}
