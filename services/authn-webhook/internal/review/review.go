package review

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	authenticationv1 "k8s.io/api/authentication/v1"
	authenticationv1beta1 "k8s.io/api/authentication/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authenticator"
	"binnacle/libs/reviews"
)

const (
	kind = "TokenReview" // of requests and responses
	// maxBodyBytes bounds a review: the largest token with worst-case escaping, and audiences.
	maxBodyBytes = 8 * authenticator.MaxTokenBytes
	// maxAudiences bounds the audiences of a review.
	maxAudiences = 256
	// Timeout bounds a review. It is shorter than the timeout of callers, so that they receive the
	// reason.
	Timeout = 4 * time.Second
)

// Config configures a Handler.
type Config struct {
	Token   authenticator.Token
	Logger  *slog.Logger
	Metrics *Metrics
	// Timeout of a review; 0 means the constant Timeout.
	Timeout time.Duration
}

// Handler serves token reviews.
type Handler struct{ config Config }

// New returns a handler.
func New(c Config) *Handler {
	if c.Timeout == 0 {
		c.Timeout = Timeout
	}
	return &Handler{config: c}
}

// Serve serves one request, and records its duration and result.
func (h *Handler) Serve(c *gin.Context) {
	start := time.Now()
	result := h.serveReview(c)
	h.config.Metrics.recordReview(result, time.Since(start))
}

// serveReview evaluates a review, writes the response, and returns the result for the metrics.
func (h *Handler) serveReview(c *gin.Context) result {
	// 1. Parse the review.
	version, spec, rejection := readReview(c.Writer, c.Request)
	if rejection != nil {
		reviews.Reject(c, *rejection)
		return resultInvalid
	}

	// 2. Authenticate the token. Without a decision, the caller retries.
	ctx, cancel := context.WithTimeout(c.Request.Context(), h.config.Timeout)
	defer cancel()
	resp, ok, err := h.authenticate(ctx, spec)
	if err != nil && (errors.Is(err, authenticator.ErrUnavailable) || ctx.Err() != nil) {
		h.config.Logger.Warn("failed to review a token", "error", err)
		reviews.Unavailable(c, "the token cannot be reviewed now: "+err.Error())
		return resultUnavailable
	}

	// 3. Respond with the decision.
	var status authenticationv1.TokenReviewStatus
	outcome := resultUnknown
	switch {
	case ok:
		outcome = resultAuthenticated
		status = authenticatedStatus(resp)
	case err != nil:
		outcome = resultRejected
		status.Error = err.Error()
		h.config.Logger.Debug("token refused", "error", err)
	}
	writeJSON(c, http.StatusOK, responseInVersion(version, status))
	return outcome
}

// authenticate calls the authenticators. It returns false without an error if the token is unknown,
// and an error if it is invalid, too long or for other audiences.
func (h *Handler) authenticate(ctx context.Context,
	spec *authenticationv1.TokenReviewSpec) (*authenticator.Response, bool, error) {
	if len(spec.Token) > authenticator.MaxTokenBytes {
		return nil, false, authenticator.ErrTooLong
	}
	response, ok, err := h.config.Token.AuthenticateToken(ctx, spec.Token, spec.Audiences)
	if err != nil || !ok {
		return nil, false, err
	}
	if len(spec.Audiences) > 0 && len(authenticator.Intersect(spec.Audiences, response.Audiences)) == 0 {
		return nil, false, errors.New("the token is for other audiences")
	}
	return response, true, nil
}

// readReview parses the review in a request. Errors do not quote the body, which contains a token.
func readReview(w http.ResponseWriter,
	r *http.Request) (version string, spec *authenticationv1.TokenReviewSpec, rejection *reviews.Rejection) {
	body, rejection := reviews.Read(w, r, maxBodyBytes)
	if rejection != nil {
		return "", nil, rejection
	}
	// v1beta1 has the same fields.
	var review authenticationv1.TokenReview
	if err := json.Unmarshal(body, &review); err != nil {
		return "", nil, reviews.Invalid("the body is not a JSON object of kind %s", kind)
	}
	v := review.APIVersion
	switch {
	case review.Kind != kind:
		return "", nil, reviews.Invalid("the body is not of kind %s", kind)
	case v != authenticationv1.SchemeGroupVersion.String() && v != authenticationv1beta1.SchemeGroupVersion.String():
		return "", nil, reviews.Invalid("apiVersion must be %s or %s", authenticationv1.SchemeGroupVersion,
			authenticationv1beta1.SchemeGroupVersion)
	case review.Spec.Token == "":
		return "", nil, reviews.Invalid("spec.token is required")
	case len(review.Spec.Audiences) > maxAudiences:
		return "", nil, reviews.Invalid("spec.audiences has more than %d entries", maxAudiences)
	}
	return review.APIVersion, &review.Spec, nil
}

// authenticatedStatus returns the status of a review whose token is valid.
func authenticatedStatus(response *authenticator.Response) authenticationv1.TokenReviewStatus {
	status := authenticationv1.TokenReviewStatus{
		Authenticated: true,
		User:          authenticationv1.UserInfo{Username: response.User.Name, UID: response.User.UID, Groups: response.User.Groups},
		Audiences:     response.Audiences,
	}
	if len(response.User.Extra) > 0 {
		status.User.Extra = make(map[string]authenticationv1.ExtraValue, len(response.User.Extra))
		for k, v := range response.User.Extra {
			status.User.Extra[k] = v
		}
	}
	return status
}

// responseInVersion returns the response in a version. Its spec is empty, so the token is not
// returned.
func responseInVersion(version string, s authenticationv1.TokenReviewStatus) any {
	return &authenticationv1.TokenReview{TypeMeta: metav1.TypeMeta{APIVersion: version, Kind: kind}, Status: s}
}

// NotAllowed rejects requests with methods other than POST.
func NotAllowed(c *gin.Context) { reviews.MethodNotAllowed(c, "token reviews") }

// writeJSON writes a response that must not be cached, because it depends on the token.
func writeJSON(c *gin.Context, code int, body any) {
	c.Header("Cache-Control", "no-store")
	c.JSON(code, body)
}
