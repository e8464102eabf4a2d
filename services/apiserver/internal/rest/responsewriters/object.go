package responsewriters

import (
	"bytes"
	"compress/gzip"
	"errors"
	"net/http"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/api"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/json/formats"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/status"
)

// WriteObject writes one object. It returns an error only before anything is sent.
func (e *Encoder) WriteObject(w http.ResponseWriter, r *http.Request, code int, encodable Encodable) error {
	if e.err != nil {
		return e.err
	}
	defer e.ReleaseConverted()
	encodable, err := e.convertObject(r.Context(), encodable)
	if err != nil {
		return err
	}
	defer audit.FromContext(r.Context()).StartTimer(audit.Serializing).Stop()
	w, done := e.startSpan(w, r)
	defer done()
	var data []byte
	switch {
	case e.isProtobuf():
		item, borrowed := encodable.openItem()
		if e.hasOnlyMetadata() {
			data, err = e.res.Coder.AppendPartialProto(nil, e.MetaVersion, item)
		} else {
			data, err = e.res.Coder.AppendProto(nil, item)
		}
		borrowed.Release()
	case e.Representation == negotiation.Itself && e.Media == api.MediaJSON && !e.Pretty:
		return e.writeJSON(w, r, code, encodable)
	default:
		if data, err = e.appendJSON(nil, encodable); err == nil {
			data, err = e.formatLimited(r, data)
		}
	}
	if err != nil {
		return err
	}
	e.recordObject(r, encodable)
	writeBody(w, r, code, e.Media, e.compressBody(w, r, data))
	return nil
}

// writeJSON writes the JSON of an object: the kept encoding without a copy, or else an encoding in
// a pooled buffer.
func (e *Encoder) writeJSON(w http.ResponseWriter, r *http.Request, code int, encodable Encodable) error {
	if frame, ok := e.cachedFrame(encodable, wholeObject); ok {
		e.sendJSON(w, r, code, frame.Object(keptType(encodable)))
		return nil
	}
	// 1. Without an encoding to keep, encode in a pooled buffer if that is possible.
	if !mayKeep(encodable) {
		pooled := chunkBuffers.Get().(*[]byte)
		defer chunkBuffers.Put(pooled)
		item, borrowed := encodable.openItem()
		b, ok := e.res.Coder.AppendStored((*pooled)[:0], item, nil)
		borrowed.Release()
		if ok {
			e.sendJSON(w, r, code, b)
			if cap(b) <= maxPooledBytes {
				*pooled = b
			}
			return nil
		}
	}
	// 2. Otherwise make a frame, which the entry keeps.
	frame, t, err := e.encodeFrame(encodable, false /* deleted */, wholeObject)
	if err == nil {
		e.sendJSON(w, r, code, frame.Object(t))
	}
	return err
}

// sendJSON writes the JSON of an object and a newline.
func (e *Encoder) sendJSON(w http.ResponseWriter, r *http.Request, code int, obj []byte) {
	audit.FromContext(r.Context()).SetResponseObject(obj)
	header := w.Header()
	header.Set("Content-Type", e.Media)
	header.Set("Cache-Control", "no-cache, private")
	SendWarnings(w, r)
	if zipped := e.compressBody(w, r, obj); len(zipped) < len(obj) {
		header.Set("Content-Length", strconv.Itoa(len(zipped)))
		w.WriteHeader(code)
		_, _ = w.Write(zipped) // fails only if the client has disconnected
		return
	}
	header.Set("Content-Length", strconv.Itoa(len(obj)+1))
	w.WriteHeader(code)
	_, _ = w.Write(obj) // fails only if the client has disconnected
	_, _ = w.Write(newline)
}

// compressBody returns the body of a response with one object. If the body is large and the client
// accepts gzip, it compresses the body and sets the headers.
func (e *Encoder) compressBody(w http.ResponseWriter, r *http.Request, body []byte) []byte {
	if len(body) <= gzipThreshold || e.writers.Compress == nil || !acceptsGzip(r) {
		return body
	}
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed) // the level is valid
	_, _ = z.Write(body)                              // a buffer returns no errors
	_ = z.Close()
	if out.Len() >= len(body) {
		return body
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.Header().Add("Vary", "Accept-Encoding")
	return out.Bytes()
}

var newline = []byte("\n")

// largeToFormat is the size in bytes of JSON from which its conversion to a human-readable form is
// limited. The conversion takes about 100 µs a KiB.
const largeToFormat = 8 << 10

// formatLimited converts JSON like formatJSON. For a large document it acquires the limiter of slow
// forms.
func (e *Encoder) formatLimited(r *http.Request, b []byte) ([]byte, error) {
	if len(b) < largeToFormat {
		return e.formatJSON(b)
	}
	if limiter := e.writers.limiterFor(r); limiter != nil {
		if err := limiter.Acquire(r.Context()); err != nil {
			return nil, asTimeout(err)
		}
		defer limiter.Release()
	}
	return e.formatJSON(b)
}

// formatJSON converts JSON to the requested form: YAML, CBOR, indented JSON, or JSON with a
// newline.
func (e *Encoder) formatJSON(b []byte) ([]byte, error) {
	switch {
	case e.Media == api.MediaYAML:
		return formats.JSONToYAML(b)
	case e.isCBOR():
		return formats.JSONToCBOR(b)
	case e.Pretty:
		return formats.Indent(b)
	}
	return append(b, '\n'), nil
}

