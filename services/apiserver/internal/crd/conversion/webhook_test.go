package conversion_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/crd/conversion"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	v1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// review is an encoded ConversionReview.
type review struct {
	Kind       string `json:"kind,omitempty"`
	APIVersion string `json:"apiVersion,omitempty"`
	Request    struct {
		UID               string           `json:"uid"`
		DesiredAPIVersion string           `json:"desiredAPIVersion"`
		Objects           []map[string]any `json:"objects"`
	} `json:"request,omitzero"`
	Response map[string]any `json:"response,omitempty"`
}

// webhookServer is a webhook that only changes the apiVersion of objects. change modifies its
// responses, and raw replaces them.
type webhookServer struct {
	*httptest.Server
	calls       []review
	change      func(*review)
	rawResponse func(http.ResponseWriter)
}

// startWebhook starts a webhook server that is closed at the end of the test.
func startWebhook(t *testing.T) *webhookServer {
	t.Helper()
	webhook := &webhookServer{}
	webhook.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request review
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &request); err != nil {
			t.Error(err)
		}
		webhook.calls = append(webhook.calls, request)
		if webhook.rawResponse != nil {
			webhook.rawResponse(w)
			return
		}
		objects := []any{}
		for _, o := range request.Request.Objects {
			o["apiVersion"] = request.Request.DesiredAPIVersion
			objects = append(objects, o)
		}
		response := &review{Kind: request.Kind, APIVersion: request.APIVersion, Response: map[string]any{
			"uid": request.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": objects,
		}}
		if webhook.change != nil {
			webhook.change(response)
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).
			Encode(map[string]any{"kind": response.Kind, "apiVersion": response.APIVersion, "response": response.Response})
	}))
	webhook.EnableHTTP2 = true
	webhook.StartTLS()
	t.Cleanup(webhook.Close)
	return webhook
}

