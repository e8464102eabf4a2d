package endpoints

import (
	"bytes"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/negotiate"
	"binnacle/services/apiserver/internal/watchcache"
)

// shown is an object to be represented: a cache entry, which keeps what was
// encoded, or just a value as it is stored.
type shown struct {
	codec.Item
	entry *watchcache.Entry
}

// written is what a write shows: the object as it stands in the store, or would
// after a dry run; the stored form does not tell an empty list from none.
func written(value []byte, revision int64) shown {
	return shown{Item: codec.Item{Stored: value, Revision: revision}}
}

func shownEntry(e *watchcache.Entry) shown {
	return shown{Item: codec.Item{Stored: e.Stored(), Revision: e.Revision}, entry: e}
}

// form is the representation of an answer: a media type, and the object itself,
// its metadata, or a table row. YAML and indented JSON are made from JSON.
type form struct {
	negotiate.Choice
	*resource
	api     *API
	include codec.Include
	// agesOnce are the ages of an answer that is no stream.
	agesOnce *codec.Ages
}

// formOf checks what the form chosen needs beyond the header.
func (a *API) formOf(c *call, choice negotiate.Choice) (*form, error) {
	f := &form{Choice: choice, resource: c.resource, api: a}
	if choice.As == negotiate.Table {
		if choice.Media == api.MediaProtobuf {
			return nil, errNotAcceptable(a.Config.Media.Objects())
		}
		s := c.r.URL.Query().Get("includeObject")
		var ok bool
		if f.include, ok = codec.ParseInclude(s); !ok {
			err := field.Invalid(field.NewPath("includeObject"), s, "must be 'Metadata', 'Object', 'None', or empty")
			return nil, apierrors.NewBadRequest("Unable to convert to Table as requested: " + err.Error())
		}
	}
	return f, nil
}

// Kinds of kept encodings. Kinds that share a store have slots of their own.
const (
	keepFrame watchcache.Form = iota + 1
	keepDeleted
	keepPartial
	keepPartialDeleted
	keepRow
	keepMessage
	keepPartialMessage
	keepCBOR
	keepPartialCBOR
	keepEach // number of forms above
)

func (f *form) keep(what watchcache.Form) watchcache.Form {
	return what + keepEach*watchcache.Form(f.slot)
}

// proto tells whether the answer is protobuf; all else comes from JSON.
func (f *form) proto() bool { return f.Media == api.MediaProtobuf }

func (f *form) cbor() bool { return f.Media == api.MediaCBOR }

func (f *form) partial() bool {
	return f.As == negotiate.PartialObject || f.As == negotiate.PartialObjectList
}

// natural is the event type that an entry's kept frame has.
func natural(s shown) codec.EventType {
	if s.entry != nil && s.entry.CreateRevision != s.Revision {
		return codec.Modified
	}
	return codec.Added
}

// frame returns the JSON frame of an object, or of its metadata, with the event
// type that it was encoded for.
func (f *form) frame(s shown, deleted bool) (codec.Frame, codec.EventType, error) {
	t := natural(s)
	what := keepFrame
	if f.partial() {
		what = keepPartial
	}
	if deleted {
		t = codec.Deleted
		what++
	}
	make := func() ([]byte, error) {
		if f.partial() {
			return f.coder.PartialFrame(t, f.MetaVersion, s.Item)
		}
		return f.coder.JSONFrame(t, s.Item)
	}
	if s.entry == nil || f.partial() && f.MetaVersion != "v1" {
		b, err := make()
		return b, t, err
	}
	b, err := s.entry.Encoding(f.keep(what), func(*watchcache.Entry) ([]byte, error) { return make() })
	return b, t, err
}

// row returns the table row of an object.
func (f *form) row(s shown) (codec.Row, error) {
	if s.entry == nil || f.include != codec.IncludeMetadata || f.MetaVersion != "v1" {
		return f.coder.TableRow(s.Item, f.include, f.MetaVersion)
	}
	return s.entry.Encoding(f.keep(keepRow), func(*watchcache.Entry) ([]byte, error) {
		return f.coder.TableRow(s.Item, f.include, f.MetaVersion)
	})
}

