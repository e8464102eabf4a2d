package conversion

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/services/apiserver/internal/proxy/webhookclient"
	apiextensionsv1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1"
	apiextensionsv1beta1 "binnacle/services/apiserver/internal/registry/apis/apiextensions/v1beta1"
	"binnacle/services/apiserver/internal/status"
)

const (
	// timeout bounds one call.
	timeout = 30 * time.Second
	// maxObjects and maxBytes bound the objects of one call. The last object may exceed maxBytes.
	maxObjects = 500
	maxBytes   = 1 << 20
	// A response may have maxGrowth times the bytes of the request plus bytesPerObject for each
	// object, but at most MaxResponse. All responses of one Convert may have maxGrowth times the
	// bytes of the objects plus MaxResponse.
	MaxResponse    = 64 << 20
	maxGrowth      = 4
	bytesPerObject = 1 << 20
	// extraValues is the number of JSON values that a response may have in addition to maxGrowth
	// times those of the request.
	extraValues = 1 << 17
)

// Caller calls webhooks.
type Caller interface {
	Call(
		ctx context.Context,
		hook *webhookclient.Webhook,
		options webhookclient.CallOptions,
		request, response runtime.Object,
	) error
}

// NewCaller returns a Caller for webhooks. responses and metrics may be nil.
func NewCaller(
	services *webhookclient.Services,
	dialers webhookclient.Dialers,
	responses *webhookclient.ResponseLimiter,
	metrics *webhookclient.Metrics,
) (*webhookclient.Webhooks, error) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.AddKnownTypes(apiextensionsv1beta1.SchemeGroupVersion, &apiextensionsv1beta1.ConversionReview{})
	return webhookclient.NewWebhooks(webhookclient.WebhooksConfig{
		Scheme:      scheme,
		Versions:    []schema.GroupVersion{apiextensionsv1.SchemeGroupVersion, apiextensionsv1beta1.SchemeGroupVersion},
		Resolve:     services.Resolve,
		Internal:    services.Internal,
		Dialers:     dialers,
		Timeout:     timeout,
		MaxResponse: MaxResponse,
		Responses:   responses,
		Metrics:     metrics,
	})
}

// Webhook converts the objects of one definition.
type Webhook struct {
	caller  Caller
	hook    webhookclient.Webhook
	name    string // of the definition
	group   string
	v1beta1 bool // reviews are sent in v1beta1 instead of v1
}

// New returns a converter that calls the webhook of a definition; nil if it has none.
func New(caller Caller, definition *apiextensionsv1.CustomResourceDefinition) *Webhook {
	c := definition.Spec.Conversion
	if c == nil || c.Strategy != apiextensionsv1.WebhookConverter || c.Webhook == nil || c.Webhook.ClientConfig == nil {
		return nil
	}
	webhook := &Webhook{caller: caller, name: definition.Name, group: definition.Spec.Group, v1beta1: usesV1beta1(c.Webhook.ConversionReviewVersions)}
	config := c.Webhook.ClientConfig
	webhook.hook.CABundle = config.CABundle
	if config.URL != nil {
		webhook.hook.URL = *config.URL
	}
	if s := config.Service; s != nil {
		webhook.hook.Service = &webhookclient.ServiceReference{Namespace: s.Namespace, Name: s.Name}
		if s.Path != nil {
			webhook.hook.Service.Path = *s.Path
		}
		if s.Port != nil {
			webhook.hook.Service.Port = *s.Port
		}
	}
	return webhook
}

// usesV1beta1 reports whether v1beta1 is the first of the versions that this server knows.
func usesV1beta1(versions []string) bool {
	for _, v := range versions {
		switch v {
		case apiextensionsv1.SchemeGroupVersion.Version:
			return false
		case apiextensionsv1beta1.SchemeGroupVersion.Version:
			return true
		}
	}
	return false
}

// Convert returns the objects of docs in a version, in the same order. Objects that have the version
// already are returned unchanged. The webhook converts the rest, with as few calls as their size
// allows. The error is a Status with code 500 that describes the failure of the webhook, or the
// error of ctx.
func (w *Webhook) Convert(ctx context.Context, docs [][]byte, version string) ([][]byte, error) {
	target := schema.GroupVersion{Group: w.group, Version: version}
	out := make([][]byte, len(docs))
	remainingBytes := MaxResponse // bytes that the remaining responses may have together
	for _, raw := range docs {
		remainingBytes += maxGrowth * len(raw)
	}
	var batch []*document
	size := 0
	// flush converts the batch and empties it.
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		maxResponse := min(remainingBytes, MaxResponse, maxGrowth*size+bytesPerObject*len(batch))
		err := w.convertBatch(ctx, batch, target, maxResponse)
		for _, doc := range batch {
			out[doc.index] = doc.converted
			remainingBytes -= len(doc.converted)
		}
		batch = batch[:0]
		size = 0
		return err
	}
	for i, raw := range docs {
		doc, err := parseDocument(raw)
		if err != nil {
			return nil, err
		}
		if doc.apiVersion == target.String() {
			out[i] = raw
			continue
		}
		if len(batch) == maxObjects || size > maxBytes {
			if err := flush(); err != nil {
				return nil, err
			}
		}
		doc.index = i
		batch = append(batch, doc)
		size += len(raw)
	}
	return out, flush()
}

// convertBatch converts one batch and sets the results in its documents. maxResponseBytes bounds
// the response.
func (w *Webhook) convertBatch(ctx context.Context, batch []*document, target schema.GroupVersion, maxResponseBytes int) error {
	kind := batch[0].gvk()
	newFailure := func(format string, args ...any) error {
		message := fmt.Sprintf("conversion webhook for %v ", kind) + fmt.Sprintf(format, args...)
		return status.Error(http.StatusInternalServerError, "", message, nil)
	}
	var invalidResponse error
	err := w.callWebhook(ctx, batch, target, maxResponseBytes, func(objects [][]byte, n int) {
		if n != len(batch) {
			invalidResponse = newFailure("returned %d objects, expected %d", n, len(batch))
			return
		}
		for i, d := range batch {
			if err := d.setConverted(objects[i], target); err != nil {
				invalidResponse = objectError(err, i, len(batch), newFailure)
				return
			}
		}
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return newFailure("failed: %v", err)
	}
	return invalidResponse
}

// objectError returns the Status for err, the error of the returned object at an index of count
// objects. newFailure returns a Status with the kind of the objects.
func objectError(err error, index, count int, newFailure func(format string, args ...any) error) error {
	var undecodable *decodeError
	if errors.As(err, &undecodable) {
		return status.Error(http.StatusInternalServerError, "", undecodable.Error(), nil)
	}
	var badMetadata *metadataError
	var badType *typeError
	switch {
	case count > 1 && errors.As(err, &badMetadata):
		return newFailure("returned invalid metadata in object at index %d: %v", index, err)
	case count > 1:
		return newFailure("returned invalid converted object at index %d: %v", index, err)
	case errors.As(err, &badMetadata):
		return newFailure("returned invalid metadata: %v", err)
	case errors.As(err, &badType):
		return newFailure("returned invalid object at index 0: %v", err)
	}
	return newFailure("returned invalid object: %v", err)
}
