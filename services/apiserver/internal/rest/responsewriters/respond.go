package responsewriters

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
)

// Responder writes responses that are not made from stored bytes: errors, and objects of any known
// type. The filters of package server use it, too.
type Responder struct {
	Codec *codec.Codec
	Media negotiation.Media
}

// Error writes an error as a Status in the negotiated media type. A Status has no table or metadata
// form, so a client that requests such a form gets JSON unless it also accepts the Status itself.
func (p Responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	reported := status.FromError(err)
	mayBeDeadline := reported.Code == http.StatusInternalServerError || reported.Code == http.StatusGatewayTimeout
	if mayBeDeadline && errors.Is(r.Context().Err(), context.DeadlineExceeded) {
		p.writeTimeout(w, r)
		return
	}
	if d := reported.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	choice, ok := p.Media.Accept(r)
	if !ok {
		choice = negotiation.Choice{Media: api.MediaJSON, Pretty: true} // as in Kubernetes
		r = withoutAudit(r)
	}
	p.Write(w, r, int(reported.Code), reported, codec.StatusGVK, choice)
}

// writeTimeout responds to a request that did not complete before its deadline.
func (p Responder) writeTimeout(w http.ResponseWriter, r *http.Request) {
	st := status.Timeout()
	if body, err := p.Codec.Encode(st, codec.StatusGVK, api.MediaJSON, false /* pretty */); err == nil {
		recordResponse(p.Codec, r, st, codec.StatusGVK, negotiation.Choice{Media: api.MediaJSON}, body)
	}
	status.WriteTimeout(w)
}

// WriteSuccess writes the Status of a successful operation that returns no object.
func (p Responder) WriteSuccess(w http.ResponseWriter, r *http.Request, code int, details *metav1.StatusDetails) {
	p.writeStatus(w, r, code, &metav1.Status{Status: metav1.StatusSuccess, Details: details})
}

// WriteCreated writes the Status of a creation that leaves no object. The body repeats the code.
func (p Responder) WriteCreated(w http.ResponseWriter, r *http.Request) {
	p.writeStatus(w, r, http.StatusCreated, &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusCreated})
}

// WriteDeleted writes the Status of a deletion that returns no object. The body repeats the code.
func (p Responder) WriteDeleted(w http.ResponseWriter, r *http.Request, details *metav1.StatusDetails) {
	p.writeStatus(w, r, http.StatusOK, &metav1.Status{Status: metav1.StatusSuccess, Code: http.StatusOK, Details: details})
}

// writeStatus writes a Status, which is the same in all forms of an object.
func (p Responder) writeStatus(w http.ResponseWriter, r *http.Request, code int, st *metav1.Status) {
	choice, ok := p.Media.Accept(r, negotiation.Table, negotiation.PartialObject, negotiation.PartialObjectList)
	if !ok {
		p.Error(w, r, status.NotAcceptable(p.Media.Objects()))
		return
	}
	tracing.Event(r.Context(), eventWrite)
	p.Write(w, r, code, st, codec.StatusGVK, choice)
	tracing.Event(r.Context(), eventWritten)
}

// Write writes an object in a negotiated form.
func (p Responder) Write(
	w http.ResponseWriter,
	r *http.Request,
	code int,
	obj runtime.Object,
	gvk schema.GroupVersionKind,
	choice negotiation.Choice,
) {
	defer audit.FromContext(r.Context()).StartTimer(audit.Serializing).Stop()
	w, done := startResponseSpan(w, r, gvk.GroupVersion(), choice)
	defer done()
	data, err := p.Codec.Encode(obj, gvk, choice.Media, choice.Pretty)
	if err != nil {
		// An object that cannot be encoded in the requested media type is replaced by an error in
		// JSON.
		choice.Media = api.MediaJSON
		obj = status.FromError(err)
		gvk = codec.StatusGVK
		if data, err = p.Codec.Encode(obj, gvk, choice.Media, false /* pretty */); err != nil {
			http.Error(w, "the answer cannot be encoded", http.StatusInternalServerError)
			return
		}
		code = http.StatusInternalServerError
	}
	recordResponse(p.Codec, r, obj, gvk, choice, data)
	writeBody(w, r, code, choice.Media, data)
}

// writeBody writes a complete response.
func writeBody(w http.ResponseWriter, r *http.Request, code int, contentType string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", contentType)
	header.Set("Cache-Control", "no-cache, private")
	SendWarnings(w, r)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // fails only if the client has disconnected
	}
}

