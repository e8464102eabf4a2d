package policy

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/security/audit"
)

// validate returns the errors in a policy file. This function and the ones below use the messages
// of Kubernetes.
func validate(f *policyFile) field.ErrorList {
	errs := validateStages(f.OmitStages, field.NewPath("omitStages"))
	for i := range f.Rules {
		errs = append(errs, validateRule(&f.Rules[i], field.NewPath("rules").Index(i))...)
	}
	return errs
}

func validateRule(r *rule, path *field.Path) field.ErrorList {
	errs := validateLevel(r.Level, path.Child("level"))
	errs = append(errs, validatePaths(r.NonResourceURLs, path.Child("nonResourceURLs"))...)
	errs = append(errs, validateResources(r.Resources, path.Child("resources"))...)
	errs = append(errs, validateStages(r.OmitStages, path.Child("omitStages"))...)
	if len(r.NonResourceURLs) > 0 && len(r.Resources)+len(r.Namespaces) > 0 {
		errs = append(errs,
			field.Invalid(path.Child("nonResourceURLs"),
				r.NonResourceURLs, "rules cannot apply to both regular resources and non-resource URLs"))
	}
	return errs
}

func validateLevel(level string, path *field.Path) field.ErrorList {
	if level == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if _, ok := audit.ParseLevel(level); !ok {
		return field.ErrorList{field.NotSupported(path, level, audit.Levels())}
	}
	return nil
}

func validateStages(stages []string, path *field.Path) (errs field.ErrorList) {
	for i, s := range stages {
		if _, ok := audit.ParseStage(s); !ok {
			errs = append(errs, field.Invalid(path.Index(i), s, "allowed stages are "+strings.Join(audit.Stages(), ",")))
		}
	}
	return errs
}

func validatePaths(paths []string, path *field.Path) (errs field.ErrorList) {
	for i, p := range paths {
		if p == "*" {
			continue
		}
		if !strings.HasPrefix(p, "/") {
			errs = append(errs, field.Invalid(path.Index(i), p, "non-resource URL rules must begin with a '/' character"))
		}
		if p != "" && strings.Contains(p[:len(p)-1], "*") {
			errs = append(errs, field.Invalid(path.Index(i), p, "non-resource URL wildcards '*' must be the final character of the rule"))
		}
	}
	return errs
}

func validateResources(groups []groupResources, path *field.Path) (errs field.ErrorList) {
	for _, g := range groups {
		if g.Group != "" {
			for _, message := range validation.IsDNS1123Subdomain(g.Group) {
				errs = append(errs, field.Invalid(path.Child("group"), g.Group, message))
			}
		}
		if len(g.ResourceNames) > 0 && len(g.Resources) == 0 {
			errs = append(errs,
				field.Invalid(path.Child("resourceNames"), g.ResourceNames, "using resourceNames requires at least one resource"))
		}
	}
	return errs
}
