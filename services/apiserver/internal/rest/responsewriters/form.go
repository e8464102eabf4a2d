package responsewriters

import (
	"context"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/cache/encodings"
	"binnacle/services/apiserver/internal/cache/objects"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/codec/negotiation"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/compress"
	"binnacle/services/apiserver/internal/status"
)

// Encodable is an object to encode: a cache entry, which keeps encodings, or a stored value. The
// value of an entry is read on demand; see openItem.
type Encodable struct {
	codec.Item
	Entry *objects.Entry
}

// FromStored returns a stored value to encode.
func FromStored(item codec.Item) Encodable { return Encodable{Item: item} }

// FromEntry returns an entry of the cache to encode.
func FromEntry(entry *objects.Entry) Encodable {
	return Encodable{Item: codec.Item{Revision: entry.Revision, Positions: entry.Positions()}, Entry: entry}
}

// openItem returns the object with its value. The value is valid until the returned PooledValue is
// released.
func (encodable Encodable) openItem() (codec.Item, objects.PooledValue) {
	if encodable.Stored != nil || encodable.Entry == nil {
		return encodable.Item, objects.PooledValue{}
	}
	borrowed := encodable.Entry.Borrow()
	encodable.Stored = borrowed.Value
	return encodable.Item, borrowed
}

// storedSize returns the size of the stored value in bytes.
func (encodable Encodable) storedSize() int {
	if encodable.Stored != nil || encodable.Entry == nil {
		return len(encodable.Stored)
	}
	return encodable.Entry.Size()
}

// Responses creates the encoders of responses. It is shared by all requests.
type Responses struct {
	Responder
	// Compress shares compressed segments of lists. Nil disables compression.
	Compress *compress.Cache
	// Conversions are shared by all responses.
	Conversions *Conversions
	// Limiter limits long responses. Slow limits responses in forms that are slow to encode.
	Limiter Limiter
	Slow    SlowLimiter
	// Now is the clock that ages are computed from.
	Now func() time.Time
}

// limiterFor returns the limiter of a request whose form is slow to encode, or nil. It first calls
// request.Started, which releases the limits that the request still holds.
func (a *Responses) limiterFor(r *http.Request) Limiter {
	if a.Slow == nil {
		return nil
	}
	request.Started(r.Context())
	return &slowLimit{SlowLimiter: a.Slow, request: r}
}

// Encoder is the representation of a response: a media type, and the object itself, its metadata,
// or a table row. YAML and indented JSON are converted from JSON. An Encoder is used for one
// response.
type Encoder struct {
	negotiation.Choice
	res           *apiset.Resource
	writers       *Responses
	includeObject codec.Include
	// responseAges holds the ages of a response other than a watch.
	responseAges *codec.AgeFormatter
	// keepsItems reports whether the encodings of list items are kept while memory is available.
	keepsItems bool
	// memo holds data that the objects of a list share, while a list is written.
	memo *codec.Memo
	// docs holds the converted documents of the entries that are encoded next.
	docs map[*objects.Entry][]byte
	// release releases docs; nil if there are none.
	release func()
	// err is the error that replaces the object or list, if the request has no other error. As in
	// Kubernetes, a write takes effect even so.
	err error
}

// ForObject chooses the form of a response with one object or a view of it; sub may be nil. An
// error is 406. A form that does not fit the response, or an invalid parameter of it, is an error
// when the response is written.
func (a *Responses) ForObject(r *http.Request, res *apiset.Resource, sub *registry.Subresource) (*Encoder, error) {
	if sub != nil && sub.NoTable {
		return a.newEncoder(r, res, negotiation.PartialObject, negotiation.PartialObject, negotiation.PartialObjectList)
	}
	return a.newEncoder(r, res, negotiation.PartialObject, allRepresentations...)
}

// allRepresentations lists the forms of objects and lists.
var allRepresentations = []negotiation.Representation{negotiation.Table, negotiation.PartialObject, negotiation.PartialObjectList}

// ForList chooses the form of a collection; see ForObject.
func (a *Responses) ForList(r *http.Request, res *apiset.Resource) (*Encoder, error) {
	return a.newEncoder(r, res, negotiation.PartialObjectList, allRepresentations...)
}

// notList returns the error of a request for the metadata of a list's items.
func notList(internalName string) error {
	return status.NotInForm("you requested PartialObjectMetadataList, but the requested object is not a list (" + internalName + ")")
}

// newEncoder returns the encoder of the negotiated form. partial is the metadata form that fits the
// response: of an object or of a list.
func (a *Responses) newEncoder(
	r *http.Request,
	res *apiset.Resource,
	partial negotiation.Representation,
	forms ...negotiation.Representation,
) (*Encoder, error) {
	choice, ok := a.Media.Accept(r, forms...)
	// Objects without a protobuf form are served in another accepted media type.
	if ok && !res.HasProtobuf() && choice.Media == api.MediaProtobuf && choice.Representation == negotiation.Itself {
		choice, ok = negotiation.AcceptOf(r, a.Media.Documents(), forms...)
	}
	if !ok {
		return nil, status.NotAcceptable(a.Media.Objects())
	}
	f := a.encoderFor(r, res, choice)
	if choice.Representation == negotiation.PartialObject && partial == negotiation.PartialObjectList {
		f.err = status.NotInForm("you requested PartialObjectMetadata, but the requested object is a list (" + res.InternalName(true) + ")")
	}
	if choice.Representation == negotiation.PartialObjectList && partial == negotiation.PartialObject {
		f.err = notList(res.InternalName(false))
	}
	return f, nil
}