// appendJSON appends the JSON of an object's form.
func (f *form) appendJSON(dst []byte, s shown) ([]byte, error) {
	if f.As == negotiate.Table {
		row, err := f.row(s)
		if err != nil {
			return nil, err
		}
		dst = f.coder.AppendTableHead(dst, f.MetaVersion, metav1.ListMeta{ResourceVersion: fmt.Sprint(s.Revision)}, true)
		if dst, err = row.Append(dst, f.ages()); err != nil {
			return nil, err
		}
		return append(dst, "]}"...), nil
	}
	frame, t, err := f.frame(s, false)
	if err != nil {
		return nil, err
	}
	return append(dst, frame.Object(t)...), nil
}

// writeObject answers with one object.
func (f *form) writeObject(c *call, code int, s shown) error {
	var b []byte
	var err error
	switch {
	case f.proto() && f.partial():
		b, err = f.coder.AppendPartialProto(nil, f.MetaVersion, s.Item)
	case f.proto():
		b, err = f.coder.AppendProto(nil, s.Item)
	case f.As == negotiate.Itself && f.Media == api.MediaJSON && !f.Pretty:
		return f.writeKept(c, code, s)
	default:
		if b, err = f.appendJSON(nil, s); err == nil {
			b, err = f.dress(b)
		}
	}
	if err != nil {
		return err
	}
	writeBody(c.w, c.r, code, f.Media, b)
	return nil
}

// writeKept answers with the kept JSON of an entry, which is not copied.
func (f *form) writeKept(c *call, code int, s shown) error {
	frame, t, err := f.frame(s, false)
	if err != nil {
		return err
	}
	obj := frame.Object(t)
	h := c.w.Header()
	h.Set("Content-Type", f.Media)
	h.Set("Cache-Control", "no-cache, private")
	h.Set("Content-Length", fmt.Sprint(len(obj)+1))
	sendWarnings(c.w, c.r)
	c.w.WriteHeader(code)
	_, _ = c.w.Write(obj) // the client is gone; there is nobody to tell
	_, _ = c.w.Write(newline)
	return nil
}

var newline = []byte("\n")

// dress turns whole JSON into what was asked for: YAML, CBOR, indented, or as it
// is with a newline.
func (f *form) dress(b []byte) ([]byte, error) {
	switch {
	case f.Media == api.MediaYAML:
		return yaml.JSONToYAML(b)
	case f.cbor():
		return codec.JSONToCBOR(b)
	case f.Pretty:
		return codec.Indent(b)
	}
	return append(b, '\n'), nil
}

// kindOfList is the kind and apiVersion of a list in this form.
func (f *form) kindOfList() (kind, apiVersion string) {
	if f.partial() {
		return codec.PartialListKind, codec.MetaVersion(f.MetaVersion)
	}
	return f.Kind.Kind + "List", f.GroupVersion().String()
}

// appendItem appends an item of a list in JSON, or a row of a table.
func (f *form) appendItem(dst []byte, s shown) ([]byte, error) {
	if f.As == negotiate.Table {
		row, err := f.row(s)
		if err != nil {
			return nil, err
		}
		return row.Append(dst, f.ages())
	}
	frame, t, err := f.frame(s, false)
	if err != nil {
		return nil, err
	}
	if f.partial() {
		return append(dst, frame.Object(t)...), nil
	}
	return f.coder.AppendItem(dst, frame, t), nil
}

// ages writes the ages of one answer; a watch has those of each moment.
func (f *form) ages() *codec.Ages {
	if f.agesOnce == nil {
		f.agesOnce = codec.NewAges(f.api.Now())
	}
	return f.agesOnce
}

