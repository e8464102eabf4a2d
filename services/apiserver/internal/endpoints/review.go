package endpoints

import (
	"context"
	"errors"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/authn"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// virtualHandler is the handler of a kind that stores nothing.
func (a *API) virtualHandler(c *call) handler {
	components := c.Resource == "componentstatuses"
	switch verb := c.op.Verb; {
	case components && (verb == "list" || verb == "watch"):
		return a.listComponents
	case components && verb == "get":
		return a.getComponent
	case verb != "create" || !c.HasVerb(verb) || !c.takesNew():
		return nil
	case c.Resource == "bindings":
		return a.bind
	}
	return a.review
}

// review answers POST of a review kind: the same object with its status.
func (a *API) review(c *call) error {
	write, err := c.updateRequest()
	if err != nil {
		return err
	}
	body, media, err := a.body(c)
	if err != nil {
		return err
	}
	obj, err := a.decodeAs(c, c.GVK(), body, media, write.FieldValidation)
	if err != nil {
		return err
	}
	if o, ok := obj.(registry.Object); ok {
		if !c.Namespaced {
			o.SetNamespace("") // it stands in none, whatever the client says
		}
		a.Writes.Own(write, c.Owner(nil), nil, o)
	}
	ctx, user := c.ctx(), request.UserFrom(c.ctx())
	ask := write.Admission(admission.Create, obj, nil)
	if err := a.Writes.Admission.Mutate(ctx, ask); err != nil {
		return err
	}
	if err := a.Writes.Admission.Validate(ctx, ask); err != nil {
		return err
	}
	switch r := obj.(type) {
	case *authenticationv1.SelfSubjectReview:
		r.CreationTimestamp = metav1.NewTime(a.Now().UTC().Truncate(second))
		r.Status.UserInfo = userInfo(user)
	case *authenticationv1beta1.SelfSubjectReview:
		r.CreationTimestamp = metav1.NewTime(a.Now().UTC().Truncate(second))
		r.Status.UserInfo = userInfo(user)
	case *authenticationv1.TokenReview:
		err = a.reviewToken(ctx, r)
	default:
		err = a.reviewAccess(c, obj)
	}
	if err != nil {
		return err
	}
	a.Object(c.w, c.r, http.StatusCreated, obj, c.GVK())
	return nil
}

func userInfo(u *request.User) authenticationv1.UserInfo {
	if u == nil {
		return authenticationv1.UserInfo{}
	}
	out := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for k, v := range u.Extra {
		if out.Extra == nil {
			out.Extra = map[string]authenticationv1.ExtraValue{}
		}
		out.Extra[k] = v
	}
	return out
}

func (a *API) reviewToken(ctx context.Context, r *authenticationv1.TokenReview) error {
	if r.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	got, err := a.Tokens.Review(ctx, r.Spec.Token, r.Spec.Audiences)
	if err != nil { // then there may be no review at all
		r.Status = authenticationv1.TokenReviewStatus{Error: err.Error()}
		return nil
	}
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: got.Authenticated, Audiences: got.Audiences}
	if got.Error != "" {
		// One reason is that the server's own token was not it.
		r.Status.Error = utilerrors.NewAggregate([]error{errors.New(authn.UnknownToken), errors.New(got.Error)}).Error()
	}
	if got.Authenticated {
		r.Status.User = userInfo(&got.User)
	}
	return nil
}
