package apiregistration

import (
	"fmt"

	"binnacle/services/apiserver/internal/registry"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/registry/validate"
)

// Maximum priorities of a group, and of a version in its group.
const (
	maxGroupPriority   = 20000
	maxVersionPriority = 1000
)

func validateAPIService(fld validate.Field, a *v1.APIService) {
	spec, specField := &a.Spec, fld.Child("spec")
	if spec.Group == "" {
		specField.RequireSetWithDetail("group", spec.Version == "v1", "only v1 may have an empty group and it better be legacy kube")
	} else {
		specField.CheckText("group", spec.Group, validate.DNSSubdomain)
	}
	specField.CheckText("version", spec.Version, validate.DNS1035Label)
	validatePriority(specField, "groupPriorityMinimum", spec.GroupPriorityMinimum, maxGroupPriority)
	validatePriority(specField, "versionPriority", spec.VersionPriority, maxVersionPriority)
	switch {
	case spec.Service == nil:
		if n := len(spec.CABundle); n > 0 {
			specField.Invalid("caBundle", fmt.Sprintf("%d bytes", n), "local APIServices may not have a caBundle")
		}
		if spec.InsecureSkipTLSVerify {
			specField.Invalid("insecureSkipTLSVerify", true, "local APIServices may not have insecureSkipTLSVerify")
		}
	default:
		validateService(specField.Child("service"), spec.Service)
		if spec.InsecureSkipTLSVerify && len(spec.CABundle) > 0 {
			specField.Invalid("insecureSkipTLSVerify", true, "may not be true if caBundle is present")
		}
	}
}

// validateName requires a name that consists of the version and the group.
func validateName(obj registry.Object, name string, _ bool) []string {
	if msgs := validate.PathSegment(name); len(msgs) > 0 {
		return msgs
	}
	spec := &obj.(*v1.APIService).Spec
	if expected := spec.Version + "." + spec.Group; name != expected {
		return []string{fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", expected)}
	}
	return nil
}

// validatePriority requires a priority from 1 to maximum. The message excludes maximum, as in
// Kubernetes.
func validatePriority(specField validate.Field, name string, n, maximum int32) {
	if n <= 0 || n > maximum {
		specField.Invalid(name, n, fmt.Sprintf("must be positive and less than %d", maximum))
	}
}

func validateService(fld validate.Field, serviceReference *v1.ServiceReference) {
	fld.RequireSet("namespace", serviceReference.Namespace != "")
	fld.RequireSet("name", serviceReference.Name != "")
	if serviceReference.Port != nil {
		for _, msg := range validate.PortNumber(*serviceReference.Port) {
			fld.Invalid("port", *serviceReference.Port, "port is not valid: "+msg)
		}
	}
}

func validateAPIServiceStatus(status validate.Field, s *v1.APIServiceStatus) {
	validate.Each(status, "conditions", s.Conditions, func(fld validate.Field, c *v1.APIServiceCondition) {
		validate.OneOf(fld, "status", c.Status, v1.ConditionFalse, v1.ConditionTrue, v1.ConditionUnknown)
	})
}