// newConversion returns the conversion that calls the server. versions are the versions of its reviews.
func (s *webhookServer) newConversion(t *testing.T, versions ...string) *conversion.Webhook {
	t.Helper()
	caller, err := conversion.NewCaller(&webhookclient.Services{}, webhookclient.Dialers{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(caller.Close)
	url := s.URL + "/convert"
	return conversion.New(caller, &v1.CustomResourceDefinition{Spec: v1.CustomResourceDefinitionSpec{
		Group: "conv.test", Conversion: &v1.CustomResourceConversion{Strategy: v1.WebhookConverter, Webhook: &v1.WebhookConversion{
			ClientConfig: &v1.WebhookClientConfig{
				URL:      &url,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
			},
			ConversionReviewVersions: versions,
		}},
	}})
}

// object is the object that tests convert to conv.test/v2.
const object = `{"apiVersion":"conv.test/v1","kind":"Ep","metadata":{"name":"two","namespace":"f","uid":"u","generation":1,` +
	`"labels":{"l":"1"},"annotations":{"k":"v"},"finalizers":["ex.test/f"]},"spec":{"hostPort":"h:1"}}`

// TestFirstKnownReviewVersionIsUsed checks that a webhook gets a review in the first version of
// conversionReviewVersions that the server knows.
func TestFirstKnownReviewVersionIsUsed(t *testing.T) {
	for versions, want := range map[string]string{
		"v1 v1beta1": "v1", "v1beta1": "v1beta1", "v1beta1 v1": "v1beta1", "v9 v1": "v1",
	} {
		server := startWebhook(t)
		out, err := server.newConversion(t, strings.Fields(versions)...).Convert(t.Context(), [][]byte{[]byte(object)}, "v2")
		if err != nil || !strings.Contains(string(out[0]), `"conv.test/v2"`) {
			t.Fatalf("review versions %q: Convert = %s, %v; want an object of conv.test/v2", versions, out, err)
		}
		if got := server.calls[0]; got.APIVersion != "apiextensions.k8s.io/"+want || got.Request.DesiredAPIVersion != "conv.test/v2" {
			t.Errorf("review versions %q: got a review of %s for %s, want apiextensions.k8s.io/%s for conv.test/v2",
				versions, got.APIVersion, got.Request.DesiredAPIVersion, want)
		}
	}
}

// TestRequestIsSuspendedDuringConversion checks that the request releases its seats while it waits
// for the webhook.
func TestRequestIsSuspendedDuringConversion(t *testing.T) {
	webhook := startWebhook(t)
	var suspended, suspendedDuringCall atomic.Int64
	webhook.change = func(*review) { suspendedDuringCall.Store(suspended.Load()) }
	ctx := requesttest.WithInfo(t.Context(), &requestinfo.Info{})
	request.FromContext(ctx).Work = &requesttest.Work{
		OnSuspend: func() func() { suspended.Add(1); return func() { suspended.Add(-1) } },
	}
	if _, err := webhook.newConversion(t, "v1").Convert(ctx, [][]byte{[]byte(object)}, "v2"); err != nil {
		t.Fatal(err)
	}
	if suspendedDuringCall.Load() != 1 || suspended.Load() != 0 {
		t.Errorf("got %d suspensions during the call and %d afterwards; want 1 and 0", suspendedDuringCall.Load(), suspended.Load())
	}
}

// TestObjectsAreConvertedInBatches checks that only objects of other versions are sent, in several
// calls, and that all objects are returned in their order.
func TestObjectsAreConvertedInBatches(t *testing.T) {
	webhookServer := startWebhook(t)
	var docs [][]byte
	for i := range 1200 { // 400 of them have the desired version already
		version := "v1"
		if i%3 == 0 {
			version = "v2"
		}
		docs = append(docs, fmt.Appendf(nil, `{"apiVersion":"conv.test/%s","kind":"Ep","metadata":{"name":"n%d"}}`, version, i))
	}
	out, err := webhookServer.newConversion(t, "v1").Convert(t.Context(), docs, "v2")
	if err != nil {
		t.Fatal(err)
	}
	for i, doc := range out {
		var object struct {
			APIVersion string
			Metadata   struct{ Name string }
		}
		if err := json.Unmarshal(doc, &object); err != nil || object.APIVersion != "conv.test/v2" || object.Metadata.Name != fmt.Sprint("n", i) {
			t.Fatalf("object %d: got %s, %v; want n%d of conv.test/v2", i, doc, err, i)
		}
	}
	if len(webhookServer.calls) != 2 {
		var sizes []int
		for _, call := range webhookServer.calls {
			sizes = append(sizes, len(call.Request.Objects))
		}
		t.Errorf("got %d calls with %v objects to convert 800 objects, want 2 calls", len(webhookServer.calls), sizes)
	}
}

// changeObject returns a change that modifies the first object of a response and its metadata.
func changeObject(modify func(object, metadata map[string]any)) func(*review) {
	return func(response *review) {
		object := response.Response["convertedObjects"].([]any)[0].(map[string]any)
		m, _ := object["metadata"].(map[string]any)
		modify(object, m)
	}
}

// setResponse returns a change that sets a field of the response, or removes it if value is nil.
func setResponse(name string, value any) func(*review) {
	return func(response *review) {
		if value == nil {
			delete(response.Response, name)
			return
		}
		response.Response[name] = value
	}
}

// TestInvalidResponsesAreRejected checks that a response that breaks the contract gives the error that
// kube-apiserver returns.
func TestInvalidResponsesAreRejected(t *testing.T) {
	const failed = "conversion webhook for conv.test/v1, Kind=Ep failed: "
	const returned = "conversion webhook for conv.test/v1, Kind=Ep returned "
	for name, test := range map[string]struct {
		change func(*review)
		want   string
	}{
		"Failure with message": {
			change: setResponse("result", map[string]any{"status": "Failure", "message": "cannot convert"}),
			want:   failed + "cannot convert",
		},
		"Failure without message": {
			change: setResponse("result", map[string]any{"status": "Failure"}),
			want:   failed + "response.result.status was 'Failure', not 'Success'",
		},
		"no result":      {change: setResponse("result", nil), want: failed + "response.result.status was '', not 'Success'"},
		"no objects":     {change: setResponse("convertedObjects", []any{}), want: returned + "0 objects, expected 1"},
		"objects absent": {change: setResponse("convertedObjects", nil), want: returned + "0 objects, expected 1"},
		"more objects than requested": {
			change: setResponse("convertedObjects", []any{map[string]any{}, map[string]any{}}),
			want:   returned + "2 objects, expected 1",
		},
		"null instead of an object": {change: setResponse("convertedObjects", []any{nil}), want: "unexpected end of JSON input"},
		"uid of another request":    {change: setResponse("uid", "zz"), want: `, got "zz"`},
		"review without a response": {change: func(r *review) { r.Response = nil }, want: failed + "no response provided"},
		"review without a type": {
			change: func(r *review) { r.Kind, r.APIVersion = "", "" },
			want:   failed + "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=",
		},
		"other version of the review": {
			change: func(r *review) { r.APIVersion = "apiextensions.k8s.io/v1beta1" },
			want:   failed + "converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion",
		},
		"unknown version of the review": {
			change: func(r *review) { r.APIVersion = "apiextensions.k8s.io/v7" },
			want:   failed + `no kind "ConversionReview" is registered for version "apiextensions.k8s.io/v7" in scheme "pkg/runtime/scheme.go:110"`,
		},
		"unchanged apiVersion": {
			change: changeObject(func(o, _ map[string]any) { o["apiVersion"] = "conv.test/v1" }),
			want:   returned + "invalid object at index 0: invalid groupVersion (expected conv.test/v2, received conv.test/v1)",
		},
		"changed kind": {
			change: changeObject(func(o, _ map[string]any) { o["kind"] = "Zed" }),
			want:   returned + "invalid object at index 0: invalid kind (expected Ep, received Zed)",
		},
		"changed name": {
			change: changeObject(func(_, m map[string]any) { m["name"] = "zz" }),
			want:   returned + "invalid object: must have the same name: two != zz",
		},
		"changed namespace": {
			change: changeObject(func(_, m map[string]any) { m["namespace"] = "zz" }),
			want:   returned + "invalid object: must have the same namespace: f != zz",
		},
		"changed uid": {
			change: changeObject(func(_, m map[string]any) { m["uid"] = "zz" }),
			want:   returned + "invalid object: must have the same UID: u != zz",
		},
		"metadata removed": {
			change: changeObject(func(o, _ map[string]any) { delete(o, "metadata") }),
			want:   returned + "invalid object: must have the same name: two != ",
		},
		"metadata that is a string": {
			change: changeObject(func(o, _ map[string]any) { o["metadata"] = "x" }),
			want:   returned + "invalid object: must have the same name: two != ",
		},
		"invalid labels": {
			change: changeObject(func(_, m map[string]any) { m["labels"] = map[string]any{"a b": "!"} }),
			want:   returned + "invalid metadata: [metadata.labels: Invalid value: \"a b\": name part must consist of",
		},
	} {
		server := startWebhook(t)
		server.change = test.change
		_, err := server.newConversion(t, "v1").Convert(t.Context(), [][]byte{[]byte(object)}, "v2")
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got error %v, want one that contains %q", name, err, test.want)
		}
		var status apierrors.APIStatus
		if !errors.As(err, &status) || status.Status().Code != 500 || status.Status().Reason != "" {
			t.Errorf("%s: got error %#v, want a Status with code 500 and no reason", name, err)
		}
	}
}

// TestOnlyLabelsAndAnnotationsMayChange checks that other changes of metadata in a response are
// ignored.
func TestOnlyLabelsAndAnnotationsMayChange(t *testing.T) {
	webhook := startWebhook(t)
	webhook.change = changeObject(func(o, members map[string]any) {
		members["labels"], members["annotations"] = map[string]any{"new": "1"}, nil
		members["finalizers"], members["generation"], members["ownerReferences"] = []any{}, 99, []any{map[string]any{"name": "x"}}
		members["resourceVersion"] = "7"
		o["spec"] = map[string]any{"host": "h"}
	})
	out, err := webhook.newConversion(t, "v1").Convert(t.Context(), [][]byte{[]byte(object)}, "v2")
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(out[0], &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{"apiVersion":"conv.test/v2","kind":"Ep","metadata":{"name":"two","namespace":"f","uid":"u","generation":1,`+
		`"labels":{"new":"1"},"finalizers":["ex.test/f"]},"spec":{"host":"h"}}`), &want); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("converted object: got\n%s\nwant\n%v", out[0], want)
	}
}

// TestUndecodableResponsesAreRejected checks that a response that cannot be decoded gives the error that
// kube-apiserver returns.
func TestUndecodableResponsesAreRejected(t *testing.T) {
	for name, test := range map[string]struct {
		respond func(http.ResponseWriter)
		want    string // part of the error
	}{
		"empty body": {respond: func(http.ResponseWriter) {}, want: "0-length response with status code: 200"},
		"code 500 with a text": {respond: func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, "broken")
		}, want: `an error on the server ("broken") has prevented the request from succeeding`},
		"code 404": {respond: func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
			want: "the server could not find the requested resource"},
		"JSON string": {respond: func(w http.ResponseWriter) { fmt.Fprint(w, `"x"`) },
			want: "couldn't get version/kind; json parse error: json: cannot unmarshal string"},
	} {
		server := startWebhook(t)
		server.rawResponse = test.respond
		want := "conversion webhook for conv.test/v1, Kind=Ep failed: " + test.want
		_, err := server.newConversion(t, "v1").Convert(t.Context(), [][]byte{[]byte(object)}, "v2")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one that contains %q", name, err, want)
		}
	}
}

// TestCanceledRequestEndsConversion checks that Convert returns when its request is canceled.
func TestCanceledRequestEndsConversion(t *testing.T) {
	webhook := startWebhook(t)
	ctx, cancel := context.WithCancel(t.Context())
	var called atomic.Bool
	canceled := make(chan struct{})
	webhook.rawResponse = func(http.ResponseWriter) {
		called.Store(true)
		cancel()
		<-canceled
	}
	_, err := webhook.newConversion(t, "v1").Convert(ctx, [][]byte{[]byte(object)}, "v2")
	close(canceled)
	if !errors.Is(err, context.Canceled) || !called.Load() {
		t.Errorf("Convert with a canceled request: got error %v, webhook called: %t; want %v, true",
			err, called.Load(), context.Canceled)
	}
}
