package responsewriters

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/request"
)

// Events of a request's span, named as in Kubernetes.
const (
	eventWrite   = "About to write a response"
	eventWritten = "Writing http response done"
)

// serialize starts the span of a response and returns the writer to use for it. done ends the
// span. Without a trace it returns w itself.
func serialize(
	w http.ResponseWriter,
	r *http.Request,
	gv schema.GroupVersion,
	choice negotiation.Choice,
) (_ http.ResponseWriter, done func()) {
	if !tracing.Recording(r.Context()) {
		return w, func() {}
	}
	_, span := tracing.Start(r.Context(), "SerializeObject", func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("audit-id", request.FromContext(r.Context()).TracedID), attribute.String("method", r.Method), attribute.String("url", r.URL.Path),
			attribute.String("protocol", r.Proto), attribute.String("mediaType", choice.Media), attribute.String("encoder", encoderOf(gv, choice)),
		}
	})
	traced := &tracedWriter{ResponseWriter: w, span: span}
	return traced, traced.done
}

// encoderOf returns the name of the encoder as in Kubernetes: a JSON document that describes the
// codec.
func encoderOf(gv schema.GroupVersion, choice negotiation.Choice) string {
	encoder := "protobuf"
	switch choice.Media {
	case api.MediaCBOR:
		encoder = "cbor"
	case api.MediaJSON, api.MediaYAML:
		encoder = named(map[string]string{
			"name": "json", "pretty": strconv.FormatBool(choice.Pretty), "strict": "false", "yaml": strconv.FormatBool(choice.Media == api.MediaYAML),
		})
	}
	return named(map[string]string{"encodeGV": gv.String(), "encoder": encoder, "name": "versioning"})
}

func named(parts map[string]string) string {
	text, err := json.Marshal(parts)
	if err != nil { // strings always encode
		return err.Error()
	}
	return string(text)
}

// tracedWriter adds the events of a response to its span.
type tracedWriter struct {
	http.ResponseWriter
	span  tracing.Span
	size  int
	begun bool
	err   error
}

func (w *tracedWriter) Write(b []byte) (int, error) {
	if !w.begun {
		w.begun = true
		w.span.Event("About to start writing response",
			attribute.String("writer", fmt.Sprintf("%T", w.ResponseWriter)), attribute.Int("size", len(b)))
	}
	n, err := w.ResponseWriter.Write(b)
	w.size += n
	w.err = err
	return n, err
}

// Unwrap supports http.ResponseController.
func (w *tracedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *tracedWriter) done() {
	switch {
	case !w.begun:
	case w.err != nil:
		w.span.Event("Write call failed", attribute.Int("size", w.size), attribute.String("err", w.err.Error()))
	default:
		w.span.Event("Write call succeeded", attribute.Int("size", w.size))
	}
	w.span.End()
}
