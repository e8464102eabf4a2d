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

// Types of package authorizer, under the names that the API server uses.
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
func AttributesOf(user *request.User, info *requestinfo.Info) *Attributes {
	attrs := &Attributes{
		User:         user,
		Verb:         info.Verb,
		Resource:     info.IsResource,
		Namespace:    info.Namespace,
		Group:        info.Group,
		Version:      info.Version,
		Name:         info.Name,
		ResourceName: info.Resource,
		Subresource:  info.Subresource,
		Path:         info.Path,
	}
	if info.TooManySelectorTerms() {
		return attrs
	}
	if info.FieldSelector != "" {
		if selector, err := info.OwnSelectors().Fields(); err == nil {
			attrs.FieldSelector = selector.Requirements()
		}
	}
	if info.LabelSelector != "" {
		if selector, err := info.OwnSelectors().Labels(); err == nil {
			attrs.LabelSelector, _ = selector.Requirements()
		}
	}
	return attrs
}

// Message returns the description of a rejected request.
func Message(attrs *Attributes) string {
	name := ""
	if attrs.User != nil {
		name = attrs.User.Name
	}
	user := fmt.Sprintf("User %q", name)
	if !attrs.Resource {
		return fmt.Sprintf("%s cannot %s path %q", user, attrs.Verb, attrs.Path)
	}
	resource := attrs.ResourceName
	if attrs.Subresource != "" {
		resource += "/" + attrs.Subresource
	}
	if attrs.Namespace != "" {
		return fmt.Sprintf("%s cannot %s resource %q in API group %q in the namespace %q",
			user, attrs.Verb, resource, attrs.Group, attrs.Namespace)
	}
	return fmt.Sprintf("%s cannot %s resource %q in API group %q at the cluster scope", user, attrs.Verb, resource, attrs.Group)
}

// Forbidden returns the 403 error of a rejected request.
func Forbidden(attrs *Attributes, reason string) error {
	msg := Message(attrs)
	if reason != "" {
		msg += ": " + reason
	}
	gr := schema.GroupResource{Group: attrs.Group, Resource: attrs.ResourceName}
	err := apierrors.NewForbidden(gr, attrs.Name, errors.New(msg))
	if !attrs.Resource {
		err.ErrStatus.Details = &metav1.StatusDetails{}
	}
	return err
}
