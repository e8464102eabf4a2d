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

// ask sends one question. Of an answer without mistakes use is told how many objects there are,
// and what they are unless there are too many; they do not outlast it.
func (w *Webhook) ask(ctx context.Context, batch []*document, want schema.GroupVersion, most int, use func(objects [][]byte, n int)) error {
	question := &apiextensionsv1.ConversionRequest{UID: types.UID(uuid.NewString()), DesiredAPIVersion: want.String()}
	values := moreValues
	for _, d := range batch {
		question.Objects = append(question.Objects, runtime.RawExtension{Raw: d.raw})
		values += maxGrowth * request.Values(d.raw)
	}
	ctx, span := tracing.Start(ctx, "Call conversion webhook", func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("custom-resource-definition", w.name), attribute.String("desired-api-version", want.String()),
			attribute.Int("object-count", len(batch)), attribute.String("UID", string(question.UID)),
		}
	})
	defer span.End()
	cut, r := returned{most: len(batch)}, w.review(question)
	var bad error
	terms := webhookclient.Terms{Most: int64(most), Values: values, Cut: cut.take, Use: func() {
		response := r.response()
		if bad = w.judge(r, response, question.UID); bad == nil {
			use(cut.of(response))
		}
	}}
	answered := request.OnlyWaits(ctx)
	err := w.asker.Ask(ctx, &w.hook, terms, r.question, r.answer)
	answered()
	if err == nil {
		err = bad
	}
	span.Fail(err)
	return err
}

// review is a question in the version of the webhook, and what its answer is read into.
type review struct {
	question, answer runtime.Object
	response         func() *apiextensionsv1.ConversionResponse
	kind             schema.GroupVersionKind
}

func (w *Webhook) review(question *apiextensionsv1.ConversionRequest) *review {
	const kind = "ConversionReview"
	if w.old {
		answer := &apiextensionsv1beta1.ConversionReview{}
		return &review{
			&apiextensionsv1beta1.ConversionReview{Request: question, Response: &apiextensionsv1.ConversionResponse{}}, answer,
			func() *apiextensionsv1.ConversionResponse { return answer.Response }, apiextensionsv1beta1.SchemeGroupVersion.WithKind(kind),
		}
	}
	answer := &apiextensionsv1.ConversionReview{}
	return &review{
		&apiextensionsv1.ConversionReview{Request: question, Response: &apiextensionsv1.ConversionResponse{}}, answer,
		func() *apiextensionsv1.ConversionResponse { return answer.Response }, apiextensionsv1.SchemeGroupVersion.WithKind(kind),
	}
}

// judge tells what is wrong with an answer, but for its objects.
func (w *Webhook) judge(r *review, response *apiextensionsv1.ConversionResponse, uid types.UID) error {
	got := r.answer.GetObjectKind().GroupVersionKind()
	switch {
	case got != r.kind:
		return fmt.Errorf("expected webhook response of %v, got %v", r.kind, got)
	case response == nil:
		return errors.New("no response provided")
	case response.UID != uid && !w.old:
		return fmt.Errorf("expected response.uid=%q, got %.100q", uid, response.UID)
	case response.Result.Status == metav1.StatusSuccess:
		return nil
	case response.Result.Message != "":
		return errors.New(response.Result.Message)
	}
	return fmt.Errorf("response.result.status was '%s', not 'Success'", response.Result.Status)
}

// returned are the objects of an answer, which are not decoded: there may be far more than
// were asked for.
type returned struct {
	most  int
	found bool
	count int
	texts [][]byte
}

// take takes them out of an answer.
func (o *returned) take(raw []byte) ([]byte, error) {
	t, err := tape.Parse(raw)
	if err != nil {
		return raw, nil // what is wrong with it, its decoder says
	}
	defer t.Release()
	response := t.Find(tape.Root, "response")
	if response == tape.None {
		return raw, nil
	}
	list := t.Find(response, "convertedObjects")
	if list == tape.None || t.Kind(list) != tape.Array {
		return raw, nil
	}
	o.found, o.count = true, t.Len(list)
	if o.count <= o.most {
		for i, end := t.First(list), t.Next(list); i < end; i = t.Next(i) {
			o.texts = append(o.texts, t.Text(i))
		}
	}
	start, end := t.Span(list)
	rest := make([]byte, 0, len(raw)-(end-start)+2)
	return append(append(append(rest, raw[:start]...), "[]"...), raw[end:]...), nil
}

// of are the objects, and how many there are.
func (o *returned) of(response *apiextensionsv1.ConversionResponse) ([][]byte, int) {
	if o.found {
		return o.texts, o.count
	}
	for i := range response.ConvertedObjects {
		o.texts = append(o.texts, response.ConvertedObjects[i].Raw)
	}
	return o.texts, len(o.texts)
}
