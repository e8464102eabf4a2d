package resource

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	resourcev1beta1 "k8s.io/api/resource/v1beta1"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	"k8s.io/apimachinery/pkg/runtime"
	content "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

func deviceClasses(compile compiler) *registry.Kind {
	kind := declare.Kind[resourcev1beta1.DeviceClass, resourcev1beta1.DeviceClassList](&registry.Kind{
		Names:        registry.Names{Group: group, Version: stored, Resource: "deviceclasses", Kind: "DeviceClass"},
		Parts:        declare.SpecAccessors(func(d *resourcev1beta1.DeviceClass) *resourcev1beta1.DeviceClassSpec { return &d.Spec }),
		Delete:       registry.Delete{ReturnObject: true},
		Update:       registry.Update{Generation: true},
		Presentation: registry.Presentation{Columns: []registry.Column{columns.Name(), columns.Age()}},
	})
	declare.SetValidation(kind, validateAsNewest[resourcev1beta1.DeviceClass](keepForm, compile.validateDeviceClass))
	return kind
}

// deviceClassesBeta2 declares the newest version of the kind, which has another Go type and the
// same storage.
func deviceClassesBeta2(compile compiler) *registry.Kind {
	kind := deviceClasses(compile)
	kind.Version = newest
	kind.New, kind.NewList = declare.New[resourcev1beta2.DeviceClass], declare.New[resourcev1beta2.DeviceClassList]
	kind.Parts = declare.SpecAccessors(func(d *resourcev1beta2.DeviceClass) *resourcev1beta2.DeviceClassSpec { return &d.Spec })
	kind.Stored = storageFormOf[resourcev1beta1.DeviceClass, resourcev1beta2.DeviceClass]("deviceclasses", keepForm, keepForm)
	declare.SetValidation(kind, compile.validateDeviceClass)
	return kind
}

// The rules apply to objects in the newest version's form, regardless of the client's version, and
// so do their messages.

// validateDeviceClass validates a class. old is nil for a new one.
func (compile compiler) validateDeviceClass(fld validate.Field, deviceClass, old *resourcev1beta2.DeviceClass) {
	spec := fld.Child("spec")
	compile.forObject().
		validateSelectors(spec, deviceClass.Spec.Selectors, old != nil && validate.SemanticEqual(deviceClass.Spec.Selectors, old.Spec.Selectors))
	validate.Each(spec, "config", deviceClass.Spec.Config, func(fld validate.Field, config *resourcev1beta2.DeviceClassConfiguration) {
		validateConfig(fld, &config.DeviceConfiguration, false)
	})
	validate.MaxItems(spec, "config", deviceClass.Spec.Config, resourcev1beta2.DeviceConfigMaxSize)
}

// validateConfig validates the configuration of a driver. Stored parameters may be longer than new
// ones.
func validateConfig(fld validate.Field, deviceConfiguration *resourcev1beta2.DeviceConfiguration, stored bool) {
	if deviceConfiguration.Opaque == nil {
		fld.Required("opaque", "")
		return
	}
	opaque := fld.Child("opaque")
	podspec.ValidateCSIDriverName(opaque, "driver", deviceConfiguration.Opaque.Driver)
	maximum := resourcev1beta2.OpaqueParametersMaxLength
	if stored {
		maximum = len(deviceConfiguration.Opaque.Parameters.Raw)
	}
	validateJSON(opaque, "parameters", deviceConfiguration.Opaque.Parameters, maximum)
}

// validateJSON requires a JSON object.
func validateJSON(fld validate.Field, name string, raw runtime.RawExtension, maximum int) {
	if len(raw.Raw) == 0 {
		fld.Required(name, "")
		return
	}
	if len(raw.Raw) > maximum {
		fld.TooLong(name, maximum)
		return
	}
	var value any
	const omitted = "<value omitted>"
	switch err := json.Unmarshal(raw.Raw, &value); {
	case err != nil:
		fld.Invalid(name, omitted, "error parsing data as JSON: "+err.Error())
	case value == nil:
		fld.Required(name, "")
	default:
		if _, ok := value.(map[string]any); !ok {
			fld.Invalid(name, omitted, "parameters must be a valid JSON object")
		}
	}
}

