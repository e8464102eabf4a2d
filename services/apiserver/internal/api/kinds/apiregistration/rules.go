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
	apiServiceSpec, spec := &a.Spec, fld.Child("spec")
	if apiServiceSpec.Group == "" {
		spec.RequireSetWithDetail("group", apiServiceSpec.Version == "v1", "only v1 may have an empty group and it better be legacy kube")
	} else {
		spec.CheckText("group", apiServiceSpec.Group, validate.DNSSubdomain)
	}
	spec.CheckText("version", apiServiceSpec.Version, validate.DNS1035Label)
	validatePriority(spec, "groupPriorityMinimum", apiServiceSpec.GroupPriorityMinimum, maxGroupPriority)
	validatePriority(spec, "versionPriority", apiServiceSpec.VersionPriority, maxVersionPriority)
	switch {
	case apiServiceSpec.Service == nil:
		if n := len(apiServiceSpec.CABundle); n > 0 {
			spec.Invalid("caBundle", fmt.Sprintf("%d bytes", n), "local APIServices may not have a caBundle")
		}
		if apiServiceSpec.InsecureSkipTLSVerify {
			spec.Invalid("insecureSkipTLSVerify", true, "local APIServices may not have insecureSkipTLSVerify")
		}
	default:
		validateService(spec.Child("service"), apiServiceSpec.Service)
		if apiServiceSpec.InsecureSkipTLSVerify && len(apiServiceSpec.CABundle) > 0 {
			spec.Invalid("insecureSkipTLSVerify", true, "may not be true if caBundle is present")
		}
	}
}

// nameRules requires a name that consists of the version and the group.
func nameRules(obj registry.Object, name string, _ bool) []string {
	if msgs := validate.PathSegment(name); len(msgs) > 0 {
		return msgs
	}
	spec := &obj.(*v1.APIService).Spec
	if expected := spec.Version + "." + spec.Group; name != expected {
		return []string{fmt.Sprintf("must be `spec.version+\".\"+spec.group`: %q", expected)}
	}
	return nil
}

func validatePriority(spec validate.Field, name string, n, maximum int32) {
	if n <= 0 || n > maximum {
		spec.Invalid(name, n, fmt.Sprintf("must be positive and less than %d", maximum))
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
