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
	at := field.NewPath("authorizers")
	if len(c.Authorizers) == 0 {
		return field.ErrorList{field.Required(at, "at least one authorization mode must be defined")}
	}
	types := map[string]bool{}
	names := map[string]bool{}
	for i := range c.Authorizers {
		a := &c.Authorizers[i]
		at := at.Index(i)
		switch {
		case a.Type == "":
			errs = append(errs, field.Required(at.Child("type"), ""))
			continue
		case !slices.Contains(fileTypes(), a.Type):
			errs = append(errs, field.NotSupported(at.Child("type"), a.Type, fileTypes()))
			continue
		case types[a.Type] && a.Type != Webhook:
			errs = append(errs, field.Duplicate(at.Child("type"), a.Type))
			continue
		}
		types[a.Type] = true
		errs = append(errs, validateName(a.Name, names, at.Child("name"))...)
		names[a.Name] = true
		switch {
		case a.Type == Webhook && a.Webhook == nil:
			errs = append(errs, field.Required(at.Child("webhook"), "required when type=Webhook"))
		case a.Type == Webhook:
			errs = append(errs, a.Webhook.validate(conditions, at.Child("webhook"))...)
		case a.Webhook != nil:
			errs = append(errs, field.Invalid(at.Child("webhook"), "non-null", "may only be specified when type=Webhook"))
		}
	}
	return errs
}

// validateName validates the unique name of an authorizer.
func validateName(name string, seen map[string]bool, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	if seen[name] {
		return field.ErrorList{field.Duplicate(at, name)}
	}
	if msgs := validation.IsDNS1123Subdomain(name); len(msgs) > 0 {
		return field.ErrorList{field.Invalid(at, name, "authorizer name is invalid: "+strings.Join(msgs, ", "))}
	}
	return nil
}

// nameOf returns the name of an authorizer of a type other than webhook.
func nameOf(kind string) string { return strings.ToLower(kind) }

// checkNames returns an error unless an otherwise valid configuration uses the names known to
// metrics.
func (c *Configuration) checkNames() error {
	var errs []error
	for i := range c.Authorizers {
		if a := &c.Authorizers[i]; a.Type != Webhook && a.Name != nameOf(a.Type) {
			errs = append(errs, fmt.Errorf("authorizers[%d].name: expected name %s for authorizer %s instead of %s", i, nameOf(a.Type), a.Type, a.Name))
		}
	}
	return errors.Join(errs...)
}

// validate returns the errors in the configuration of a webhook.
func (w *WebhookConfig) validate(conditions Conditions, at *field.Path) (errs field.ErrorList) {
	add := func(err *field.Error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	timeout := w.Timeout.Duration
	switch {
	case timeout == 0:
		add(field.Required(at.Child("timeout"), ""))
	case timeout < 0 || timeout > MaxTimeout:
		add(field.Invalid(at.Child("timeout"), timeout.String(), "must be > 0s and <= 30s"))
	}
	if d := w.AuthorizedTTL.Duration; d < 0 {
		add(field.Invalid(at.Child("authorizedTTL"), d.String(), "must be > 0s"))
	}
	if d := w.UnauthorizedTTL.Duration; d < 0 {
		add(field.Invalid(at.Child("unauthorizedTTL"), d.String(), "must be > 0s"))
	}
	add(oneOf(at.Child("subjectAccessReviewVersion"), w.SubjectAccessReviewVersion, reviewV1, reviewV1beta1))
	if v := w.MatchConditionSubjectAccessReviewVersion; v != "" || len(w.MatchConditions) > 0 {
		add(oneOf(at.Child("matchConditionSubjectAccessReviewVersion"), v, reviewV1))
	}
	add(oneOf(at.Child("failurePolicy"), w.FailurePolicy, PolicyNoOpinion, PolicyDeny))
	errs = append(errs, w.ConnectionInfo.validate(at.Child("connectionInfo"))...)
	return append(errs, validateConditions(w.MatchConditions, conditions, at.Child("matchConditions"))...)
}

// oneOf returns an error unless value is one of the known values.
func oneOf(at *field.Path, value string, known ...string) *field.Error {
	switch {
	case value == "":
		return field.Required(at, "")
	case !slices.Contains(known, value):
		return field.NotSupported(at, value, known)
	}
	return nil
}

func (c *ConnectionInfo) validate(at *field.Path) field.ErrorList {
	file := at.Child("kubeConfigFile")
	switch c.Type {
	case ConnectionInCluster:
		// The server would call itself for authorization.
		return field.ErrorList{field.Invalid(at.Child("type"), c.Type, "the API server itself cannot use it; name a kubeConfigFile")}
	case ConnectionFile:
		if c.KubeConfigFile == nil || *c.KubeConfigFile == "" {
			return field.ErrorList{field.Required(file, "")}
		}
		path := *c.KubeConfigFile
		if !filepath.IsAbs(path) {
			return field.ErrorList{field.Invalid(file, path, "must be an absolute path")}
		}
		info, err := os.Stat(path)
		if err != nil {
			return field.ErrorList{field.Invalid(file, path, "error loading file: "+err.Error())}
		}
		if !info.Mode().IsRegular() {
			return field.ErrorList{field.Invalid(file, path, "must be a regular file")}
		}
		return nil
	}
	if err := oneOf(at.Child("type"), c.Type, ConnectionInCluster, ConnectionFile); err != nil {
		return field.ErrorList{err}
	}
	return nil
}

// validateConditions returns the errors of the match conditions of a webhook.
func validateConditions(list []MatchCondition, conditions Conditions, at *field.Path) (errs field.ErrorList) {
	if len(list) > MaxMatchConditions {
		return field.ErrorList{field.TooMany(at, len(list), MaxMatchConditions)}
	}
	seen := map[string]bool{}
	for i, c := range list {
		at := at.Index(i).Child("expression")
		switch {
		case strings.TrimSpace(c.Expression) == "":
			errs = append(errs, field.Required(at, ""))
		case seen[c.Expression]:
			errs = append(errs, field.Duplicate(at, c.Expression))
		default:
			if err := conditions.Check(c.Expression); err != nil {
				errs = append(errs, field.Invalid(at, c.Expression, err.Error()))
			}
		}
		seen[c.Expression] = true
	}
	return errs
}
