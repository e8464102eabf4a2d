package resource

import (
	"time"

	resourcev1alpha3 "k8s.io/api/resource/v1alpha3"
	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// deviceTaintRules declares the kind.
func deviceTaintRules(compile compiler) *registry.Kind {
	return declare.Kind[resourcev1alpha3.DeviceTaintRule, resourcev1alpha3.DeviceTaintRuleList](&registry.Kind{
		Names:   registry.Names{Group: group, Version: alpha3, Resource: "devicetaintrules", Kind: "DeviceTaintRule"},
		Parts:   declare.SpecAccessors(func(r *resourcev1alpha3.DeviceTaintRule) *resourcev1alpha3.DeviceTaintRuleSpec { return &r.Spec }),
		Delete:  registry.Delete{ReturnObject: true},
		Default: declare.Adapt(func(r *resourcev1alpha3.DeviceTaintRule) { defaultTime(&r.Spec.Taint.TimeAdded) }),
		Create: registry.Create{
			Validate: declare.AdaptValidation(func(fld validate.Field, r *resourcev1alpha3.DeviceTaintRule) {
				compile.validateTaintRuleSpec(fld.Child("spec"), &r.Spec, nil)
			}),
		},
		Update: registry.Update{
			Generation: true,
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, r, old *resourcev1alpha3.DeviceTaintRule) {
				compile.validateTaintRuleSpec(fld.Child("spec"), &r.Spec, &old.Spec)
			}),
		},
		Presentation: registry.Presentation{Columns: taintRuleColumns()},
	})
}

// taintRuleColumns returns the columns of the kind.
func taintRuleColumns() []registry.Column {
	doc := func(name string) string { return columns.Doc(resourcev1beta2.DeviceTaint{}, name) }
	return []registry.Column{
		columns.Name(),
		columns.Text("Key", doc("key"), func(deviceTaintRule *resourcev1alpha3.DeviceTaintRule) string { return deviceTaintRule.Spec.Taint.Key }),
		columns.Text("Value", doc("value"), func(deviceTaintRule *resourcev1alpha3.DeviceTaintRule) string {
			return deviceTaintRule.Spec.Taint.Value
		}),
		columns.Text(
			"Effect",
			doc("effect"),
			func(deviceTaintRule *resourcev1alpha3.DeviceTaintRule) string {
				return string(deviceTaintRule.Spec.Taint.Effect)
			},
		),
		columns.New("TimeAdded", columns.String, "", doc("timeAdded"), 0, func(deviceTaintRule *resourcev1alpha3.DeviceTaintRule) any {
			if deviceTaintRule.Spec.Taint.TimeAdded == nil {
				return ""
			}
			return columns.Since(*deviceTaintRule.Spec.Taint.TimeAdded)
		}),
		columns.Age(),
	}
}

// defaultTime sets a missing time of a taint to the current time.
func defaultTime(added **metav1.Time) {
	if *added == nil {
		*added = &metav1.Time{Time: time.Now().Truncate(time.Second)}
	}
}

// validateTaintRuleSpec validates a rule. old is nil for a new one. Unchanged selectors are not
// validated again.
func (compile compiler) validateTaintRuleSpec(fld validate.Field, spec, old *resourcev1alpha3.DeviceTaintRuleSpec) {
	if deviceTaintSelector := spec.DeviceSelector; deviceTaintSelector != nil {
		selector := fld.Child("deviceSelector")
		if deviceTaintSelector.DeviceClassName != nil {
			selector.CheckText("deviceClassName", *deviceTaintSelector.DeviceClassName, validate.DNSSubdomain)
		}
		if deviceTaintSelector.Driver != nil {
			podspec.ValidateCSIDriverName(selector, "driver", *deviceTaintSelector.Driver)
		}
		if deviceTaintSelector.Pool != nil {
			validatePoolName(selector, "pool", *deviceTaintSelector.Pool)
		}
		if deviceTaintSelector.Device != nil {
			selector.CheckText("device", *deviceTaintSelector.Device, validate.DNSLabel)
		}
		selectors := make([]resourcev1beta2.DeviceSelector, len(deviceTaintSelector.Selectors))
		for i := range deviceTaintSelector.Selectors {
			if c := deviceTaintSelector.Selectors[i].CEL; c != nil {
				selectors[i].CEL = &resourcev1beta2.CELDeviceSelector{Expression: c.Expression}
			}
		}
		unchanged := old != nil && old.DeviceSelector != nil && validate.SemanticEqual(deviceTaintSelector.Selectors, old.DeviceSelector.Selectors)
		compile.forObject().validateSelectors(selector, selectors, unchanged)
	}
	t := &spec.Taint
	validateTaint(
		fld.Child("taint"),
		&resourcev1beta2.DeviceTaint{Key: t.Key, Value: t.Value, Effect: resourcev1beta2.DeviceTaintEffect(t.Effect)},
	)
}
