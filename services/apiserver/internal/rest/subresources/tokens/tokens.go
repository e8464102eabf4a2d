// Package tokens implements token requests, the subresource token of service accounts. Package build
// adds it to the operations that package handlers routes requests to. The package keeps no state.
package tokens

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/api"
	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/registry/apply"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/handlers"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/rest/writes"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
)

// Signer signs tokens.
type Signer interface {
	SignClaims(ctx context.Context, claims satoken.Claims) (token string, err error)
}

// Issuer issues the tokens of service accounts.
type Issuer struct {
	// Name is the issuer claim of tokens.
	Name   string
	Signer Signer
	// Local reports whether the signer uses the CPU of this process, so that signing counts as work.
	Local bool
	// Audiences are the audiences of tokens whose request names none.
	Audiences []string
	// MaxLifetime is the maximum lifetime; 0 for no limit.
	MaxLifetime time.Duration
	// ExtendLifetime extends the lifetime of tokens that a kubelet requests for old clients to
	// ExtendedLifetime. Old clients never read a renewed token.
	ExtendLifetime bool
	// MaxExtended is the maximum extended lifetime; 0 for no limit.
	MaxExtended time.Duration
	Objects     satoken.Objects
}

// Limits and default of the lifetime in a request, in seconds.
const (
	minTokenSeconds     = satoken.MinLifetimeSeconds
	maxTokenSeconds     = satoken.MaxLifetimeSeconds
	defaultTokenSeconds = 60 * 60
	// extendedTokenMark is the lifetime that marks a token for an old client. As in Kubernetes, it is the
	// lifetime of the token volumes that admission adds to pods.
	extendedTokenMark = 60*60 + 7
)

// Lifetimes of the tokens of old clients.
const (
	// MarkedLifetime is the lifetime that kubelets request for old clients.
	MarkedLifetime = extendedTokenMark * time.Second
	// ExtendedLifetime is the actual lifetime of such a token if lifetimes are extended.
	ExtendedLifetime = 365 * 24 * time.Hour
)

var tokenRequestGVK = authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")

// Config holds the dependencies of the operation.
type Config struct {
	responsewriters.Responder
	Writer *writes.Writer
	Fields *apply.Fields
	// Issuer issues tokens; nil disables the operation.
	Issuer *Issuer
	Now    func() time.Time
}

// service serves TokenRequest.
type service struct {
	Config
	// bodyFields manages the field ownership of request bodies.
	bodyFields *apply.Manager
}

// Operations returns the operations of service accounts.
func Operations(config Config) []handlers.Operation {
	s := &service{config, config.Fields.ForOperation(tokenRequestGVK, declare.New[authenticationv1.TokenRequest], "token")}
	return []handlers.Operation{
		{Resource: schema.GroupResource{Resource: "serviceaccounts"}, Subresource: "token", Serve: s.requestToken},
	}
}

// requestToken serves POST of a service account's token.
func (s *service) requestToken(call *handlers.Call) error {
	if s.Issuer == nil {
		return status.NoResource()
	}
	// 1. Decode the request.
	createRequest, err := call.CreateRequest()
	if err != nil {
		return err
	}
	obj, err := call.DecodeBody(createRequest.FieldValidation, tokenRequestGVK)
	if err != nil {
		return err
	}
	req, ok := obj.(*authenticationv1.TokenRequest)
	if !ok {
		return fmt.Errorf("%T is not a TokenRequest", obj)
	}
	if err := meta.PrepareUnstored(req, call.Info.Namespace); err != nil {
		return err
	}
	// 2. Set defaults and run mutating admission.
	setDefaults(req)
	s.Writer.RecordSentOwnership(call.Context(), createRequest, s.bodyFields, req)
	attributes := createRequest.Admission(admission.Create, req, nil)
	if err := s.Writer.Admission.Mutate(call.Context(), attributes); err != nil {
		return err
	}
	setDefaults(req) // a webhook may have removed the values
	if err := checkName(call, req); err != nil {
		return err
	}
	// 3. Read the service account. The token is bound to the current state of the objects, not to a cached one.
	if err := call.WaitForCurrent(); err != nil {
		return err
	}
	account, err := s.Issuer.Objects.ServiceAccount(call.Context(), call.Info.Namespace, call.Info.Name)
	if err != nil {
		return err
	}
	// 4. Complete and validate the request.
	now := s.Now().UTC().Truncate(time.Second)
	if len(req.Spec.Audiences) == 0 {
		req.Spec.Audiences = s.Issuer.Audiences
	}
	req.Name = account.Name
	req.Namespace = account.Namespace
	req.CreationTimestamp = metav1.NewTime(now)
	req.Status = authenticationv1.TokenRequestStatus{}
	if errs := validateTokenRequest(req); len(errs) > 0 {
		return status.Invalid(tokenRequestGVK.GroupKind(), "", errs)
	}
	if err := s.Writer.Admission.Validate(call.Context(), attributes); err != nil {
		return err
	}
	// 5. Issue the token.
	if err := s.Issuer.issueToken(call.Context(), account, req, now); err != nil {
		return err
	}
	return s.WriteView(
		call.W,
		call.R,
		http.StatusCreated,
		responsewriters.View{Object: req, GVK: tokenRequestGVK, InternalName: "*authentication.TokenRequest"},
	)
}

