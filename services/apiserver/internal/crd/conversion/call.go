package conversion

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	apiextensionsv1beta1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1beta1"
	"binnacle/services/apiserver/internal/request"
)

// callWebhook sends one request. If the response is valid, it calls handleObjects with the number
// of returned objects and, unless there are too many, the objects. handleObjects must not keep
// them. maxBytes bounds the response.
func (w *Webhook) callWebhook(
	ctx context.Context,
	batch []*document,
	target schema.GroupVersion,
	maxBytes int,
	handleObjects func(objects [][]byte, n int),
) error {
	// 1. Build the request and the bounds of its response.
	req := &apiextensionsv1.ConversionRequest{UID: types.UID(uuid.NewString()), DesiredAPIVersion: target.String()}
	maxValues := extraValues
	for _, d := range batch {
		req.Objects = append(req.Objects, runtime.RawExtension{Raw: d.raw})
		maxValues += maxGrowth * request.Values(d.raw)
	}
	ctx, span := tracing.Start(ctx, "Call conversion webhook", func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("custom-resource-definition", w.name),
			attribute.String("desired-api-version", target.String()),
			attribute.Int("object-count", len(batch)),
			attribute.String("UID", string(req.UID)),
		}
	})
	defer span.End()
	converted := convertedObjects{limit: len(batch)}
	review := w.newReview(req)
	var responseErr error
	options := webhookclient.CallOptions{
		MaxBytes:  int64(maxBytes),
		MaxValues: maxValues,
		Transform: converted.extract,
		Then: func() {
			response := review.result()
			responseErr = w.checkResponse(review, response, req.UID)
			if responseErr == nil {
				handleObjects(converted.result(response))
			}
		},
	}

	// 2. Call the webhook. The request needs no seats while it waits.
	resume := request.Suspend(ctx)
	err := w.caller.Call(ctx, &w.hook, options, review.request, review.response)
	resume()
	if err == nil {
		err = responseErr
	}
	span.Fail(err)
	return err
}

// reviewCall holds a ConversionReview in the version that the webhook reads, and the object to
// decode its response into.
type reviewCall struct {
	request, response runtime.Object
	// result returns the part response of the decoded response, or nil.
	result func() *apiextensionsv1.ConversionResponse
	kind   schema.GroupVersionKind // of both reviews
}

// newReview returns the call for a request.
func (w *Webhook) newReview(req *apiextensionsv1.ConversionRequest) *reviewCall {
	const kind = "ConversionReview"
	if w.v1beta1 {
		response := &apiextensionsv1beta1.ConversionReview{}
		return &reviewCall{
			request:  &apiextensionsv1beta1.ConversionReview{Request: req, Response: &apiextensionsv1.ConversionResponse{}},
			response: response,
			result:   func() *apiextensionsv1.ConversionResponse { return response.Response },
			kind:     apiextensionsv1beta1.SchemeGroupVersion.WithKind(kind),
		}
	}
	response := &apiextensionsv1.ConversionReview{}
	return &reviewCall{
		request:  &apiextensionsv1.ConversionReview{Request: req, Response: &apiextensionsv1.ConversionResponse{}},
		response: response,
		result:   func() *apiextensionsv1.ConversionResponse { return response.Response },
		kind:     apiextensionsv1.SchemeGroupVersion.WithKind(kind),
	}
}

// checkResponse validates a response, except for its objects.
func (w *Webhook) checkResponse(review *reviewCall, response *apiextensionsv1.ConversionResponse, uid types.UID) error {
	got := review.response.GetObjectKind().GroupVersionKind()
	switch {
	case got != review.kind:
		return fmt.Errorf("expected webhook response of %v, got %v", review.kind, got)
	case response == nil:
		return errors.New("no response provided")
	case response.UID != uid && !w.v1beta1:
		return fmt.Errorf("expected response.uid=%q, got %.100q", uid, response.UID)
	case response.Result.Status == metav1.StatusSuccess:
		return nil
	case response.Result.Message != "":
		return errors.New(response.Result.Message)
	}
	return fmt.Errorf("response.result.status was '%s', not 'Success'", response.Result.Status)
}

// convertedObjects extracts the objects of a response without decoding them, because a webhook may
// return far more than requested.
type convertedObjects struct {
	limit   int      // number of objects beyond which none are kept
	found   bool     // extract has found the list of objects
	count   int      // number of objects in the list
	objects [][]byte // slices of the response
}

// extract collects the objects of a response and returns the response without them.
func (o *convertedObjects) extract(raw []byte) ([]byte, error) {
	doc, err := tape.Parse(raw)
	if err != nil {
		return raw, nil // the decoder returns the error
	}
	defer doc.Release()
	response := doc.Find(tape.Root, "response")
	if response == tape.None {
		return raw, nil
	}
	list := doc.Find(response, "convertedObjects")
	if list == tape.None || doc.Kind(list) != tape.Array {
		return raw, nil
	}
	o.found, o.count = true, doc.Len(list)
	if o.count <= o.limit {
		for i, end := doc.First(list), doc.Next(list); i < end; i = doc.Next(i) {
			o.objects = append(o.objects, doc.Text(i))
		}
	}
	start, end := doc.Span(list)
	trimmed := make([]byte, 0, len(raw)-(end-start)+2)
	return append(append(append(trimmed, raw[:start]...), "[]"...), raw[end:]...), nil
}

// result returns the objects and their number. It omits the objects if there are more than limit.
func (o *convertedObjects) result(response *apiextensionsv1.ConversionResponse) ([][]byte, int) {
	if o.found {
		return o.objects, o.count
	}
	for i := range response.ConvertedObjects {
		o.objects = append(o.objects, response.ConvertedObjects[i].Raw)
	}
	return o.objects, len(o.objects)
}
