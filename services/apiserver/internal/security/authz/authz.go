package authz

import (
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/authorizer"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// Types of package authorizer, under the names that the front end uses.
type (
	Decision    = authorizer.Decision
	Attributes  = authorizer.Attributes
	Authorizer  = authorizer.Authorizer
	Chain       = authorizer.Chain
	AlwaysAllow = authorizer.AlwaysAllow
	AlwaysDeny  = authorizer.AlwaysDeny
	Masters     = authorizer.SystemMasters
)

// Decisions.
const (
	NoOpinion = authorizer.NoOpinion
	Allow     = authorizer.Allow
	Deny      = authorizer.Deny
)

// AttributesOf returns the attributes of a request. It omits selectors that are invalid or too
// large: the request is then authorized as one for all objects.
func AttributesOf(u *request.User, i *requestinfo.Info) *Attributes {
	a := &Attributes{
		User: u, Verb: i.Verb, Resource: i.IsResource, Namespace: i.Namespace, Group: i.Group, Version: i.Version,
		Name: i.Name, ResourceName: i.Resource, Subresource: i.Subresource, Path: i.Path,
	}
	if i.Crowded() {
		return a
	}
	if i.FieldSelector != "" {
		if s, err := i.OwnSelectors().Fields(); err == nil {
			a.FieldSelector = s.Requirements()
		}
	}
	if i.LabelSelector != "" {
		if s, err := i.OwnSelectors().Labels(); err == nil {
			a.LabelSelector, _ = s.Requirements()
		}
	}
	return a
}

// Message returns the description of a rejected request.
func Message(a *Attributes) string {
	name := ""
	if a.User != nil {
		name = a.User.Name
	}
	user := fmt.Sprintf("User %q", name)
	if !a.Resource {
		return fmt.Sprintf("%s cannot %s path %q", user, a.Verb, a.Path)
	}
	resource := a.ResourceName
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	if a.Namespace != "" {
		return fmt.Sprintf("%s cannot %s resource %q in API group %q in the namespace %q", user, a.Verb, resource, a.Group, a.Namespace)
	}
	return fmt.Sprintf("%s cannot %s resource %q in API group %q at the cluster scope", user, a.Verb, resource, a.Group)
}

// Forbidden returns the 403 error of a rejected request.
func Forbidden(a *Attributes, reason string) error {
	msg := Message(a)
	if reason != "" {
		msg += ": " + reason
	}
	gr := schema.GroupResource{Group: a.Group, Resource: a.ResourceName}
	err := apierrors.NewForbidden(gr, a.Name, errors.New(msg))
	if !a.Resource {
		err.ErrStatus.Details = &metav1.StatusDetails{}
	}
	return err
}
