package authzconfig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// fileTypes returns the types that a file may contain.
func fileTypes() []string { return []string{Node, RBAC, Webhook} }

// validate returns the errors in a configuration file, with the texts of Kubernetes.
func (c *Configuration) validate(conditions Conditions) (errs field.ErrorList) {
	path := field.NewPath("authorizers")
	if len(c.Authorizers) == 0 {
		return field.ErrorList{field.Required(path, "at least one authorization mode must be defined")}
	}
	types := map[string]bool{}
	names := map[string]bool{}
	for i := range c.Authorizers {
		authorizer := &c.Authorizers[i]
		path := path.Index(i)
		switch {
		case authorizer.Type == "":
			errs = append(errs, field.Required(path.Child("type"), ""))
			continue
		case !slices.Contains(fileTypes(), authorizer.Type):
			errs = append(errs, field.NotSupported(path.Child("type"), authorizer.Type, fileTypes()))
			continue
		case types[authorizer.Type] && authorizer.Type != Webhook:
			errs = append(errs, field.Duplicate(path.Child("type"), authorizer.Type))
			continue
		}
		types[authorizer.Type] = true
		errs = append(errs, validateName(authorizer.Name, names, path.Child("name"))...)
		names[authorizer.Name] = true
		switch {
		case authorizer.Type == Webhook && authorizer.Webhook == nil:
			errs = append(errs, field.Required(path.Child("webhook"), "required when type=Webhook"))
		case authorizer.Type == Webhook:
			errs = append(errs, authorizer.Webhook.validate(conditions, path.Child("webhook"))...)
		case authorizer.Webhook != nil:
			errs = append(errs, field.Invalid(path.Child("webhook"), "non-null", "may only be specified when type=Webhook"))
		}
	}
	return errs
}

// validateName validates the unique name of an authorizer.
func validateName(name string, seen map[string]bool, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if seen[name] {
		return field.ErrorList{field.Duplicate(path, name)}
	}
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return field.ErrorList{field.Invalid(path, name, "authorizer name is invalid: "+strings.Join(msgs, ", "))}
	}
	return nil
}

// requiredName returns the name that an authorizer of a type other than webhook must have.
func requiredName(authorizerType string) string { return strings.ToLower(authorizerType) }

// checkNames returns an error if an authorizer other than a webhook has a name other than its type
// in lower case. Metrics rely on these names.
func (c *Configuration) checkNames() error {
	var errs []error
	for i := range c.Authorizers {
		if a := &c.Authorizers[i]; a.Type != Webhook && a.Name != requiredName(a.Type) {
			errs = append(errs,
				fmt.Errorf("authorizers[%d].name: expected name %s for authorizer %s instead of %s", i, requiredName(a.Type), a.Type, a.Name))
		}
	}
	return errors.Join(errs...)
}

// validate returns the errors in the configuration of a webhook.
func (w *WebhookConfig) validate(conditions Conditions, path *field.Path) (errs field.ErrorList) {
	add := func(err *field.Error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	timeout := w.Timeout.Duration
	switch {
	case timeout == 0:
		add(field.Required(path.Child("timeout"), ""))
	case timeout < 0 || timeout > MaxTimeout:
		add(field.Invalid(path.Child("timeout"), timeout.String(), "must be > 0s and <= 30s"))
	}
	if d := w.AuthorizedTTL.Duration; d < 0 {
		add(field.Invalid(path.Child("authorizedTTL"), d.String(), "must be > 0s"))
	}
	if d := w.UnauthorizedTTL.Duration; d < 0 {
		add(field.Invalid(path.Child("unauthorizedTTL"), d.String(), "must be > 0s"))
	}
	add(checkOneOf(path.Child("subjectAccessReviewVersion"), w.SubjectAccessReviewVersion, reviewV1, reviewV1beta1))
	if v := w.MatchConditionSubjectAccessReviewVersion; v != "" || len(w.MatchConditions) > 0 {
		add(checkOneOf(path.Child("matchConditionSubjectAccessReviewVersion"), v, reviewV1))
	}
	add(checkOneOf(path.Child("failurePolicy"), w.FailurePolicy, PolicyNoOpinion, PolicyDeny))
	errs = append(errs, w.ConnectionInfo.validate(path.Child("connectionInfo"))...)
	return append(errs, validateConditions(w.MatchConditions, conditions, path.Child("matchConditions"))...)
}

// checkOneOf returns an error unless value is one of the allowed values.
func checkOneOf(path *field.Path, value string, allowed ...string) *field.Error {
	switch {
	case value == "":
		return field.Required(path, "")
	case !slices.Contains(allowed, value):
		return field.NotSupported(path, value, allowed)
	}
	return nil
}

// validate returns the errors in the address of a service.
func (c *ConnectionInfo) validate(path *field.Path) field.ErrorList {
	filePath := path.Child("kubeConfigFile")
	switch c.Type {
	case ConnectionInCluster:
		// The server would call itself for authorization.
		return field.ErrorList{field.Invalid(path.Child("type"), c.Type, "not supported by the API server; use type KubeConfigFile")}
	case ConnectionFile:
		if c.KubeConfigFile == nil || *c.KubeConfigFile == "" {
			return field.ErrorList{field.Required(filePath, "")}
		}
		file := *c.KubeConfigFile
		if !filepath.IsAbs(file) {
			return field.ErrorList{field.Invalid(filePath, file, "must be an absolute path")}
		}
		info, err := os.Stat(file)
		if err != nil {
			return field.ErrorList{field.Invalid(filePath, file, "error loading file: "+err.Error())}
		}
		if !info.Mode().IsRegular() {
			return field.ErrorList{field.Invalid(filePath, file, "must be a regular file")}
		}
		return nil
	}
	if err := checkOneOf(path.Child("type"), c.Type, ConnectionInCluster, ConnectionFile); err != nil {
		return field.ErrorList{err}
	}
	return nil
}

// validateConditions returns the errors of the match conditions of a webhook.
func validateConditions(list []MatchCondition, conditions Conditions, path *field.Path) (errs field.ErrorList) {
	if len(list) > MaxMatchConditions {
		return field.ErrorList{field.TooMany(path, len(list), MaxMatchConditions)}
	}
	seen := map[string]bool{}
	for i, matchCondition := range list {
		path := path.Index(i).Child("expression")
		switch {
		case strings.TrimSpace(matchCondition.Expression) == "":
			errs = append(errs, field.Required(path, ""))
		case seen[matchCondition.Expression]:
			errs = append(errs, field.Duplicate(path, matchCondition.Expression))
		default:
			if err := conditions.Check(matchCondition.Expression); err != nil {
				errs = append(errs, field.Invalid(path, matchCondition.Expression, err.Error()))
			}
		}
		seen[matchCondition.Expression] = true
	}
	return errs
}
