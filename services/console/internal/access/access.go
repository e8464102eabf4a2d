// Package access authorizes access to the console: a caller must be allowed to read the metrics of
// the API server, from which the shown data comes. A caller presents a client certificate or a
// bearer token. The API server authenticates the token (TokenReview), and decides whether the user
// may get /metrics (SubjectAccessReview). There is no other access: if the API server does not
// respond, the caller is rejected.
//
// Results are cached for a few seconds, because the page polls. Reviews are bounded in number and
// time.
package access

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/libs/certchain"
	"binnacle/libs/limit"
	"binnacle/libs/reviews"
	"binnacle/libs/serving/conns"
)

const (
	// maxDecisions bounds the cached decisions of each kind, and decisionTTL their age.
	maxDecisions = 256
	decisionTTL  = 10 * time.Second
	// reviewTimeout bounds the reviews of one request.
	reviewTimeout = 10 * time.Second
	// maxConcurrent bounds the concurrent requests with reviews of known callers, which were
	// admitted before or present a certificate, and separately those of other callers.
	maxConcurrent = 16
	// requiredPath is the path that a caller must be allowed to get.
	requiredPath = "/metrics"
	// maxToken is the maximum length of a token in bytes.
	maxToken = 64 << 10
)

// TokenReviews requests the users of tokens.
type TokenReviews interface {
	Create(ctx context.Context, r *authenticationv1.TokenReview, o metav1.CreateOptions) (*authenticationv1.TokenReview, error)
}

// SubjectAccessReviews requests what users may do.
type SubjectAccessReviews interface {
	Create(ctx context.Context, r *authorizationv1.SubjectAccessReview, o metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error)
}

// Authorizer authorizes requests.
type Authorizer struct {
	tokens TokenReviews
	access SubjectAccessReviews
	verify func() (x509.VerifyOptions, bool)
	now    func() time.Time
	// knownLimit limits the reviews of callers that were admitted before or have a certificate, and
	// unknownLimit those of other callers, which can therefore delay only each other.
	knownLimit, unknownLimit *limit.Queue[string]

	mu sync.Mutex // leaf lock
	// admitted caches decisions on admitted callers, also after they have expired. rejected caches
	// rejections separately, so that they do not displace admitted callers.
	admitted, rejected *simplelru.LRU[credentialDigest, decision]
}

// credentialDigest is a digest of a caller's credentials.
type credentialDigest [sha256.Size]byte

// decision is a cached decision. rejection is nil for an allowed client.
type decision struct {
	rejection *reviews.Rejection
	expires   time.Time
}

// NewAuthorizer returns an Authorizer. verify is called with each request and returns the options
// to verify client certificates; false means that none is accepted.
func NewAuthorizer(tokens TokenReviews, access SubjectAccessReviews,
	verify func() (x509.VerifyOptions, bool)) (*Authorizer, error) {
	created := &Authorizer{
		tokens: tokens, access: access, verify: verify, now: time.Now,
		knownLimit:   limit.New[string](limit.Options{Size: maxConcurrent}),
		unknownLimit: limit.New[string](limit.Options{Size: maxConcurrent, FairShare: true}),
	}
	for _, cache := range []**simplelru.LRU[credentialDigest, decision]{&created.admitted, &created.rejected} {
		var err error
		if *cache, err = simplelru.NewLRU[credentialDigest, decision](maxDecisions, nil); err != nil {
			return nil, fmt.Errorf("cache of decisions: %w", err)
		}
	}
	return created, nil
}

// newRejection returns a rejection.
func newRejection(code int, reason metav1.StatusReason, message string) *reviews.Rejection {
	return &reviews.Rejection{Code: code, Reason: reason, Message: message}
}

// newUnauthorized returns the rejection of an unauthenticated caller.
func newUnauthorized(message string) *reviews.Rejection {
	return newRejection(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, message)
}

