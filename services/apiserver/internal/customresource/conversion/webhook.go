package conversion

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/tracing"
	apiextensionsv1 "binnacle/services/apiserver/internal/apis/apiextensions/v1"
	apiextensionsv1beta1 "binnacle/services/apiserver/internal/apis/apiextensions/v1beta1"
	"binnacle/services/apiserver/internal/callout"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/status"
)

const (
	// timeLimit is how long a webhook has for one question.
	timeLimit = 30 * time.Second
	// A question has so many objects at most, and so many bytes of them but for
	// the last one.
	maxObjects, maxBytes = 500, 1 << 20
	// maxAnswer bounds an answer in bytes.
	maxAnswer = 64 << 20
)

// Asker asks webhooks.
type Asker interface {
	Ask(ctx context.Context, hook *callout.Webhook, limit time.Duration, question, answer runtime.Object) error
}

// NewAsker makes an Asker. Resolve says where a service is, ways lead there. Metrics may
// be nil.
func NewAsker(resolve func(ctx context.Context, namespace, name string, port int32) (string, error), ways callout.Ways, m *callout.Metrics) (*callout.Webhooks, error) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.AddKnownTypes(apiextensionsv1beta1.SchemeGroupVersion, &apiextensionsv1beta1.ConversionReview{})
	return callout.NewWebhooks(callout.WebhooksConfig{
		Scheme: scheme, Versions: []schema.GroupVersion{apiextensionsv1.SchemeGroupVersion, apiextensionsv1beta1.SchemeGroupVersion},
		Resolve: resolve, Ways: ways, Timeout: timeLimit, MaxAnswer: maxAnswer, Metrics: m,
	})
}

// Webhook converts the objects of one definition.
type Webhook struct {
	asker Asker
	hook  callout.Webhook
	name  string // of the definition
	group string
	old   bool // it speaks v1beta1
}

// New makes what converts by the webhook of a definition; nil when it has none.
func New(asker Asker, d *apiextensionsv1.CustomResourceDefinition) *Webhook {
	c := d.Spec.Conversion
	if c == nil || c.Strategy != apiextensionsv1.WebhookConverter || c.Webhook == nil || c.Webhook.ClientConfig == nil {
		return nil
	}
	w := &Webhook{asker: asker, name: d.Name, group: d.Spec.Group, old: speaksOld(c.Webhook.ConversionReviewVersions)}
	config := c.Webhook.ClientConfig
	w.hook.CABundle = config.CABundle
	if config.URL != nil {
		w.hook.URL = *config.URL
	}
	if s := config.Service; s != nil {
		w.hook.Service = &callout.Reference{Namespace: s.Namespace, Name: s.Name}
		if s.Path != nil {
			w.hook.Service.Path = *s.Path
		}
		if s.Port != nil {
			w.hook.Service.Port = *s.Port
		}
	}
	return w
}

// speaksOld tells whether the first version that is known is v1beta1.
func speaksOld(versions []string) bool {
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

// Convert returns documents in a version, in the same order; those that have it
// already are as they were. All others are converted, in as few questions as their
// size allows. An error is a Status of code 500 that says what the webhook did
// wrong, or the context's.
func (w *Webhook) Convert(ctx context.Context, docs [][]byte, version string) ([][]byte, error) {
	want := schema.GroupVersion{Group: w.group, Version: version}
	out := make([][]byte, len(docs))
	var batch []*document
	size := 0
	ask := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := w.convert(ctx, batch, want)
		for _, d := range batch {
			out[d.at] = d.converted
		}
		batch, size = batch[:0], 0
		return err
	}
	for i, raw := range docs {
		d, err := read(raw)
		if err != nil {
			return nil, err
		}
		if d.apiVersion == want.String() {
			out[i] = raw
			continue
		}
		if len(batch) == maxObjects || size > maxBytes {
			if err := ask(); err != nil {
				return nil, err
			}
		}
		d.at = i
		batch = append(batch, d)
		size += len(raw)
	}
	return out, ask()
}