// SendWarnings sets the Warning headers to the collected warnings.
func SendWarnings(w http.ResponseWriter, r *http.Request) {
	if warnings := request.FromContext(r.Context()).Warnings; warnings != nil {
		if headers := warnings.Headers(); headers != nil {
			w.Header()["Warning"] = headers
		}
	}
}

// recordResponse records a response in the audit event. body is its encoding.
func recordResponse(
	apiCodec *codec.Codec,
	r *http.Request,
	obj runtime.Object,
	gvk schema.GroupVersionKind,
	choice negotiation.Choice,
	body []byte,
) {
	event := audit.FromContext(r.Context())
	if event == nil {
		return
	}
	if st, ok := obj.(*metav1.Status); ok {
		event.SetResponseStatus(st)
	}
	if !event.Enabled(audit.RequestResponse) {
		return
	}
	if choice.Media != api.MediaJSON {
		var err error
		if body, err = apiCodec.Encode(obj, gvk, api.MediaJSON, false /* pretty */); err != nil {
			return // there is no response either
		}
	}
	event.SetResponseObject(body)
}

// withoutAudit returns the request without its audit event, so that the response is not recorded.
func withoutAudit(r *http.Request) *http.Request {
	if audit.FromContext(r.Context()) == nil {
		return r
	}
	ctx, s := request.Derive(r.Context())
	s.AuditEvent = nil
	return r.WithContext(ctx)
}

// asTimeout replaces a deadline error by the API's timeout error.
func asTimeout(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
	}
	return err
}

// Events of a request's span, named as in Kubernetes.
const (
	eventWrite   = "About to write a response"
	eventWritten = "Writing http response done"
)

// startResponseSpan starts the span of a response and returns the writer to use for it. done ends
// the span. Without a trace it returns w itself.
func startResponseSpan(
	w http.ResponseWriter,
	r *http.Request,
	groupVersion schema.GroupVersion,
	choice negotiation.Choice,
) (_ http.ResponseWriter, done func()) {
	if !tracing.Recording(r.Context()) {
		return w, func() {}
	}
	_, span := tracing.Start(r.Context(), "SerializeObject", func() []attribute.KeyValue {
		return []attribute.KeyValue{
			attribute.String("audit-id", request.FromContext(r.Context()).TracedID),
			attribute.String("method", r.Method),
			attribute.String("url", r.URL.Path),
			attribute.String("protocol", r.Proto),
			attribute.String("mediaType", choice.Media),
			attribute.String("encoder", encoderOf(groupVersion, choice)),
		}
	})
	traced := &tracedWriter{ResponseWriter: w, span: span}
	return traced, traced.finish
}

// encoderOf returns the name of the encoder as in Kubernetes: a JSON document that describes the
// codec.
func encoderOf(groupVersion schema.GroupVersion, choice negotiation.Choice) string {
	encoder := "protobuf"
	switch choice.Media {
	case api.MediaCBOR:
		encoder = "cbor"
	case api.MediaJSON, api.MediaYAML:
		encoder = formatName(map[string]string{
			"name":   "json",
			"pretty": strconv.FormatBool(choice.Pretty),
			"strict": "false",
			"yaml":   strconv.FormatBool(choice.Media == api.MediaYAML),
		})
	}
	return formatName(map[string]string{"encodeGV": groupVersion.String(), "encoder": encoder, "name": "versioning"})
}

// formatName returns the JSON of the parts of a codec's name.
func formatName(parts map[string]string) string {
	text, err := json.Marshal(parts)
	if err != nil { // strings always encode
		return err.Error()
	}
	return string(text)
}

// tracedWriter adds the events of a response to its span.
type tracedWriter struct {
	http.ResponseWriter
	span    tracing.Span
	size    int
	started bool
	err     error
}

func (w *tracedWriter) Write(b []byte) (int, error) {
	if !w.started {
		w.started = true
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

// finish ends the span.
func (w *tracedWriter) finish() {
	switch {
	case !w.started:
	case w.err != nil:
		w.span.Event("Write call failed", attribute.Int("size", w.size), attribute.String("err", w.err.Error()))
	default:
		w.span.Event("Write call succeeded", attribute.Int("size", w.size))
	}
	w.span.End()
}
