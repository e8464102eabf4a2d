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
	"binnacle/libs/limit"
	"binnacle/libs/reviews"
	"binnacle/libs/serving/conns"
)

const (
	maxDecisions = 256
	decisionTTL  = 10 * time.Second
	// reviewTimeout bounds the reviews of one request.
	reviewTimeout = 10 * time.Second
	// maxConcurrent bounds the concurrent requests with reviews of known callers, which were
	// admitted before or present a certificate, and separately those of other callers.
	maxConcurrent = 16
	// path is the path that a caller must be allowed to get.
	path     = "/metrics"
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
	// Callers with unknown credentials can delay only each other.
	known, unknown *limit.Queue[string]

	mu sync.Mutex // a leaf lock
	// admitted caches admitted callers, also after their result has expired, and rejected the
	// rejected ones. However many are rejected, admitted callers are cached.
	admitted, rejected *simplelru.LRU[key, decision]
}

// key is a digest of a caller's credentials.
type key [sha256.Size]byte

// decision is a cached decision. refusal is nil for an allowed client.
type decision struct {
	refusal *reviews.Rejection
	until   time.Time
}

// NewAuthorizer returns an Authorizer. verify is called with each request and returns the options
// to verify client certificates; false means that none is accepted.
func NewAuthorizer(tokens TokenReviews, access SubjectAccessReviews, verify func() (x509.VerifyOptions, bool)) (*Authorizer, error) {
	d := &Authorizer{
		tokens: tokens, access: access, verify: verify, now: time.Now,
		known: limit.New[string](limit.Options{Size: maxConcurrent}), unknown: limit.New[string](limit.Options{Size: maxConcurrent, Share: true}),
	}
	for _, kept := range []**simplelru.LRU[key, decision]{&d.admitted, &d.rejected} {
		var err error
		if *kept, err = simplelru.NewLRU[key, decision](maxDecisions, nil); err != nil {
			return nil, fmt.Errorf("cache of decisions: %w", err)
		}
	}
	return d, nil
}

// reject returns a rejection.
func reject(code int, reason metav1.StatusReason, message string) *reviews.Rejection {
	return &reviews.Rejection{Code: code, Reason: reason, Message: message}
}

// unauthorized returns the rejection of an unauthenticated caller.
func unauthorized(message string) *reviews.Rejection {
	return reject(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, message)
}

// Check returns why a caller is rejected, or nil.
func (d *Authorizer) Check(r *http.Request) *reviews.Rejection {
	token, isToken := bearer(r)
	var leaf *x509.Certificate
	switch {
	case isToken && (token == "" || len(token) > maxToken):
		return unauthorized("the bearer token is empty or too long")
	case isToken:
	default:
		var err error
		if leaf, err = d.certificate(r); err != nil {
			return unauthorized(err.Error())
		}
	}
	k := keyOf(token, leaf)
	refusal, ok, wasAdmitted := d.cached(k)
	if ok {
		return refusal
	}
	limiter := d.unknown
	slot := limit.Claim[string]{Key: conns.NetworkOf(r)}
	if wasAdmitted || leaf != nil {
		limiter = d.known
	}
	ctx, cancel := context.WithTimeout(r.Context(), reviewTimeout)
	defer cancel()
	if err := limiter.Acquire(ctx, slot); err != nil {
		return unavailable(err)
	}
	defer limiter.Release(slot)
	user := userOf(leaf)
	if leaf == nil {
		var refusal *reviews.Rejection
		user, refusal = d.review(ctx, token)
		if refusal != nil {
			return d.cache(k, refusal)
		}
	}
	return d.cache(k, d.authorize(ctx, user))
}

// bearer returns the token of a request, and false if there is none.
func bearer(r *http.Request) (string, bool) {
	kind, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(kind, "bearer") {
		return "", false
	}
	return strings.TrimSpace(token), true
}

// certificate returns the verified certificate of a caller.
func (d *Authorizer) certificate(r *http.Request) (*x509.Certificate, error) {
	options, ok := d.verify()
	if !ok || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, errors.New("authentication required: bearer token or client certificate")
	}
	leaf := r.TLS.PeerCertificates[0]
	options.CurrentTime, options.Intermediates = d.now(), x509.NewCertPool()
	for _, c := range r.TLS.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	if _, err := leaf.Verify(options); err != nil {
		return nil, errors.New("the client certificate is not valid")
	}
	if leaf.Subject.CommonName == "" {
		return nil, errors.New("the client certificate has no common name")
	}
	return leaf, nil
}

func userOf(leaf *x509.Certificate) authenticationv1.UserInfo {
	if leaf == nil {
		return authenticationv1.UserInfo{}
	}
	return authenticationv1.UserInfo{Username: leaf.Subject.CommonName, Groups: append(leaf.Subject.Organization[:len(leaf.Subject.Organization):len(leaf.Subject.Organization)], api.GroupAuthenticated)}
}

// keyOf returns the key of a caller. Keys of tokens and certificates are distinct.
func keyOf(token string, leaf *x509.Certificate) key {
	if leaf != nil {
		return sha256.Sum256(append([]byte("certificate "), leaf.Raw...))
	}
	return sha256.Sum256([]byte("token " + token))
}

// cached returns a valid cached result, and whether the caller was admitted before.
func (d *Authorizer) cached(k key) (refusal *reviews.Rejection, ok, wasAdmitted bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, wasAdmitted := d.admitted.Get(k)
	if !wasAdmitted {
		a, ok = d.rejected.Get(k)
	}
	if ok = (ok || wasAdmitted) && d.now().Before(a.until); !ok {
		return nil, false, wasAdmitted
	}
	return a.refusal, true, wasAdmitted
}

// cache caches a definite result. It does not cache the unavailability of the API server.
func (d *Authorizer) cache(k key, refusal *reviews.Rejection) *reviews.Rejection {
	if refusal != nil && refusal.Code == http.StatusServiceUnavailable {
		return refusal
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	kept, other := d.admitted, d.rejected
	if refusal != nil {
		kept, other = other, kept
	}
	other.Remove(k)
	kept.Add(k, decision{refusal, d.now().Add(decisionTTL)})
	return refusal
}

// review requests the user of a token.
func (d *Authorizer) review(ctx context.Context, token string) (authenticationv1.UserInfo, *reviews.Rejection) {
	got, err := d.tokens.Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return authenticationv1.UserInfo{}, unavailable(err)
	case !got.Status.Authenticated || got.Status.User.Username == "":
		return authenticationv1.UserInfo{}, unauthorized("the bearer token is not valid")
	}
	return got.Status.User, nil
}

// authorize requests whether a user may access the console.
func (d *Authorizer) authorize(ctx context.Context, u authenticationv1.UserInfo) *reviews.Rejection {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: u.Username, UID: u.UID, Groups: u.Groups,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}
	for k, v := range u.Extra {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[k] = authorizationv1.ExtraValue(v)
	}
	got, err := d.access.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	switch {
	case err != nil:
		return unavailable(err)
	case !got.Status.Allowed || got.Status.Denied:
		return reject(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("User %q cannot get path %q of the API server, as the console requires", u.Username, path))
	}
	return nil
}

// unavailable returns the rejection while the API server is unavailable.
func unavailable(error) *reviews.Rejection {
	return reject(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the API server cannot authorize the request")
}
