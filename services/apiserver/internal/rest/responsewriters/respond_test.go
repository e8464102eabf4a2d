package responsewriters

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/kinds/builtin"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/registry"
)

// TestErrorInUnacceptedMediaTypeIsIndented checks that a client that accepts no known media type
// gets indented JSON, whatever program it is.
func TestErrorInUnacceptedMediaTypeIsIndented(t *testing.T) {
	catalog, err := builtin.AllKinds(registry.Settings{})
	if err != nil {
		t.Fatal(err)
	}
	apiCodec, err := codec.New(catalog, builtin.Scheme())
	if err != nil {
		t.Fatal(err)
	}
	responder := Responder{Codec: apiCodec, Media: negotiation.Media{}}
	for _, test := range []struct {
		accept, agent string
		indented      bool
	}{
		{accept: "text/plain", indented: true},
		{accept: "text/plain", agent: "curl/8", indented: true},
		{accept: api.MediaJSON},
		{accept: api.MediaJSON, agent: "curl/8", indented: true},
	} {
		r := httptest.NewRequest("GET", "/api/v1/pods", nil)
		r.Header.Set("Accept", test.accept)
		r.Header.Set("User-Agent", test.agent)
		recorder := httptest.NewRecorder()
		responder.Error(recorder, r, apierrors.NewInternalError(errors.New("x")))
		if got := strings.HasPrefix(recorder.Body.String(), "{\n  \"kind\": \"Status\","); got != test.indented || recorder.Code != 500 {
			t.Errorf("%s for %s: got code %d, %q; want 500, indented: %t", test.accept, test.agent, recorder.Code, recorder.Body, test.indented)
		}
	}
}