// recordObject records an object that is not written as plain JSON in the audit event.
//
// The audit log records responses as JSON, independent of their media type. A response written as
// plain JSON is recorded while it is written. Any other response is encoded a second time, for the
// audit log only.
func (e *Encoder) recordObject(r *http.Request, encodable Encodable) {
	event := audit.FromContext(r.Context())
	if !event.Enabled(audit.RequestResponse) {
		return
	}
	if b, err := e.appendJSON(nil, encodable); err == nil {
		event.SetResponseObject(b)
	}
}

// recordList records a list that is not written as plain JSON in the audit event.
func (e *Encoder) recordList(r *http.Request, list *List) error {
	recorded := audit.FromContext(r.Context()).Copy()
	if recorded == nil {
		return nil
	}
	defer recorded.Close()
	recorded.Write(e.appendListHead(nil, list.Meta))
	var encoded []byte
	err := list.Each(func(entry *objects.Entry) (err error) {
		if encoded != nil {
			recorded.Write([]byte(","))
		}
		if encoded, err = e.appendItem(encoded[:0], e.EncodableOf(entry)); err != nil {
			return err
		}
		recorded.Write(encoded)
		if recorded.Full() {
			return errAbandoned
		}
		return nil
	})
	if err != nil && !recorded.Full() {
		return err
	}
	recorded.Write([]byte(codec.ListTail))
	return nil
}

// startSpan starts the span of a response with an object or a list in the form.
func (e *Encoder) startSpan(w http.ResponseWriter, r *http.Request) (_ http.ResponseWriter, done func()) {
	tracing.Event(r.Context(), eventWrite)
	gv := e.res.GroupVersion()
	switch e.Representation {
	case negotiation.Table, negotiation.PartialObject, negotiation.PartialObjectList:
		gv = schema.GroupVersion{Group: metav1.GroupName, Version: e.MetaVersion}
	}
	w, end := startResponseSpan(w, r, gv, e.Choice)
	return w, func() {
		end()
		tracing.Event(r.Context(), eventWritten)
	}
}

// View is an object that is not stored, such as a Scale or a review, as a response.
type View struct {
	Object registry.Object
	GVK    schema.GroupVersionKind
	// InternalName names the type in errors, as registry.Kind.InternalName does.
	InternalName string
	// Columns and Cells make the Table. A view without columns has none.
	Columns []metav1.TableColumnDefinition
	Cells   []any
}

// AcceptsView returns an error if the Accept header does not allow a view; hasTable reports whether
// the view has a Table.
func (p Responder) AcceptsView(r *http.Request, hasTable bool) error {
	if _, ok := p.negotiateView(r, hasTable); !ok {
		return status.NotAcceptable(p.Media.Objects())
	}
	return nil
}

// negotiateView chooses the form of a view. It returns false if the Accept header allows none.
func (p Responder) negotiateView(r *http.Request, hasTable bool) (negotiation.Choice, bool) {
	if hasTable {
		return p.Media.Accept(r, allRepresentations...)
	}
	return p.Media.Accept(r, negotiation.PartialObject, negotiation.PartialObjectList)
}

// AcceptsStream returns an error if the Accept header, which AcceptsView allows, requests another
// form of a stream. internalName names the type of the stream in errors.
func (p Responder) AcceptsStream(r *http.Request, internalName string) error {
	choice, _ := p.negotiateView(r, false /* hasTable */)
	switch choice.Representation {
	case negotiation.PartialObjectList:
		return notList(internalName)
	case negotiation.PartialObject:
		return errors.New("object does not implement the Object interfaces")
	}
	return nil
}

// WriteView writes a view in a negotiated form. It returns an error only before anything is sent.
func (p Responder) WriteView(w http.ResponseWriter, r *http.Request, code int, view View) error {
	choice, ok := p.negotiateView(r, view.Columns != nil)
	if !ok {
		return status.NotAcceptable(p.Media.Objects())
	}
	metaKind := func(kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: metav1.GroupName, Version: choice.MetaVersion, Kind: kind}
	}
	switch choice.Representation {
	case negotiation.PartialObjectList:
		return notList(view.InternalName)
	case negotiation.PartialObject:
		p.Write(w, r, code, meta.AsPartialObjectMetadata(view.Object), metaKind(codec.PartialKind), choice)
	case negotiation.Table:
		table, err := view.toTable(r, choice.MetaVersion)
		if err != nil {
			return err
		}
		p.Write(w, r, code, table, metaKind(codec.TableKind), choice)
	default:
		p.Write(w, r, code, view.Object, view.GVK, choice)
	}
	return nil
}

// toTable returns the Table of the view with the object that the query requests.
func (v View) toTable(r *http.Request, version string) (*metav1.Table, error) {
	include, err := includeOf(r)
	if err != nil {
		return nil, err
	}
	var object runtime.Object
	switch include {
	case codec.IncludeObject:
		object = v.Object
		object.GetObjectKind().SetGroupVersionKind(v.GVK)
	case codec.IncludeMetadata:
		partial := meta.AsPartialObjectMetadata(v.Object)
		partial.TypeMeta = metav1.TypeMeta{APIVersion: codec.MetaVersion(version), Kind: codec.PartialKind}
		object = partial
	}
	return &metav1.Table{
		ListMeta:          metav1.ListMeta{ResourceVersion: v.Object.GetResourceVersion()},
		ColumnDefinitions: v.Columns,
		Rows:              []metav1.TableRow{{Cells: v.Cells, Object: runtime.RawExtension{Object: object}}},
	}, nil
}
