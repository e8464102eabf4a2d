// Package reviews is the common base of services that serve reviews over HTTP. It authorizes
// callers, reads reviews, and writes rejections, which must not be cached. Each service evaluates
// its reviews itself.
package reviews

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/gin-gonic/gin"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/libs/callerauth"
)

// retryAfter is the value of the header Retry-After, in seconds.
const retryAfter = "1"

// Rejection is the error response to a review that is invalid or cannot be evaluated.
type Rejection struct {
	Code    int
	Reason  metav1.StatusReason
	Message string
}

// Invalid returns the rejection of an invalid body.
func Invalid(format string, args ...any) *Rejection {
	return &Rejection{http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf(format, args...)}
}

// Read reads the body of a review. It must be JSON of at most limit bytes.
func Read(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, *Rejection) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != api.MediaJSON {
		return nil, &Rejection{http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			"the body must be of type " + api.MediaJSON}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return nil, &Rejection{http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("the body is larger than %d bytes", large.Limit)}
	}
	if err != nil {
		return nil, Invalid("the body cannot be read")
	}
	return body, nil
}

// Reject responds with a Status.
func Reject(c *gin.Context, r Rejection) {
	c.Header("Cache-Control", "no-store")
	c.JSON(r.Code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(r.Code), Reason: r.Reason, Message: r.Message,
	})
}

// Unavailable responds that the client should retry.
func Unavailable(c *gin.Context, message string) {
	c.Header("Retry-After", retryAfter)
	Reject(c, Rejection{http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, message})
}

// MethodNotAllowed rejects requests with methods other than POST. kinds is the plural name of the
// reviews.
func MethodNotAllowed(c *gin.Context, kinds string) {
	c.Header("Allow", http.MethodPost)
	Reject(c, Rejection{http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, kinds + " are sent by POST"})
}

// Mount serves reviews at paths to authorized callers.
func Mount(engine *gin.Engine, clients *callerauth.Guard, serve, notAllowed gin.HandlerFunc, paths ...string) {
	guard := func(c *gin.Context) {
		if clients.Check(c.Request) != nil {
			Reject(c, Rejection{http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"})
			c.Abort()
		}
	}
	for _, path := range paths {
		engine.POST(path, guard, serve)
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPatch, http.MethodDelete} {
			engine.Handle(method, path, guard, notAllowed)
		}
	}
}
