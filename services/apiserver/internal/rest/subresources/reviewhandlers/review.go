// Package reviewhandlers implements the review kinds: token reviews, subject reviews and
// access reviews. Package build lists its operations. Package handlers routes requests and
// calls them. The package keeps no state.
package reviewhandlers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/authn"
	"binnacle/services/apiserver/internal/security/authz"
)

// Config holds the dependencies of the operations.
type Config struct {
	responsewriters.Responder
	Writer *writes.Writer
	// Tokens authenticates the tokens of token reviews.
	Tokens authn.Tokens
	// Authorizer makes the decisions of access reviews.
	Authorizer authz.Authorizer
	Now        func() time.Time
}

// service serves the review kinds.
type service struct{ Config }

// Operations returns the operations of all review kinds.
func Operations(config Config) []handlers.Operation {
	s := &service{config}
	operation := func(group, resource string) handlers.Operation {
		return handlers.Operation{Resource: schema.GroupResource{Group: group, Resource: resource}, Serve: s.serveReview}
	}
	return []handlers.Operation{
		operation(authenticationv1.GroupName, "tokenreviews"),
		operation(authenticationv1.GroupName, "selfsubjectreviews"),
		operation(authorizationv1.GroupName, "subjectaccessreviews"),
		operation(authorizationv1.GroupName, "localsubjectaccessreviews"),
		operation(authorizationv1.GroupName, "selfsubjectaccessreviews"),
		operation(authorizationv1.GroupName, "selfsubjectrulesreviews"),
	}
}

// serveReview serves POST of a review kind. The response is the same object with its status.
func (s *service) serveReview(call *handlers.Call) error {
	req, err := call.CreateRequest()
	if err != nil {
		return err
	}
	body, err := call.DecodeBody(req.FieldValidation, call.GVK())
	if err != nil {
		return err
	}
	obj, ok := body.(registry.Object)
	if !ok {
		return fmt.Errorf("%T is not a review", body)
	}
	if err := meta.PrepareUnstored(obj, call.Info.Namespace); err != nil {
		return err
	}
	s.Writer.RecordSentOwnership(call.Context(), req, call.Owner(nil), obj)
	ctx := call.Context()
	user := request.UserFrom(ctx)
	admissionRequest := req.Admission(admission.Create, obj, nil)
	if err := call.AdmitValid(admissionRequest, func() error { return validateRequest(call, obj) }); err != nil {
		return err
	}
	switch review := obj.(type) {
	case *authenticationv1.SelfSubjectReview:
		review.ObjectMeta = metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(s.Now().UTC().Truncate(time.Second))}
		review.Status.UserInfo = request.UserInfo(user)
	case *authenticationv1beta1.SelfSubjectReview:
		review.ObjectMeta = metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(s.Now().UTC().Truncate(time.Second))}
		review.Status.UserInfo = request.UserInfo(user)
	case *authenticationv1.TokenReview:
		err = s.reviewToken(ctx, review)
	default:
		err = s.reviewAccess(call, obj)
	}
	if err != nil {
		return err
	}
	return s.WriteView(
		call.W,
		call.R,
		http.StatusCreated,
		responsewriters.View{Object: obj, GVK: call.GVK(), InternalName: call.InternalName(false)},
	)
}

// reviewToken sets the status of a TokenReview. As in Kubernetes, a field that has no value in the
// result keeps that of the request.
func (s *service) reviewToken(ctx context.Context, tokenReview *authenticationv1.TokenReview) error {
	resume := request.Suspend(ctx)
	result, err := s.Tokens.Review(ctx, tokenReview.Spec.Token, tokenReview.Spec.Audiences)
	resume()
	if err != nil { // as in Kubernetes, the client reads the failure from the status
		tokenReview.Status.Authenticated, tokenReview.Status.Error = false, err.Error()
		return nil
	}
	for _, text := range result.Warnings {
		request.Warn(ctx, text)
	}
	tokenReview.Status.Authenticated = result.Authenticated
	if result.Error != "" {
		// The aggregate includes that the server's own authenticator does not know the token.
		tokenReview.Status.Error = utilerrors.NewAggregate([]error{errors.New(authn.UnknownToken), errors.New(result.Error)}).Error()
	}
	if result.Authenticated {
		tokenReview.Status.User, tokenReview.Status.Audiences = request.UserInfo(&result.User), result.Audiences
	}
	return nil
}