// ForStream chooses the form of a watch; see ForObject. A media type without streams,
// such as YAML, is an error when the watch starts.
func (a *Responses) ForStream(r *http.Request, res *apiset.Resource) (*Encoder, error) {
	choice, ok := a.Media.AcceptStream(r, allRepresentations...)
	// Of objects without a protobuf form, only the metadata has one.
	isMetadata := choice.Representation == negotiation.PartialObject || choice.Representation == negotiation.PartialObjectList
	if ok && !isMetadata && choice.Media == api.MediaProtobuf && !res.HasProtobuf() {
		choice, ok = negotiation.AcceptOf(r, a.Media.DocumentStreams(), allRepresentations...)
	}
	if !ok {
		return nil, status.NotAcceptable(a.Media.Objects())
	}
	f := a.encoderFor(r, res, choice)
	if choice.Media == api.MediaYAML {
		f.err = status.NotAcceptable(a.Media.Streams())
	}
	return f, nil
}

// encoderFor returns the encoder of a negotiated form, with the query parameters that concern it.
func (a *Responses) encoderFor(r *http.Request, res *apiset.Resource, choice negotiation.Choice) *Encoder {
	e := &Encoder{Choice: choice, res: res, writers: a}
	if choice.Representation == negotiation.Table {
		e.includeObject, e.err = includeOf(r)
	}
	return e
}

// includeOf returns the parameter includeObject of a Table.
func includeOf(r *http.Request) (codec.Include, error) {
	s, _ := api.Parameter(r.URL.RawQuery, "includeObject")
	include, ok := codec.ParseInclude(s)
	if !ok {
		err := field.Invalid(field.NewPath("includeObject"), s, "must be 'Metadata', 'Object', 'None', or empty")
		return 0, apierrors.NewBadRequest("Unable to convert to Table as requested: " + err.Error())
	}
	return include, nil
}

// Err returns the error that replaces the response, or nil.
func (e *Encoder) Err() error { return e.err }

// Kinds of encodings that entries keep. Definitions that share a store have separate keys; see
// encodingKey.
const (
	keepFrame encodings.ID = iota + 1
	keepDeleted
	keepPartial
	keepPartialDeleted
	keepRow
	keepMessage
	keepPartialMessage
	keepCBOR
	keepPartialCBOR
	keepConverted
	keptForms // one more than the last kind
)

// encodingKey returns the key under which an entry keeps an encoding for this form.
func (e *Encoder) encodingKey(encoding encodings.ID) encodings.ID {
	const _ encodings.ID = keptForms * apiset.MaxSlots // compile-time check that the forms fit
	return encoding + keptForms*encodings.ID(e.res.Slot)
}

// IsBinary reports whether the response is binary.
func (e *Encoder) IsBinary() bool { return e.isProtobuf() || e.isCBOR() }

// FrameHeader returns the length in bytes of the header of each watch event that holds the event's
// length.
func (e *Encoder) FrameHeader() int {
	if e.isProtobuf() {
		return codec.FrameHeader
	}
	return 0
}

// isProtobuf reports whether the response is protobuf. All other media types are converted from
// JSON.
func (e *Encoder) isProtobuf() bool { return e.Media == api.MediaProtobuf }

// isCBOR reports whether the response is CBOR.
func (e *Encoder) isCBOR() bool { return e.Media == api.MediaCBOR }

// hasOnlyMetadata reports whether the response has only the metadata of objects.
func (e *Encoder) hasOnlyMetadata() bool {
	return e.Representation == negotiation.PartialObject || e.Representation == negotiation.PartialObjectList
}

// Values of the parameter partial: whether the whole object is encoded, or only its metadata.
const (
	wholeObject  = false
	onlyMetadata = true
)

// keptType returns the event type of an entry's kept frame.
func keptType(encodable Encodable) codec.EventType {
	if encodable.Entry != nil && encodable.Entry.CreateRevision != encodable.Revision {
		return codec.Modified
	}
	return codec.Added
}

// encodeFrame returns the JSON frame of an object, or of its metadata, and the event type that it
// was encoded with.
func (e *Encoder) encodeFrame(encodable Encodable, deleted, partial bool) (codec.Frame, codec.EventType, error) {
	eventType := keptType(encodable)
	if deleted {
		eventType = codec.Deleted
	}
	encode := func() ([]byte, error) {
		item, borrowed := encodable.openItem()
		defer borrowed.Release()
		if partial {
			return e.res.Coder.PartialFrame(eventType, e.MetaVersion, item)
		}
		return e.res.Coder.JSONFrame(eventType, item)
	}
	if encodable.Entry == nil || partial && e.MetaVersion != "v1" {
		b, err := encode()
		return b, eventType, err
	}
	b, err := encodable.Entry.Encoding(e.frameKey(deleted, partial), func(*objects.Entry) ([]byte, error) { return encode() })
	return b, eventType, err
}

