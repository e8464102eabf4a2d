package resource

import (
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"binnacle/libs/celenv"
	"binnacle/services/apiserver/internal/registry/validate"
)

// compiler returns the environment of device selector expressions, which it creates at the first
// call.
type compiler func() (*celenv.Env, error)

// forObject returns a compiler of the expressions of one object, which limits the work on all of
// them.
func (compile compiler) forObject() compiler {
	budget := &celenv.CheckBudget{}
	return func() (*celenv.Env, error) {
		env, err := compile()
		if err != nil {
			return nil, err
		}
		return env.Within(budget), nil
	}
}

// deviceType is the type of the variable device.
const deviceType = "kubernetes.DRADevice"

// newCompiler returns the environment of expressions with the variable device.
func newCompiler() (*celenv.Env, error) {
	base, err := celenv.NewBaseEnv()
	if err == nil {
		base, err = base.Devices()
	}
	if err != nil {
		return nil, err
	}
	within := func(t *cel.Type) *cel.Type { return cel.MapType(cel.StringType, cel.MapType(cel.StringType, t)) }
	return base.Extend(map[string]*cel.Type{"device": cel.ObjectType(deviceType)}, fields{
		"driver": cel.StringType, "attributes": within(cel.AnyType), "capacity": within(celenv.QuantityType),
	})
}

// fields holds the fields of a device.
type fields map[string]*cel.Type

// Fields implements celenv.TypeFinder.
func (f fields) Fields(name string) (map[string]*cel.Type, bool) { return f, name == deviceType }

// errTooComplex is the error of an expression that exceeds the cost limit.
var errTooComplex = errors.New("too complex, exceeds cost limit")

// check returns the error of an expression, or nil.
func (compile compiler) check(expression string) error {
	env, err := compile()
	if err != nil {
		return err
	}
	ast, issues := env.Check(expression)
	if issues.Err() != nil {
		return errors.New("compilation failed: " + issues.String())
	}
	if out := ast.OutputType(); !slices.ContainsFunc([]*cel.Type{cel.BoolType, cel.AnyType}, out.IsExactType) {
		return fmt.Errorf("must evaluate to %s or the unknown type, not %s", cel.BoolType, out)
	}
	cost, err := env.Estimate(ast, deviceSizes{})
	if err != nil {
		return fmt.Errorf("cost estimation failed: %w", err)
	}
	if cost > resourcev1beta2.CELSelectorExpressionMaxCost {
		return errTooComplex
	}
	return nil
}

// validateSelectors validates device selectors. Stored expressions are not compiled again.
func (compile compiler) validateSelectors(fld validate.Field, selectors []resourcev1beta2.DeviceSelector, stored bool) {
	validate.Each(fld, "selectors", selectors, func(fld validate.Field, deviceSelector *resourcev1beta2.DeviceSelector) {
		if deviceSelector.CEL == nil {
			fld.Required("cel", "")
			return
		}
		in, before := fld.Child("cel"), fld.ErrorCount()
		in.CheckMaxBytes("expression", deviceSelector.CEL.Expression, resourcev1beta2.CELSelectorExpressionMaxLength)
		if stored || fld.ErrorCount() > before {
			return
		}
		switch err := compile.check(deviceSelector.CEL.Expression); {
		case errors.Is(err, errTooComplex):
			in.Forbidden("expression", err.Error())
		case err != nil:
			in.Invalid("expression", deviceSelector.CEL.Expression, err.Error())
		}
	})
	validate.MaxItems(fld, "selectors", selectors, resourcev1beta2.DeviceSelectorsMaxSize)
}

// deviceSizes estimates the maximum sizes of the parts of a device.
type deviceSizes struct{}

// EstimateSize implements celenv.SizeEstimator.
func (deviceSizes) EstimateSize(n checker.AstNode) *checker.SizeEstimate {
	path := n.Path()
	if len(path) < 2 || path[0] != "device" {
		if len(path) == 1 && path[0] == "device" {
			return &checker.SizeEstimate{}
		}
		return nil
	}
	maximum := func(size uint64) *checker.SizeEstimate { return &checker.SizeEstimate{Max: size} }
	const entries = resourcev1beta2.ResourceSliceMaxAttributesAndCapacitiesPerDevice
	var sizes []uint64 // of maps, and of the values below them
	switch path[1] {
	case "driver":
		if len(path) == 2 {
			return maximum(resourcev1beta2.DriverNameMaxLength)
		}
		return nil
	case "attributes":
		sizes = []uint64{entries, entries, resourcev1beta2.DeviceAttributeMaxValueLength}
	case "capacity":
		sizes = []uint64{entries, entries, 0}
	default:
		return nil
	}
	names := []uint64{resourcev1beta2.DeviceMaxDomainLength, resourcev1beta2.DeviceMaxIDLength}
	depth := 0
	for i, step := range path[2:] {
		switch {
		case step == "@keys" && depth < len(names) && i == len(path)-3:
			return maximum(names[depth])
		case (step == "@items" || step == "@values") && depth < 2:
			depth++
		case depth == 1 && path[1] == "attributes": // an attribute by name
			depth++
		default:
			return nil
		}
	}
	return maximum(sizes[depth])
}
