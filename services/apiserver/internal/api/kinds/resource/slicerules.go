package resource

import (
	"fmt"
	"strings"

	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// validateSlice validates a slice. old is nil for a new one.
func validateSlice(fld validate.Field, resourceSlice, old *resourcev1beta2.ResourceSlice) {
	spec := fld.Child("spec")
	podspec.ValidateCSIDriverName(spec, "driver", resourceSlice.Spec.Driver)
	pool := spec.Child("pool")
	validatePoolName(pool, "name", resourceSlice.Spec.Pool.Name)
	if n := resourceSlice.Spec.Pool.ResourceSliceCount; n <= 0 {
		pool.Invalid("resourceSliceCount", n, validate.NotPositive)
	}
	if n := resourceSlice.Spec.Pool.Generation; n < 0 {
		pool.Invalid("generation", n, "must be greater than or equal to zero")
	}
	if old != nil {
		pool.CheckImmutable("name", resourceSlice.Spec.Pool.Name, old.Spec.Pool.Name)
		spec.CheckImmutable("driver", resourceSlice.Spec.Driver, old.Spec.Driver)
		if now, before := declare.Deref(resourceSlice.Spec.NodeName), declare.Deref(old.Spec.NodeName); now != before {
			spec.CheckImmutable("nodeName", now, before)
		}
	}
	validateNodeSelection(spec, &resourceSlice.Spec)
	validate.Each(spec, "devices", resourceSlice.Spec.Devices, validateSliceDevice)
	validate.MaxItems(spec, "devices", resourceSlice.Spec.Devices, resourcev1beta2.ResourceSliceMaxDevices)
	requireUnique(spec, "devices", "name", resourceSlice.Spec.Devices, func(d *resourcev1beta2.Device) string { return d.Name })
}

// validateNodeSelection requires exactly one way to select the nodes that can access the devices.
func validateNodeSelection(spec validate.Field, s *resourcev1beta2.ResourceSliceSpec) {
	const choice = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	var set []string
	switch name := s.NodeName; {
	case name == nil:
	case *name == "":
		spec.Invalid("nodeName", *name, "must be either unset or set to a non-empty string")
	default:
		set = append(set, "`nodeName`")
		spec.CheckText("nodeName", *name, validate.DNSSubdomain)
	}
	if s.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		podspec.ValidateNodeSelector(spec.Child("nodeSelector"), s.NodeSelector, false)
		if terms := s.NodeSelector.NodeSelectorTerms; len(terms) != 1 {
			spec.Child("nodeSelector").Invalid("nodeSelectorTerms", terms, "must have exactly one node selector term")
		}
	}
	flag := func(name string, value *bool) {
		switch {
		case value == nil:
		case !*value:
			spec.Invalid(name, *value, "must be either unset or set to true")
		default:
			set = append(set, "`"+name+"`")
		}
	}
	flag("allNodes", s.AllNodes)
	flag("perDeviceNodeSelection", s.PerDeviceNodeSelection)
	switch len(set) {
	case 0:
		spec.Required("", choice)
	case 1:
	default:
		spec.Invalid("", "{"+strings.Join(set, ", ")+"}", choice+", but multiple fields are set")
	}
}

// validateSliceDevice validates a device and the number of its attributes and capacities.
func validateSliceDevice(fld validate.Field, device *resourcev1beta2.Device) {
	fld.CheckText("name", device.Name, validate.DNSLabel)
	validate.EachKey(
		fld,
		"attributes",
		device.Attributes,
		func(fld validate.Field, name resourcev1beta2.QualifiedName, a resourcev1beta2.DeviceAttribute) {
			validateQualifiedName(fld, string(name))
			validateAttribute(fld, &a)
		},
	)
	validate.EachKey(
		fld,
		"capacity",
		device.Capacity,
		func(fld validate.Field, name resourcev1beta2.QualifiedName, _ resourcev1beta2.DeviceCapacity) {
			validateQualifiedName(fld, string(name))
		},
	)
	const maximum = resourcev1beta2.ResourceSliceMaxAttributesAndCapacitiesPerDevice
	if n := len(device.Attributes) + len(device.Capacity); n > maximum {
		fld.Invalid("", n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", maximum))
	}
	validate.Each(fld, "taints", device.Taints, validateTaint)
	validate.MaxItems(fld, "taints", device.Taints, resourcev1beta2.DeviceTaintsMaxLength)
}

// validateAttribute requires exactly one value of an attribute.
func validateAttribute(fld validate.Field, deviceAttribute *resourcev1beta2.DeviceAttribute) {
	set := 0
	for _, is := range []bool{deviceAttribute.BoolValue != nil, deviceAttribute.IntValue != nil, deviceAttribute.StringValue != nil, deviceAttribute.VersionValue != nil} {
		if is {
			set++
		}
	}
	if deviceAttribute.StringValue != nil {
		fld.CheckMaxBytes("string", *deviceAttribute.StringValue, resourcev1beta2.DeviceAttributeMaxValueLength)
	}
	if v := deviceAttribute.VersionValue; v != nil {
		fld.CheckText("version", *v, validate.SemanticVersion)
		fld.CheckMaxBytes("version", *v, resourcev1beta2.DeviceAttributeMaxValueLength)
	}
	switch set {
	case 0:
		fld.Required("", "exactly one value must be specified")
	case 1:
	default:
		fld.InvalidOmitValue("", "exactly one value must be specified")
	}
}