// streamType is the Content-Type of a watch.
func (f *form) streamType() string {
	switch {
	case f.proto():
		return api.MediaProtobuf + ";stream=watch"
	case f.cbor():
		return api.MediaCBORSequence
	}
	return f.Media
}

// appendEvent appends the frame of a watch event. first tells whether it is the
// stream's first, which carries a table's columns.
func (f *form) appendEvent(dst []byte, t codec.EventType, s shown, first bool) ([]byte, error) {
	if f.cbor() {
		return f.appendCBOREvent(dst, t, s, first)
	}
	switch {
	case f.proto() && f.partial():
		return f.coder.AppendPartialProtoFrame(dst, t, f.MetaVersion, s.Item)
	case f.proto():
		return f.coder.AppendProtoFrame(dst, t, s.Item)
	case f.As == negotiate.Table:
		row, err := f.row(s)
		if err != nil {
			return nil, err
		}
		dst = appendTypeHead(dst, t.String())
		dst = f.coder.AppendTableHead(dst, f.MetaVersion, metav1.ListMeta{ResourceVersion: fmt.Sprint(s.Revision)}, first)
		if dst, err = row.Append(dst, codec.NewAges(f.api.Now())); err != nil {
			return nil, err
		}
		return append(dst, "]}}\n"...), nil
	}
	frame, from, err := f.frame(s, t == codec.Deleted)
	if err != nil {
		return nil, err
	}
	return frame.Retyped(dst, from, t), nil
}

// sharedEvent returns the kept frame of an event when it can be written as it
// is, without copying.
func (f *form) sharedEvent(t codec.EventType, s shown) ([]byte, bool) {
	if f.proto() || f.cbor() || f.As == negotiate.Table || s.entry == nil {
		return nil, false
	}
	frame, from, err := f.frame(s, t == codec.Deleted)
	if err != nil || from != t {
		return nil, false
	}
	return frame, true
}

func appendTypeHead(dst []byte, typ string) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, typ...)
	return append(dst, `","object":`...)
}

// bookmark makes the frame that tells how far the stream has come.
func (f *form) bookmark(revision int64, initialEnd bool) ([]byte, error) {
	meta := metav1.ObjectMeta{ResourceVersion: fmt.Sprint(revision)}
	if initialEnd {
		meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	}
	if f.As == negotiate.Table {
		b := appendTypeHead(nil, "BOOKMARK")
		b = f.coder.AppendTableHead(b, f.MetaVersion, metav1.ListMeta{ResourceVersion: fmt.Sprint(revision)}, false)
		b = append(b, "]}}\n"...)
		if f.cbor() {
			return codec.JSONToCBOR(b)
		}
		return b, nil
	}
	if f.partial() {
		obj := &metav1.PartialObjectMetadata{ObjectMeta: meta}
		return f.wrap("BOOKMARK", obj, metav1.SchemeGroupVersion.WithKind(codec.PartialKind))
	}
	obj := f.New()
	o, ok := obj.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("%T has no metadata", obj)
	}
	o.SetResourceVersion(meta.ResourceVersion)
	o.SetAnnotations(meta.Annotations)
	return f.wrap("BOOKMARK", obj, f.GVK())
}

// errorFrame makes the frame that ends a stream with an error.
func (f *form) errorFrame(err error) ([]byte, error) {
	return f.wrap("ERROR", statusOf(err), codec.StatusGVK)
}

// wrap makes the frame of an event whose object is no stored one.
func (f *form) wrap(typ string, obj runtime.Object, gvk schema.GroupVersionKind) ([]byte, error) {
	b, err := f.api.Config.Codec.Encode(obj, gvk, f.Media, false)
	if err != nil {
		return nil, err
	}
	switch {
	case f.proto():
		return codec.WrapProtoFrame(typ, b), nil
	case f.cbor():
		return codec.AppendCBOREvent(nil, typ, b), nil
	}
	out := appendTypeHead(nil, typ)
	out = append(out, bytes.TrimRight(b, "\n")...)
	return append(out, "}\n"...), nil
}
