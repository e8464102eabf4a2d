package scheduling

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"binnacle/services/apiserver/internal/json/transcode"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/validate"
)

// priorityClasses declares the cluster-scoped kind PriorityClass.
func priorityClasses() *registry.Kind {
	return declare.Kind[schedulingv1.PriorityClass, schedulingv1.PriorityClassList](&registry.Kind{
		Names: registry.Names{
			Group: group, Version: version, Resource: "priorityclasses", Kind: "PriorityClass",
			ShortNames: []string{"pc"},
		},
		Default: declare.Adapt(func(c *schedulingv1.PriorityClass) {
			declare.SetDefaultPtr(&c.PreemptionPolicy, corev1.PreemptLowerPriority)
		}),
		DefaultedRules: transcode.Rules(transcode.FieldsSet[schedulingv1.PriorityClass]("preemptionPolicy")),
		Create: registry.Create{
			// The generation is set but never incremented.
			Prepare:  declare.Adapt(func(c *schedulingv1.PriorityClass) { c.Generation = 1 }),
			Validate: declare.AdaptValidation(validateClass),
		},
		Update: registry.Update{
			Validate: declare.AdaptUpdateValidation(func(fld validate.Field, c, old *schedulingv1.PriorityClass) {
				fld.ForbidSet("value", c.Value != old.Value, "may not be changed in an update.")
				fld.CheckImmutable("preemptionPolicy", c.PreemptionPolicy, old.PreemptionPolicy)
			}),
		},
		Delete: registry.Delete{ForbiddenReason: func(name string) string {
			if _, system := systemClasses[name]; system {
				return "this is a system priority class and cannot be deleted"
			}
			return ""
		}},
		Presentation: registry.Presentation{Columns: priorityClassColumns()},
	})
}

// systemClasses are the classes of Kubernetes, with their values.
var systemClasses = map[string]int32{
	"system-node-critical":    2_000_001_000,
	"system-cluster-critical": 2_000_000_000,
}

const (
	systemPrefix = "system-"
	// maxUserValue is the maximum value of classes that users define.
	maxUserValue = 1_000_000_000
)

func validateClass(fld validate.Field, priorityClass *schedulingv1.PriorityClass) {
	if strings.HasPrefix(priorityClass.Name, systemPrefix) {
		fld.Child("metadata").ForbidSet("name", whyNotSystemClass(priorityClass) != "",
			"priority class names with 'system-' prefix are reserved for system use only. error: "+whyNotSystemClass(priorityClass))
	} else {
		fld.ForbidSet("value", priorityClass.Value > maxUserValue, fmt.Sprintf("maximum allowed value of a user defined priority is %d", maxUserValue))
	}
	if p := priorityClass.PreemptionPolicy; p != nil {
		validate.RequiredOneOf(fld, "preemptionPolicy", *p, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
}

// whyNotSystemClass returns why a class is not a system class, or "" if it is one.
func whyNotSystemClass(priorityClass *schedulingv1.PriorityClass) string {
	value, known := systemClasses[priorityClass.Name]
	switch {
	case !known:
		return priorityClass.Name + " is not a known system priority class"
	case priorityClass.Value != value:
		return fmt.Sprintf("value of %s PriorityClass must be %d", priorityClass.Name, value)
	case priorityClass.GlobalDefault:
		return fmt.Sprintf("globalDefault of %s PriorityClass must be false", priorityClass.Name)
	}
	return ""
}

func priorityClassColumns() []registry.Column {
	doc := func(name string) string { return columns.Doc(schedulingv1.PriorityClass{}, name) }
	return []registry.Column{
		columns.Name(),
		columns.Int("Value", doc("value"), func(priorityClass *schedulingv1.PriorityClass) int64 { return int64(priorityClass.Value) }),
		columns.Bool("Global-Default", doc("globalDefault"), func(priorityClass *schedulingv1.PriorityClass) bool { return priorityClass.GlobalDefault }),
		columns.Age(),
		columns.Text("PreemptionPolicy", doc("preemptionPolicy"), func(priorityClass *schedulingv1.PriorityClass) string {
			if priorityClass.PreemptionPolicy == nil {
				return ""
			}
			return string(*priorityClass.PreemptionPolicy)
		}),
	}
}