// convert asks about a batch.
func (w *Webhook) convert(ctx context.Context, batch []*document, want schema.GroupVersion) error {
	kind := batch[0].gvk()
	failed := func(format string, args ...any) error {
		return status.Error(http.StatusInternalServerError, "", fmt.Sprintf("conversion webhook for %v ", kind)+fmt.Sprintf(format, args...), nil)
	}
	objects, err := w.ask(ctx, batch, want)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return failed("failed: %v", err)
	case len(objects) != len(batch):
		return failed("returned %d objects, expected %d", len(objects), len(batch))
	}
	for i, d := range batch {
		if err := d.take(objects[i].Raw, want); err != nil {
			var plain *undecodable
			if errors.As(err, &plain) {
				return status.Error(http.StatusInternalServerError, "", plain.Error(), nil)
			}
			var bad *metadataError
			switch {
			case len(batch) > 1 && errors.As(err, &bad):
				return failed("returned invalid metadata in object at index %d: %v", i, err)
			case len(batch) > 1:
				return failed("returned invalid converted object at index %d: %v", i, err)
			case errors.As(err, &bad):
				return failed("returned invalid metadata: %v", err)
			}
			var kind *typeError
			if errors.As(err, &kind) {
				return failed("returned invalid object at index 0: %v", err)
			}
			return failed("returned invalid object: %v", err)
		}
	}
	return nil
}

// ask sends one question.
func (w *Webhook) ask(ctx context.Context, batch []*document, want schema.GroupVersion) ([]runtime.RawExtension, error) {
	question := &apiextensionsv1.ConversionRequest{UID: types.UID(uuid.NewString()), DesiredAPIVersion: want.String()}
	for _, d := range batch {
		question.Objects = append(question.Objects, runtime.RawExtension{Raw: d.raw})
	}
	ctx, span := tracing.Start(ctx, "Call conversion webhook", func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("custom-resource-definition", w.name), attribute.String("desired-api-version", want.String()),
			attribute.Int("object-count", len(batch)), attribute.String("UID", string(question.UID)),
		}
	})
	back := request.Aside(ctx)
	answer, err := w.send(ctx, question)
	back()
	span.Fail(err)
	span.End()
	switch {
	case err != nil:
		return nil, err
	case answer == nil:
		return nil, errors.New("no response provided")
	case answer.UID != question.UID && !w.old:
		return nil, fmt.Errorf("expected response.uid=%q, got %q", question.UID, answer.UID)
	case answer.Result.Status == metav1.StatusSuccess:
		return answer.ConvertedObjects, nil
	case answer.Result.Message != "":
		return nil, errors.New(answer.Result.Message)
	}
	return nil, fmt.Errorf("response.result.status was '%s', not 'Success'", answer.Result.Status)
}

// send speaks the version of the webhook.
func (w *Webhook) send(ctx context.Context, question *apiextensionsv1.ConversionRequest) (*apiextensionsv1.ConversionResponse, error) {
	const kind = "ConversionReview"
	if w.old {
		want := apiextensionsv1beta1.SchemeGroupVersion.WithKind(kind)
		var answer apiextensionsv1beta1.ConversionReview
		err := w.asker.Ask(ctx, &w.hook, 0, &apiextensionsv1beta1.ConversionReview{Request: question, Response: &apiextensionsv1.ConversionResponse{}}, &answer)
		if err == nil && answer.GroupVersionKind() != want {
			err = unexpected(want, answer.GroupVersionKind())
		}
		return answer.Response, err
	}
	want := apiextensionsv1.SchemeGroupVersion.WithKind(kind)
	var answer apiextensionsv1.ConversionReview
	err := w.asker.Ask(ctx, &w.hook, 0, &apiextensionsv1.ConversionReview{Request: question, Response: &apiextensionsv1.ConversionResponse{}}, &answer)
	if err == nil && answer.GroupVersionKind() != want {
		err = unexpected(want, answer.GroupVersionKind())
	}
	return answer.Response, err
}

func unexpected(want, got schema.GroupVersionKind) error {
	return fmt.Errorf("expected webhook response of %v, got %v", want, got)
}
