package endpoints

import (
	"context"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
)

// virtualMethods are the handlers of kinds that store nothing.
func (a *API) virtualMethods(c *call, named bool) map[string]handler {
	m := map[string]handler{}
	switch {
	case c.Resource == "componentstatuses":
		m[http.MethodGet] = a.listComponents
		if named {
			m[http.MethodGet] = a.getComponent
		}
	case !c.HasVerb("create") || named:
	case c.Namespaced && c.info.Namespace == "":
	case c.Resource == "bindings":
		m[http.MethodPost] = a.bind
	default:
		m[http.MethodPost] = a.review
	}
	return m
}

// review answers POST of a review kind: the same object with its status.
func (a *API) review(c *call) error {
	options, err := parseUpdateOptions(c.r)
	if err != nil {
		return err
	}
	body, media, err := a.body(c.r)
	if err != nil {
		return err
	}
	obj, err := a.decodeAs(c, c.GVK(), body, media, options)
	if err != nil {
		return err
	}
	if o, ok := obj.(registry.Object); ok {
		a.own(c, nil, o, options)
	}
	ctx, user := c.ctx(), request.UserFrom(c.ctx())
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
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: got.Authenticated, Audiences: got.Audiences, Error: got.Error}
	if err != nil {
		r.Status = authenticationv1.TokenReviewStatus{Error: err.Error()}
		return nil
	}
	if got.Authenticated {
		r.Status.User = userInfo(&got.User)
	}
	return nil
}

// components are what componentstatuses tells of: the deprecated view on the
// parts of the control plane. This server knows only of its store.
func (a *API) components(ctx context.Context) []corev1.ComponentStatus {
	cond := corev1.ComponentCondition{Type: corev1.ComponentHealthy, Status: corev1.ConditionTrue, Message: "ok"}
	if _, err := a.Store.Revision(ctx); err != nil {
		cond.Status, cond.Message, cond.Error = corev1.ConditionFalse, "", err.Error()
	}
	return []corev1.ComponentStatus{{ObjectMeta: metav1.ObjectMeta{Name: "etcd-0"}, Conditions: []corev1.ComponentCondition{cond}}}
}

func (a *API) listComponents(c *call) error {
	if c.info.Verb == "watch" {
		err := apierrors.NewMethodNotSupported(c.GroupResource(), "watch")
		err.ErrStatus.Message = fmt.Sprintf("watch is not supported on resources of kind %q", c.Resource)
		return err
	}
	var list runtime.Object = &corev1.ComponentStatusList{Items: a.components(c.ctx())}
	a.Object(c.w, c.r, http.StatusOK, list, corev1.SchemeGroupVersion.WithKind("ComponentStatusList"))
	return nil
}

func (a *API) getComponent(c *call) error {
	for _, s := range a.components(c.ctx()) {
		if s.Name == c.info.Name {
			a.Object(c.w, c.r, http.StatusOK, &s, c.GVK())
			return nil
		}
	}
	return apierrors.NewNotFound(c.GroupResource(), c.info.Name)
}
