package represent

import (
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec"
	"binnacle/services/apiserver/internal/compress"
	"binnacle/services/apiserver/internal/negotiate"
	"binnacle/services/apiserver/internal/served"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/watchcache"
)

// Shown is an object to be represented: a cache entry, which keeps what was
// encoded, or just a value as it is stored.
type Shown struct {
	codec.Item
	Entry *watchcache.Entry
}

// Of shows a value as it is stored.
func Of(i codec.Item) Shown { return Shown{Item: i} }

// Entry shows an entry of the cache.
func Entry(e *watchcache.Entry) Shown {
	return Shown{Item: codec.Item{Stored: e.Stored(), Revision: e.Revision}, Entry: e}
}

// Answers makes forms.
type Answers struct {
	Responder
	// Compress shares compressed parts of lists; nil never compresses.
	Compress *compress.Cache
	// Conversions are shared by all answers.
	Conversions *Conversions
	// Now is the clock that ages are told by.
	Now func() time.Time
}

// Form is the representation of an answer: a media type, and the object itself,
// its metadata, or a table row. YAML and indented JSON are made from JSON. It is
// for one answer.
type Form struct {
	negotiate.Choice
	res     *served.Resource
	answers *Answers
	include codec.Include
	// agesOnce are the ages of an answer that is no stream.
	agesOnce *codec.Ages
	// docs are what entries that are shown next were converted to.
	docs map[*watchcache.Entry][]byte
}

// ForObject chooses the form of an answer with one object, ForList of one with a
// collection, ForStream of a watch. Errors are a 406, or a 400 for a parameter.
func (a *Answers) ForObject(r *http.Request, res *served.Resource) (*Form, error) {
	return a.negotiate(r, res, negotiate.PartialObject)
}

// ForList: see ForObject.
func (a *Answers) ForList(r *http.Request, res *served.Resource) (*Form, error) {
	return a.negotiate(r, res, negotiate.PartialObjectList)
}

func (a *Answers) negotiate(r *http.Request, res *served.Resource, partial negotiate.As) (*Form, error) {
	choice, ok := a.Media.Accept(r, negotiate.Table, partial)
	if ok && res.Document != nil && choice.Media == api.MediaProtobuf && choice.As != partial {
		choice, ok = negotiate.AcceptOf(r, a.Media.Documents(), negotiate.Table, partial)
	}
	if !ok {
		return nil, status.NotAcceptable(a.Media.Objects())
	}
	return a.form(r, res, choice)
}

// ForStream: see ForObject.
func (a *Answers) ForStream(r *http.Request, res *served.Resource) (*Form, error) {
	forms := []negotiate.As{negotiate.Table, negotiate.PartialObject, negotiate.PartialObjectList}
	choice, ok := a.Media.AcceptStream(r, forms...)
	if ok && res.Document != nil && choice.Media == api.MediaProtobuf && choice.As != negotiate.PartialObject && choice.As != negotiate.PartialObjectList {
		choice, ok = negotiate.AcceptOf(r, a.Media.DocumentStreams(), forms...)
	}
	if !ok && res.Document != nil {
		return nil, status.NotAcceptable(a.Media.Objects())
	}
	if !ok {
		return nil, status.NotAcceptable(a.Media.Streams())
	}
	return a.form(r, res, choice)
}

// form checks what the form chosen needs beyond the header.
func (a *Answers) form(r *http.Request, res *served.Resource, choice negotiate.Choice) (*Form, error) {
	f := &Form{Choice: choice, res: res, answers: a}
	if choice.As == negotiate.Table {
		if choice.Media == api.MediaProtobuf {
			return nil, status.NotAcceptable(a.Media.Objects())
		}
		s := r.URL.Query().Get("includeObject")
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
	keepConverted
	keepEach // number of forms above
)

func (f *Form) keep(what watchcache.Form) watchcache.Form {
	return what + keepEach*watchcache.Form(f.res.Slot)
}

// Binary tells whether the answer is no text.
func (f *Form) Binary() bool { return f.proto() || f.cbor() }

// proto tells whether the answer is protobuf; all else comes from JSON.
func (f *Form) proto() bool { return f.Media == api.MediaProtobuf }

func (f *Form) cbor() bool { return f.Media == api.MediaCBOR }

func (f *Form) partial() bool {
	return f.As == negotiate.PartialObject || f.As == negotiate.PartialObjectList
}

// natural is the event type that an entry's kept frame has.
func natural(s Shown) codec.EventType {
	if s.Entry != nil && s.Entry.CreateRevision != s.Revision {
		return codec.Modified
	}
	return codec.Added
}

// frame returns the JSON frame of an object, or of its metadata, with the event
// type that it was encoded for.
func (f *Form) frame(s Shown, deleted bool) (codec.Frame, codec.EventType, error) {
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
			return f.res.Coder.PartialFrame(t, f.MetaVersion, s.Item)
		}
		return f.res.Coder.JSONFrame(t, s.Item)
	}
	if s.Entry == nil || f.partial() && f.MetaVersion != "v1" {
		b, err := make()
		return b, t, err
	}
	b, err := s.Entry.Encoding(f.keep(what), func(*watchcache.Entry) ([]byte, error) { return make() })
	return b, t, err
}

// row returns the table row of an object.
func (f *Form) row(s Shown) (codec.Row, error) {
	if s.Entry == nil || f.include != codec.IncludeMetadata || f.MetaVersion != "v1" {
		return f.res.Coder.TableRow(s.Item, f.include, f.MetaVersion)
	}
	return s.Entry.Encoding(f.keep(keepRow), func(*watchcache.Entry) ([]byte, error) {
		return f.res.Coder.TableRow(s.Item, f.include, f.MetaVersion)
	})
}

// appendJSON appends the JSON of an object's form.
func (f *Form) appendJSON(dst []byte, s Shown) ([]byte, error) {
	if f.As == negotiate.Table {
		row, err := f.row(s)
		if err != nil {
			return nil, err
		}
		dst = f.res.Coder.AppendTableHead(dst, f.MetaVersion, metav1.ListMeta{ResourceVersion: codec.FormatRevision(s.Revision)}, true)
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

// kindOfList is the kind and apiVersion of a list in this form.
func (f *Form) kindOfList() (kind, apiVersion string) {
	if f.partial() {
		return codec.PartialListKind, codec.MetaVersion(f.MetaVersion)
	}
	return f.res.ListKind(), f.res.GroupVersion().String()
}

// appendItem appends an item of a list in JSON, or a row of a table.
func (f *Form) appendItem(dst []byte, s Shown) ([]byte, error) {
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
	return f.res.Coder.AppendItem(dst, frame, t), nil
}

// ages writes the ages of one answer; a watch has those of each moment.
func (f *Form) ages() *codec.Ages {
	if f.agesOnce == nil {
		f.agesOnce = codec.NewAges(f.answers.Now())
	}
	return f.agesOnce
}