// Check returns the rejection of a caller, or nil if the caller is admitted.
func (a *Authorizer) Check(r *http.Request) *reviews.Rejection {
	// 1. Read the credentials: a token, else a verified certificate.
	token, isToken := bearerToken(r)
	var leaf *x509.Certificate
	switch {
	case isToken && (token == "" || len(token) > maxToken):
		return newUnauthorized("the bearer token is empty or too long")
	case isToken:
	default:
		var err error
		if leaf, err = a.verifiedCertificate(r); err != nil {
			return newUnauthorized(err.Error())
		}
	}

	// 2. Use a cached decision.
	digest := digestOf(token, leaf)
	rejection, ok, wasAdmitted := a.cachedDecision(digest)
	if ok {
		return rejection
	}

	// 3. Wait for a slot, so that reviews are bounded.
	limiter := a.unknownLimit
	claim := limit.Claim[string]{Key: conns.NetworkOf(r)}
	if wasAdmitted || leaf != nil {
		limiter = a.knownLimit
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	if err := limiter.Acquire(ctx, claim); err != nil {
		return newUnavailable(err)
	}
	defer limiter.Release(claim)

	// 4. Ask the API server for the user of a token, and for the access of the user.
	user := userOf(leaf)
	if leaf == nil {
		var rejection *reviews.Rejection
		user, rejection = a.reviewToken(ctx, token)
		if rejection != nil {
			return a.cacheDecision(digest, rejection)
		}
	}
	return a.cacheDecision(digest, a.reviewAccess(ctx, user))
}

// bearerToken returns the token of a request, and false if there is none.
func bearerToken(r *http.Request) (string, bool) {
	kind, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(kind, "bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}

// verifiedCertificate returns the verified certificate of a caller.
func (a *Authorizer) verifiedCertificate(r *http.Request) (*x509.Certificate, error) {
	options, ok := a.verify()
	if !ok || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, errors.New("authentication required: bearer token or client certificate")
	}
	leaf := r.TLS.PeerCertificates[0]
	options.CurrentTime = a.now()
	if _, err := certchain.Verify(r.TLS.PeerCertificates, options); err != nil {
		return nil, errors.New("the client certificate is not valid")
	}
	if leaf.Subject.CommonName == "" {
		return nil, errors.New("the client certificate has no common name")
	}
	return leaf, nil
}

// userOf returns the user that a certificate identifies, or no user for nil.
func userOf(leaf *x509.Certificate) authenticationv1.UserInfo {
	if leaf == nil {
		return authenticationv1.UserInfo{}
	}
	return authenticationv1.UserInfo{
		Username: leaf.Subject.CommonName,
		Groups: append(leaf.Subject.Organization[:len(leaf.Subject.Organization):len(leaf.Subject.Organization)],
			api.GroupAuthenticated),
	}
}

// digestOf returns the key of a caller. Keys of tokens and certificates are distinct.
func digestOf(token string, leaf *x509.Certificate) credentialDigest {
	if leaf != nil {
		return sha256.Sum256(append([]byte("certificate "), leaf.Raw...))
	}
	return sha256.Sum256([]byte("token " + token))
}

// cachedDecision returns a valid cached result, and whether the caller was admitted before.
func (a *Authorizer) cachedDecision(digest credentialDigest) (rejection *reviews.Rejection, ok, wasAdmitted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	cached, wasAdmitted := a.admitted.Get(digest)
	found := wasAdmitted
	if !found {
		cached, found = a.rejected.Get(digest)
	}
	if !found || !a.now().Before(cached.expires) {
		return nil, false, wasAdmitted
	}
	return cached.rejection, true, wasAdmitted
}

// cacheDecision caches a definite result. It does not cache the unavailability of the API server.
func (a *Authorizer) cacheDecision(digest credentialDigest, rejection *reviews.Rejection) *reviews.Rejection {
	if rejection != nil && rejection.Code == http.StatusServiceUnavailable {
		return rejection
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	cache, otherCache := a.admitted, a.rejected
	if rejection != nil {
		cache, otherCache = otherCache, cache
	}
	otherCache.Remove(digest)
	cache.Add(digest, decision{rejection, a.now().Add(decisionTTL)})
	return rejection
}

// reviewToken requests the user of a token.
func (a *Authorizer) reviewToken(ctx context.Context, token string) (authenticationv1.UserInfo, *reviews.Rejection) {
	reviewed, err := a.tokens.Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return authenticationv1.UserInfo{}, newUnavailable(err)
	case !reviewed.Status.Authenticated || reviewed.Status.User.Username == "":
		return authenticationv1.UserInfo{}, newUnauthorized("the bearer token is not valid")
	}
	return reviewed.Status.User, nil
}

// reviewAccess requests whether a user may access the console.
func (a *Authorizer) reviewAccess(ctx context.Context, userInfo authenticationv1.UserInfo) *reviews.Rejection {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: userInfo.Username, UID: userInfo.UID, Groups: userInfo.Groups,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: requiredPath, Verb: "get"},
	}
	for key, v := range userInfo.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[key] = authorizationv1.ExtraValue(v)
	}
	reviewed, err := a.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return newUnavailable(err)
	case !reviewed.Status.Allowed || reviewed.Status.Denied:
		return newRejection(http.StatusForbidden, metav1.StatusReasonForbidden,
			fmt.Sprintf("User %q cannot get path %q of the API server, as the console requires", userInfo.Username, requiredPath))
	}
	return nil
}

// newUnavailable returns the rejection while the API server is unavailable. It omits
// the error, because callers without access receive it.
func newUnavailable(error) *reviews.Rejection {
	return newRejection(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable,
		"the API server cannot authorize the request")
}