// frameKey returns the key of the kept frame of an object, or of its metadata.
func (e *Encoder) frameKey(deleted, partial bool) encodings.ID {
	encoding := keepFrame
	if partial {
		encoding = keepPartial
	}
	if deleted {
		encoding++ // keepDeleted, keepPartialDeleted
	}
	return e.encodingKey(encoding)
}

// cachedFrame returns the kept frame of an object, or of its metadata, if there is one.
func (e *Encoder) cachedFrame(encodable Encodable, partial bool) (codec.Frame, bool) {
	if encodable.Entry == nil || partial && e.MetaVersion != "v1" {
		return nil, false
	}
	return encodable.Entry.Encoded(e.frameKey(false, partial))
}

// encodeCells returns the cells of an object's table row.
func (e *Encoder) encodeCells(encodable Encodable) (codec.Row, error) {
	encode := func(*objects.Entry) ([]byte, error) {
		item, borrowed := encodable.openItem()
		defer borrowed.Release()
		return e.res.Coder.TableCells(item)
	}
	if encodable.Entry == nil {
		return encode(nil)
	}
	return encodable.Entry.Encoding(e.encodingKey(keepRow), encode)
}

// appendRow appends the table row of an object. keep is as in appendObject.
func (e *Encoder) appendRow(dst []byte, encodable Encodable, ages *codec.AgeFormatter, keep bool) ([]byte, error) {
	row, err := e.encodeCells(encodable)
	if err != nil {
		return nil, err
	}
	if dst, err = row.Append(dst, ages); err != nil {
		return nil, err
	}
	dst = append(dst, `,"object":`...)
	switch e.includeObject {
	case codec.IncludeNone:
		dst = append(dst, "null"...)
	case codec.IncludeObject:
		dst, err = e.appendObject(dst, encodable, wholeObject, keep)
	default:
		dst, err = e.appendObject(dst, encodable, onlyMetadata, keep)
	}
	return append(dst, '}'), err
}

// mayKeep reports whether the encoding of an object may be kept for later requests, because memory
// is available.
func mayKeep(encodable Encodable) bool {
	return encodable.Entry != nil && encodable.Entry.HasSpareMemory()
}

// appendObject appends the JSON of an object, or of its metadata: the kept encoding, or else one
// made from the stored value. With keep, a new encoding is kept if memory is available.
func (e *Encoder) appendObject(dst []byte, encodable Encodable, partial, keep bool) ([]byte, error) {
	if frame, ok := e.cachedFrame(encodable, partial); ok {
		return append(dst, frame.Object(keptType(encodable))...), nil
	}
	// 1. Without an encoding to keep, convert the stored value directly if that is possible.
	if !keep || !mayKeep(encodable) {
		item, borrowed := encodable.openItem()
		var ok bool
		if partial {
			dst, ok = e.res.Coder.AppendPartial(dst, e.MetaVersion, item, e.memo)
		} else {
			dst, ok = e.res.Coder.AppendStored(dst, item, e.memo)
		}
		borrowed.Release()
		if ok {
			return dst, nil
		}
	}
	// 2. Otherwise make a frame, which the entry keeps.
	frame, t, err := e.encodeFrame(encodable, false /* deleted */, partial)
	if err != nil {
		return nil, err
	}
	return append(dst, frame.Object(t)...), nil
}

// appendJSON appends the JSON of an object in its form.
func (e *Encoder) appendJSON(dst []byte, encodable Encodable) ([]byte, error) {
	if e.Representation != negotiation.Table {
		return e.appendObject(dst, encodable, e.hasOnlyMetadata(), true /* keep */)
	}
	dst = e.res.Coder.AppendTableHead(dst, e.MetaVersion, metav1.ListMeta{ResourceVersion: codec.FormatRevision(encodable.Revision)}, true)
	dst, err := e.appendRow(dst, encodable, e.ageFormatter(), true /* keep */)
	if err != nil {
		return nil, err
	}
	return append(dst, "]}"...), nil
}

// ageFormatter returns the formatter of ages in one response. A watch has one for each event
// instead.
func (e *Encoder) ageFormatter() *codec.AgeFormatter {
	if e.responseAges == nil {
		e.responseAges = codec.NewAgeFormatter(e.writers.Now())
	}
	return e.responseAges
}

// ScanLimiter returns the ScanLimiter of a request. Its waits end with ctx. The caller calls
// Release at the end.
func (a *Responses) ScanLimiter(ctx context.Context) *ScanLimiter {
	return &ScanLimiter{limiter: a.Limiter, ctx: ctx}
}