// validatePoolName requires names that are joined by slashes.
func validatePoolName(fld validate.Field, name, pool string) {
	if pool == "" {
		fld.Required(name, "")
		return
	}
	fld.CheckMaxBytes(name, pool, resourcev1beta2.PoolNameMaxLength)
	for part := range strings.SplitSeq(pool, "/") {
		for _, msg := range validate.DNSSubdomain(part) {
			fld.Invalid(name, part, msg)
		}
	}
}

// validateQualifiedName requires an identifier with an optional domain.
func validateQualifiedName(fld validate.Field, name string) {
	if name == "" {
		fld.Required("", "name required")
		return
	}
	switch parts := strings.Split(name, "/"); len(parts) {
	case 1:
		validateIdentifier(fld, parts[0])
	case 2:
		if parts[0] == "" {
			fld.Required("", "the domain must not be empty")
		} else {
			podspec.ValidateCSIDriverName(fld, "", parts[0])
		}
		if parts[1] == "" {
			fld.Required("", "the name must not be empty")
		} else {
			validateIdentifier(fld, parts[1])
		}
	}
}

// validateIdentifier requires an identifier of C of limited length.
func validateIdentifier(fld validate.Field, id string) {
	fld.CheckMaxBytes("", id, resourcev1beta2.DeviceMaxIDLength)
	for _, msg := range content.IsCIdentifier(id) {
		fld.Add(field.TypeInvalid(fld.FieldPath(), id, msg))
	}
}

// requireUnique rejects elements of a list with equal keys. child is the field in the error path.
func requireUnique[T any, K comparable](fld validate.Field, name, child string, list []T, key func(*T) K) {
	seen := validate.Set[K]{}
	validate.Each(fld, name, list, func(fld validate.Field, item *T) { validate.Unique(fld, child, key(item), seen) })
}

// deviceEffects holds the effects of taints.
var deviceEffects = []resourcev1beta2.DeviceTaintEffect{
	resourcev1beta2.DeviceTaintEffectNoExecute,
	resourcev1beta2.DeviceTaintEffectNoSchedule,
}

func validateTaint(fld validate.Field, t *resourcev1beta2.DeviceTaint) {
	fld.CheckLabelKey("key", t.Key)
	fld.CheckOptionalText("value", t.Value, validate.LabelValue)
	validate.RequiredOneOf(fld, "effect", t.Effect, deviceEffects...)
}

// validateToleration validates the toleration of device taints.
func validateToleration(fld validate.Field, deviceToleration *resourcev1beta2.DeviceToleration) {
	if deviceToleration.Key != "" {
		fld.CheckLabelKey("key", deviceToleration.Key)
	}
	switch deviceToleration.Operator {
	case resourcev1beta2.DeviceTolerationOpExists:
		if deviceToleration.Value != "" {
			fld.Invalid("value", deviceToleration.Value, "must be empty for operator `Exists`")
		}
	case resourcev1beta2.DeviceTolerationOpEqual:
		fld.CheckText("value", deviceToleration.Value, validate.LabelValue)
	default:
		validate.RequiredOneOf(fld, "operator", deviceToleration.Operator, resourcev1beta2.DeviceTolerationOpEqual,
			resourcev1beta2.DeviceTolerationOpExists)
	}
	if deviceToleration.Effect != "" && !slices.Contains(deviceEffects, deviceToleration.Effect) {
		validate.OneOf(fld, "effect", deviceToleration.Effect, deviceEffects...)
	}
}

// validateAllocationMode requires a count for the mode ExactCount only.
func validateAllocationMode(fld validate.Field, mode resourcev1beta2.DeviceAllocationMode, count int64) {
	switch mode {
	case resourcev1beta2.DeviceAllocationModeAll:
		if count != 0 {
			fld.Invalid("count", count, fmt.Sprintf("must not be specified when allocationMode is '%s'", mode))
		}
	case resourcev1beta2.DeviceAllocationModeExactCount:
		if count <= 0 {
			fld.Invalid("count", count, validate.NotPositive)
		}
	default:
		validate.OneOf(fld, "allocationMode", mode, resourcev1beta2.DeviceAllocationModeAll,
			resourcev1beta2.DeviceAllocationModeExactCount)
	}
}
