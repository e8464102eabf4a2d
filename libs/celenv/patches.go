package celenv

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
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
