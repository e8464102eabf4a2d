package resource

import (
	"fmt"
	"strings"

	resourcev1beta2 "k8s.io/api/resource/v1beta2"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// sliceRules validates a slice. old is nil for a new one.
func sliceRules(fldPath validate.Path, s, old *resourcev1beta2.ResourceSlice) {
	spec := fldPath.Child("spec")
	podspec.CSIDriverName(spec, "driver", s.Spec.Driver)
	pool := spec.Child("pool")
	poolNameRules(pool, "name", s.Spec.Pool.Name)
	if n := s.Spec.Pool.ResourceSliceCount; n <= 0 {
		pool.Invalid("resourceSliceCount", n, validate.NotPositive)
	}
	if n := s.Spec.Pool.Generation; n < 0 {
		pool.Invalid("generation", n, "must be greater than or equal to zero")
	}
	if old != nil {
		pool.Immutable("name", s.Spec.Pool.Name, old.Spec.Pool.Name)
		spec.Immutable("driver", s.Spec.Driver, old.Spec.Driver)
		if now, before := declare.Deref(s.Spec.NodeName), declare.Deref(old.Spec.NodeName); now != before {
			spec.Immutable("nodeName", now, before)
		}
	}
	nodeRules(spec, &s.Spec)
	validate.Each(spec, "devices", s.Spec.Devices, sliceDeviceRules)
	validate.MaxItems(spec, "devices", s.Spec.Devices, resourcev1beta2.ResourceSliceMaxDevices)
	uniqueIn(spec, "devices", "name", s.Spec.Devices, func(d *resourcev1beta2.Device) string { return d.Name })
}

// nodeRules requires exactly one way to select the nodes that can access the devices.
func nodeRules(spec validate.Path, s *resourcev1beta2.ResourceSliceSpec) {
	const choice = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
	var set []string
	switch name := s.NodeName; {
	case name == nil:
	case *name == "":
		spec.Invalid("nodeName", *name, "must be either unset or set to a non-empty string")
	default:
		set = append(set, "`nodeName`")
		spec.Text("nodeName", *name, validate.DNSSubdomain)
	}
	if s.NodeSelector != nil {
		set = append(set, "`nodeSelector`")
		podspec.NodeSelectorRules(spec.Child("nodeSelector"), s.NodeSelector, false)
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

func sliceDeviceRules(fldPath validate.Path, d *resourcev1beta2.Device) {
	fldPath.Text("name", d.Name, validate.DNSLabel)
	validate.EachKey(fldPath, "attributes", d.Attributes, func(fldPath validate.Path, name resourcev1beta2.QualifiedName, a resourcev1beta2.DeviceAttribute) {
		qualifiedRules(fldPath, string(name))
		attributeRules(fldPath, &a)
	})
	validate.EachKey(fldPath, "capacity", d.Capacity, func(fldPath validate.Path, name resourcev1beta2.QualifiedName, _ resourcev1beta2.DeviceCapacity) {
		qualifiedRules(fldPath, string(name))
	})
	const maximum = resourcev1beta2.ResourceSliceMaxAttributesAndCapacitiesPerDevice
	if n := len(d.Attributes) + len(d.Capacity); n > maximum {
		fldPath.Invalid("", n, fmt.Sprintf("the total number of attributes and capacities must not exceed %d", maximum))
	}
	validate.Each(fldPath, "taints", d.Taints, taintRules)
	validate.MaxItems(fldPath, "taints", d.Taints, resourcev1beta2.DeviceTaintsMaxLength)
}

func attributeRules(fldPath validate.Path, a *resourcev1beta2.DeviceAttribute) {
	set := 0
	for _, is := range []bool{a.BoolValue != nil, a.IntValue != nil, a.StringValue != nil, a.VersionValue != nil} {
		if is {
			set++
		}
	}
	if a.StringValue != nil {
		fldPath.MaxBytes("string", *a.StringValue, resourcev1beta2.DeviceAttributeMaxValueLength)
	}
	if v := a.VersionValue; v != nil {
		fldPath.Text("version", *v, validate.SemanticVersion)
		fldPath.MaxBytes("version", *v, resourcev1beta2.DeviceAttributeMaxValueLength)
	}
	switch set {
	case 0:
		fldPath.Required("", "exactly one value must be specified")
	case 1:
	default:
		fldPath.InvalidOmitValue("", "exactly one value must be specified")
	}
}
