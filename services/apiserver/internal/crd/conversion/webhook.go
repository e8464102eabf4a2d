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
	// timeLimit is how long a webhook has for one question.
	timeLimit = 30 * time.Second
	// A question has so many objects at most, and so many bytes of them but for
	// the last one.
	maxObjects, maxBytes = 500, 1 << 20
	// maxAnswer bounds an answer in bytes. It has no more than maxGrowth times what was asked,
	// and moreBytes for each object; nor has all that a Convert comes to, and maxAnswer.
	maxAnswer, maxGrowth, moreBytes = 64 << 20, 4, 1 << 20
	// moreValues is how many values an answer may have beside maxGrowth times those that were
	// asked about.
	moreValues = 1 << 17
)

// Asker asks webhooks.
type Asker interface {
	Ask(ctx context.Context, hook *webhookclient.Webhook, terms webhookclient.Terms, question, answer runtime.Object) error
}

// NewAsker returns an Asker of webhooks that are found by services and reached by ways. Answers are
// those that are read at a time; they and metrics may be nil.
func NewAsker(services *webhookclient.Services, ways webhookclient.Ways, answers *webhookclient.Answers, m *webhookclient.Metrics) (*webhookclient.Webhooks, error) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	scheme.AddKnownTypes(apiextensionsv1beta1.SchemeGroupVersion, &apiextensionsv1beta1.ConversionReview{})
	return webhookclient.NewWebhooks(webhookclient.WebhooksConfig{
		Scheme: scheme, Versions: []schema.GroupVersion{apiextensionsv1.SchemeGroupVersion, apiextensionsv1beta1.SchemeGroupVersion},
		Resolve: services.Resolve, Own: services.Own, Ways: ways, Timeout: timeLimit, MaxAnswer: maxAnswer, Answers: answers, Metrics: m,
	})
}

// Webhook converts the objects of one definition.
type Webhook struct {
	asker Asker
	hook  webhookclient.Webhook
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
		w.hook.Service = &webhookclient.Reference{Namespace: s.Namespace, Name: s.Name}
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
	left := maxAnswer
	for _, raw := range docs {
		left += maxGrowth * len(raw)
	}
	var batch []*document
	size := 0
	ask := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := w.convert(ctx, batch, want, min(left, maxAnswer, maxGrowth*size+moreBytes*len(batch)))
		for _, d := range batch {
			out[d.at] = d.converted
			left -= len(d.converted)
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

// convert asks about a batch. The answer may have so many bytes.
func (w *Webhook) convert(ctx context.Context, batch []*document, want schema.GroupVersion, most int) error {
	kind := batch[0].gvk()
	failed := func(format string, args ...any) error {
		return status.Error(http.StatusInternalServerError, "", fmt.Sprintf("conversion webhook for %v ", kind)+fmt.Sprintf(format, args...), nil)
	}
	var wrong error // with what was returned
	err := w.ask(ctx, batch, want, most, func(objects [][]byte, n int) {
		if n != len(batch) {
			wrong = failed("returned %d objects, expected %d", n, len(batch))
			return
		}
		for i, d := range batch {
			if err := d.take(objects[i], want); err != nil {
				wrong = untaken(err, i, len(batch), failed)
				return
			}
		}
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return failed("failed: %v", err)
	}
	return wrong
}

// untaken tells why an object was not taken, which is one of so many.
func untaken(err error, at, of int, failed func(format string, args ...any) error) error {
	var plain *undecodable
	if errors.As(err, &plain) {
		return status.Error(http.StatusInternalServerError, "", plain.Error(), nil)
	}
	var bad *metadataError
	var kind *typeError
	switch {
	case of > 1 && errors.As(err, &bad):
		return failed("returned invalid metadata in object at index %d: %v", at, err)
	case of > 1:
		return failed("returned invalid converted object at index %d: %v", at, err)
	case errors.As(err, &bad):
		return failed("returned invalid metadata: %v", err)
	case errors.As(err, &kind):
		return failed("returned invalid object at index 0: %v", err)
	}
	return failed("returned invalid object: %v", err)
}
