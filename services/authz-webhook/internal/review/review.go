package review

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/authorizer"
	"binnacle/libs/node"
	"binnacle/libs/rbac"
	"binnacle/libs/reviews"
)

const (
	kind = "SubjectAccessReview"
	// maxBodyBytes bounds a review, which contains all groups of a user.
	maxBodyBytes = 1 << 20
)

// Config configures a Handler.
type Config struct {
	Authorizer authorizer.Authorizer
	// Position returns the position of the policy; nil if decisions do not depend on roles.
	Position func() rbac.Position
	// Nodes is whether decisions on nodes also depend on other objects.
	Nodes bool
	// NoSelectors ignores the selectors of requests (the gate AuthorizeWithSelectors, switched
	// off).
	NoSelectors bool
	// Ready returns an error while decisions are not possible yet.
	Ready   func() error
	Logger  *slog.Logger
	Metrics *Metrics
}

// Handler serves access reviews.
type Handler struct{ config Config }

// New returns a handler.
func New(c Config) *Handler { return &Handler{config: c} }

// Serve serves one request, and records its duration and result.
func (h *Handler) Serve(c *gin.Context) {
	start := time.Now()
	result := h.serveReview(c)
	h.config.Metrics.recordReview(result, time.Since(start))
}

// serveReview evaluates a review, writes the response, and returns the result for the metrics.
func (h *Handler) serveReview(ctx *gin.Context) string {
	// 1. Parse the review.
	review, rejection := readReview(ctx.Writer, ctx.Request)
	if rejection != nil {
		reviews.Reject(ctx, *rejection)
		return resultInvalid
	}
	// Before the policy is loaded, everything would be rejected, and callers might cache that.
	if err := h.config.Ready(); err != nil {
		reviews.Unavailable(ctx, "the policy is not loaded yet: "+err.Error())
		return resultUnavailable
	}

	// 2. Report the position. It is read before the decision, which therefore includes at least the
	// changes up to it.
	if h.config.Position != nil {
		ctx.Header(rbac.PositionHeader, h.config.Position().String())
	}

	// 3. Decide.
	if attributes := review.Spec.ResourceAttributes; h.config.NoSelectors && attributes != nil {
		attributes.FieldSelector = nil
		attributes.LabelSelector = nil
	}
	attrs, problems := authorizer.AttributesOf(authorizer.UserOf(&review.Spec), review.Spec.ResourceAttributes,
		review.Spec.NonResourceAttributes)
	if _, isNode := node.NodeOf(attrs.User); isNode && h.config.Nodes {
		ctx.Header("Cache-Control", "no-store")
	}
	decision, reason, err := h.config.Authorizer.Authorize(ctx.Request.Context(), attrs)
	if err != nil {
		h.config.Logger.Warn("authorizer failed", "error", err)
	}

	// 4. Respond. The spec is not returned: callers ignore it. The fields of both versions are equal.
	ctx.JSON(http.StatusOK, &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: review.APIVersion, Kind: kind},
		Status:   authorizer.StatusOf(decision, reason, err, problems),
	})
	return decision.String()
}

// readReview reads and decodes a review. It returns the response for an invalid one.
func readReview(w http.ResponseWriter, r *http.Request) (*authorizationv1.SubjectAccessReview, *reviews.Rejection) {
	body, rejection := reviews.Read(w, r, maxBodyBytes)
	if rejection != nil {
		return nil, rejection
	}
	review, err := Decode(body)
	if err != nil {
		return nil, reviews.Invalid("%v", err)
	}
	hasResource, hasPath := review.Spec.ResourceAttributes != nil, review.Spec.NonResourceAttributes != nil
	if hasResource == hasPath {
		return nil, reviews.Invalid("exactly one of spec.resourceAttributes and spec.nonResourceAttributes must be given")
	}
	if review.Spec.User == "" && len(review.Spec.Groups) == 0 {
		return nil, reviews.Invalid("at least one of spec.user and spec.groups must be given")
	}
	return review, nil
}

// Decode parses a review of either version. Its apiVersion stays that of the body.
func Decode(body []byte) (*authorizationv1.SubjectAccessReview, error) {
	review := &authorizationv1.SubjectAccessReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, fmt.Errorf("the body is not a JSON object of kind %s: %w", kind, err)
	}
	if review.Kind != kind {
		return nil, fmt.Errorf("the body is not of kind %s", kind)
	}
	switch review.APIVersion {
	case authorizationv1.SchemeGroupVersion.String():
	case authorizationv1beta1.SchemeGroupVersion.String():
		// All names equal those of v1 except groups.
		var beta struct {
			Spec struct {
				Groups []string `json:"group"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(body, &beta); err != nil {
			return nil, fmt.Errorf("the body is not a JSON object of kind %s: %w", kind, err)
		}
		review.Spec.Groups = beta.Spec.Groups
	default:
		return nil, fmt.Errorf("apiVersion must be %s or %s", authorizationv1.SchemeGroupVersion,
			authorizationv1beta1.SchemeGroupVersion)
	}
	return review, nil
}

// NotAllowed rejects requests with methods other than POST.
func NotAllowed(c *gin.Context) { reviews.MethodNotAllowed(c, "access reviews") }
