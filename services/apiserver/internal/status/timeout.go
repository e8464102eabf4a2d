package status

import (
	"encoding/json"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Timeout returns the Status of a request that did not complete before its deadline.
func Timeout() *metav1.Status {
	return FromError(apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0))
}

// WriteTimeout writes the response to a request that did not complete before its deadline. As in
// Kubernetes, the body is the Status as JSON, and the media type is text/plain regardless of the
// Accept header.
func WriteTimeout(w http.ResponseWriter) {
	status := Timeout()
	body, err := json.Marshal(status)
	if err != nil {
		http.Error(w, status.Message, http.StatusGatewayTimeout)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(http.StatusGatewayTimeout)
	_, _ = w.Write(body) // the client may have disconnected
}
