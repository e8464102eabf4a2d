package review

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/libs/authorizer"
	"binnacle/libs/node"
	"binnacle/libs/rbac"
)

const (
	kind = "SubjectAccessReview"
	// maxBodyBytes bounds a review, which names all groups of a user.
	maxBodyBytes = 1 << 20
	// retryAfter is in seconds.
	retryAfter = "1"
)

// Config of a Handler.
type Config struct {
	Authorizer authorizer.Authorizer
	// Position tells the position of the policy; nil where decisions do not
	// hang on roles.
	Position func() rbac.Position
	// Nodes tells whether decisions on nodes hang on more than that.
	Nodes bool
	// Ready returns why no decision can be made yet.
	Ready   func() error
	Logger  *slog.Logger
	Metrics *Metrics
}

// Handler answers access reviews.
type Handler struct{ c Config }

// New returns a handler.
func New(c Config) *Handler { return &Handler{c: c} }

// refusal is an answer to what is no access review.
type refusal struct {
	code    int
	reason  metav1.StatusReason
	message string
}

// Serve answers one request.
func (h *Handler) Serve(c *gin.Context) {
	began := time.Now()
	result := h.serve(c)
	h.c.Metrics.reviewed(result, time.Since(began))
}

func (h *Handler) serve(c *gin.Context) string {
	review, bad := read(c.Writer, c.Request)
	if bad != nil {
		refuse(c, *bad)
		return resultInvalid
	}
	// Before the policy is known, everything would be refused, and that might
	// be kept.
	if err := h.c.Ready(); err != nil {
		c.Header("Retry-After", retryAfter)
		refuse(c, refusal{http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the policy is not loaded yet: " + err.Error()})
		return resultUnavailable
	}
	if h.c.Position != nil {
		c.Header(rbac.PositionHeader, h.c.Position().String())
	}
	attrs, problems := authorizer.AttributesOf(authorizer.UserOf(&review.Spec), review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	if _, isNode := node.NodeOf(attrs.User); isNode && h.c.Nodes {
		c.Header("Cache-Control", "no-store")
	}
	d, reason, err := h.c.Authorizer.Authorize(c.Request.Context(), attrs)
	if err != nil {
		h.c.Logger.Warn("an authorizer could not decide", "error", err)
	}
	// The spec is not sent back: nobody looks at it. The fields of both
	// versions are the same.
	c.JSON(http.StatusOK, &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: review.APIVersion, Kind: kind},
		Status:   authorizer.StatusOf(d, reason, err, problems),
	})
	return d.String()
}

func read(w http.ResponseWriter, r *http.Request) (*authorizationv1.SubjectAccessReview, *refusal) {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != api.MediaJSON {
		return nil, &refusal{http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "the body must be of type " + api.MediaJSON}
	}
	invalid := func(format string, args ...any) (*authorizationv1.SubjectAccessReview, *refusal) {
		return nil, &refusal{http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf(format, args...)}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBodyBytes))
	if err != nil {
		if large := new(http.MaxBytesError); errors.As(err, &large) {
			return nil, &refusal{http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", large.Limit)}
		}
		return invalid("the body cannot be read")
	}
	review, err := Decode(body)
	if err != nil {
		return invalid("%v", err)
	}
	if ra, na := review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes; (ra == nil) == (na == nil) {
		return invalid("exactly one of spec.resourceAttributes and spec.nonResourceAttributes must be given")
	}
	if review.Spec.User == "" && len(review.Spec.Groups) == 0 {
		return invalid("at least one of spec.user and spec.groups must be given")
	}
	return review, nil
}

// Decode reads a review of either version; its apiVersion stays that of the
// body.
func Decode(body []byte) (*authorizationv1.SubjectAccessReview, error) {
	review := &authorizationv1.SubjectAccessReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, fmt.Errorf("the body is no JSON object of kind %s: %w", kind, err)
	}
	if review.Kind != kind {
		return nil, fmt.Errorf("the body is not of kind %s", kind)
	}
	switch review.APIVersion {
	case authorizationv1.SchemeGroupVersion.String():
	case authorizationv1beta1.SchemeGroupVersion.String():
		// All is named as in v1 but for the groups.
		var old struct {
			Spec struct {
				Groups []string `json:"group"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(body, &old); err != nil {
			return nil, fmt.Errorf("the body is no JSON object of kind %s: %w", kind, err)
		}
		review.Spec.Groups = old.Spec.Groups
	default:
		return nil, fmt.Errorf("apiVersion must be %s or %s", authorizationv1.SchemeGroupVersion, authorizationv1beta1.SchemeGroupVersion)
	}
	return review, nil
}

func refuse(c *gin.Context, r refusal) {
	c.Header("Cache-Control", "no-store")
	c.JSON(r.code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(r.code), Reason: r.reason, Message: r.message,
	})
}

// Unauthorized answers a client that may not ask.
func Unauthorized(c *gin.Context) {
	refuse(c, refusal{http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"})
	c.Abort()
}

// NotAllowed answers requests of other methods than POST.
func NotAllowed(c *gin.Context) {
	c.Header("Allow", http.MethodPost)
	refuse(c, refusal{http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "access reviews are sent by POST"})
}