// setDefaults sets the lifetime that a request omits.
func setDefaults(req *authenticationv1.TokenRequest) {
	if req.Spec.ExpirationSeconds == nil {
		seconds := int64(defaultTokenSeconds)
		req.Spec.ExpirationSeconds = &seconds
	}
}

// checkName returns an error if the name of the body, or the namespace after mutating admission,
// differs from the path.
func checkName(call *handlers.Call, req *authenticationv1.TokenRequest) error {
	var err *field.Error
	metadataPath := field.NewPath("metadata")
	switch {
	case req.Name != "" && req.Name != call.Info.Name:
		err = field.Invalid(metadataPath.Child("name"), req.Name, "must match the service account name if specified")
	case req.Namespace != "" && req.Namespace != call.Info.Namespace:
		err = field.Invalid(metadataPath.Child("namespace"), req.Namespace, "must match the service account namespace if specified")
	default:
		return nil
	}
	return status.Invalid(tokenRequestGVK.GroupKind(), call.Info.Name, field.ErrorList{err})
}

// validateTokenRequest validates the requested lifetime.
func validateTokenRequest(req *authenticationv1.TokenRequest) (errs field.ErrorList) {
	at := field.NewPath("spec", "expirationSeconds")
	seconds := *req.Spec.ExpirationSeconds
	if seconds < minTokenSeconds {
		errs = append(errs, field.Invalid(at, seconds, "may not specify a duration less than 10 minutes"))
	}
	if seconds > maxTokenSeconds {
		errs = append(errs, field.Invalid(at, seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	return errs
}

// issuedAnnotation is the audit annotation with the id of the issued token.
const issuedAnnotation = "authentication." + api.LabelDomain + "/issued-credential-id"

// issueToken issues a token and sets the status of a valid request. The token of an old client gets a
// longer lifetime. The status still has the requested expiration, so that the kubelet renews it.
func (i *Issuer) issueToken(
	ctx context.Context,
	account *corev1.ServiceAccount,
	req *authenticationv1.TokenRequest,
	now time.Time,
) error {
	binding, err := i.bindingFor(ctx, account, req.Spec.BoundObjectRef)
	if err != nil {
		return err
	}
	seconds := *req.Spec.ExpirationSeconds
	if maximum := int64(i.MaxLifetime / time.Second); maximum > 0 && seconds > maximum {
		request.Warn(ctx, fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", seconds, maximum))
		seconds = maximum
		req.Spec.ExpirationSeconds = &seconds
	}
	tokenRequest := satoken.Request{
		Binding:   binding,
		Audiences: req.Spec.Audiences,
		IssuedAt:  now,
		Lifetime:  time.Duration(seconds) * time.Second,
	}
	isForOldClient := binding.Pod != nil && seconds == extendedTokenMark && i.hasOnlyOwnAudiences(req.Spec.Audiences)
	if i.ExtendLifetime && isForOldClient {
		tokenRequest.WarnAfter = tokenRequest.Lifetime
		tokenRequest.Lifetime = ExtendedLifetime
		if i.MaxExtended > 0 {
			tokenRequest.Lifetime = min(ExtendedLifetime, i.MaxExtended)
		}
	}
	claims := tokenRequest.Claims(i.Name)
	token, err := i.signClaims(ctx, claims)
	if err != nil {
		return err
	}
	audit.FromContext(ctx).Annotate(issuedAnnotation, "JTI="+claims.ID)
	req.Status = authenticationv1.TokenRequestStatus{
		Token: token, ExpirationTimestamp: metav1.NewTime(now.Add(time.Duration(seconds) * time.Second)),
	}
	return nil
}

// signClaims signs the claims of a token. A signature with a large RSA key takes milliseconds of
// CPU, so a local signature is subject to the concurrency limit of large requests.
func (i *Issuer) signClaims(ctx context.Context, claims satoken.Claims) (string, error) {
	if i.Local {
		if err := request.Estimate(ctx, request.LargeBody); err != nil {
			return "", err
		}
	} else {
		defer request.Suspend(ctx)()
	}
	token, err := i.Signer.SignClaims(ctx, claims)
	if err != nil {
		return "", apierrors.NewInternalError(fmt.Errorf("failed to generate token: %w", err))
	}
	return token, nil
}

// hasOnlyOwnAudiences reports whether a token is for the server only.
func (i *Issuer) hasOnlyOwnAudiences(audiences []string) bool {
	for _, a := range audiences {
		if !slices.Contains(i.Audiences, a) {
			return false
		}
	}
	return true
}

// bindingFor returns the objects that a token is bound to.
func (i *Issuer) bindingFor(
	ctx context.Context,
	account *corev1.ServiceAccount,
	ref *authenticationv1.BoundObjectReference,
) (satoken.Binding, error) {
	binding := satoken.Binding{Namespace: account.Namespace, ServiceAccount: refTo(account)}
	if ref == nil {
		return binding, nil
	}
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	if gvk.Group != "" {
		return binding, unboundableError(gvk)
	}
	isBindable := gvk.Kind == "Pod" || gvk.Kind == "Secret" || gvk.Kind == "Node"
	if isBindable && ref.Name == "" {
		return binding, apierrors.NewBadRequest("Name parameter required.")
	}
	var bound *satoken.Ref
	switch gvk.Kind {
	case "Pod":
		pod, err := i.Objects.Pod(ctx, account.Namespace, ref.Name)
		if err != nil {
			return binding, err
		}
		if pod.Spec.ServiceAccountName != account.Name {
			return binding, apierrors.NewBadRequest(fmt.Sprintf(
				"cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account.Name))
		}
		if binding.Node, err = i.nodeOf(ctx, pod); err != nil {
			return binding, err
		}
		binding.Pod = refPointerTo(pod)
		bound = binding.Pod
	case "Secret":
		secret, err := i.Objects.Secret(ctx, account.Namespace, ref.Name)
		if err != nil {
			return binding, err
		}
		binding.Secret = refPointerTo(secret)
		bound = binding.Secret
	case "Node":
		node, err := i.Objects.Node(ctx, ref.Name)
		if err != nil {
			return binding, err
		}
		binding.Node = refPointerTo(node)
		bound = binding.Node
	default:
		return binding, unboundableError(gvk)
	}
	if ref.UID != "" && bound.UID != string(ref.UID) {
		return binding, apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, ref.Name, fmt.Errorf(
			"the UID in the bound object reference (%s) does not match the UID in record. "+
				"The object might have been deleted and then recreated", ref.UID))
	}
	return binding, nil
}

// unboundableError returns the error for a type of objects that tokens cannot be bound to.
func unboundableError(gvk schema.GroupVersionKind) error {
	return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", gvk))
}

// nodeOf returns the name and uid of a pod's node, or only its name if the node does not exist.
func (i *Issuer) nodeOf(ctx context.Context, pod *corev1.Pod) (*satoken.Ref, error) {
	if pod.Spec.NodeName == "" {
		return nil, nil
	}
	node, err := i.Objects.Node(ctx, pod.Spec.NodeName)
	switch {
	case apierrors.IsNotFound(err):
		return &satoken.Ref{Name: pod.Spec.NodeName}, nil
	case err != nil:
		return nil, err
	}
	return refPointerTo(node), nil
}

// refTo returns the reference to an object in claims.
func refTo(o metav1.Object) satoken.Ref {
	return satoken.Ref{Name: o.GetName(), UID: string(o.GetUID())}
}

// refPointerTo returns a pointer to the result of refTo.
func refPointerTo(o metav1.Object) *satoken.Ref {
	r := refTo(o)
	return &r
}
