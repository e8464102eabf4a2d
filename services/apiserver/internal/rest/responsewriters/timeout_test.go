package responsewriters

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/registry"
)

// TestErrorAfterDeadlineIsPlainText checks the media type of a response after the deadline. It makes
// typed clients report "the server was unable to return a response in the time allotted".
func TestErrorAfterDeadlineIsPlainText(t *testing.T) {
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for name, err := range map[string]error{
		"deadline of the context": ctx.Err(),
		"failure of a webhook":    apierrors.NewTimeoutError("request did not complete within requested timeout", 0),
		"failure of a call":       errors.New("call failed"),
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/api/v1/namespaces/default/pods", nil).WithContext(ctx)
			r.Header.Set("Accept", api.MediaProtobuf)
			recorder := httptest.NewRecorder()
			Responder{Codec: apiCodec, Media: negotiation.Media{}}.Error(recorder, r, err)
			var reported metav1.Status
			if err := json.Unmarshal(recorder.Body.Bytes(), &reported); err != nil {
				t.Fatal(err)
			}
			if got := recorder.Header().Get("Content-Type"); recorder.Code != 504 || got != "text/plain; charset=utf-8" {
				t.Errorf("got code %d, content type %q, want 504 as plain text", recorder.Code, got)
			}
			if reported.Reason != metav1.StatusReasonTimeout || reported.Message != "Timeout: request did not complete within the allotted timeout" {
				t.Errorf("got status %+v, want a Timeout", reported)
			}
		})
	}
}
