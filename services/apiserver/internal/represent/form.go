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
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/served"
	"binnacle/services/apiserver/internal/status"
	"binnacle/services/apiserver/internal/watchcache"
)

// Shown is an object to be represented: a cache entry, which keeps what was
// encoded, or just a value as it is stored. That of an entry is read when it is needed, see open.
type Shown struct {
	codec.Item
	Entry *watchcache.Entry
}

// Of shows a value as it is stored.
func Of(i codec.Item) Shown { return Shown{Item: i} }

// Entry shows an entry of the cache.
func Entry(e *watchcache.Entry) Shown {
	return Shown{Item: codec.Item{Revision: e.Revision, Places: e.Places()}, Entry: e}
}

// open returns the object with its value, which is good until it is given back.
func (s Shown) open() (codec.Item, watchcache.Lent) {
	if s.Stored != nil || s.Entry == nil {
		return s.Item, watchcache.Lent{}
	}
	l := s.Entry.Lend()
	s.Stored = l.Value
	return s.Item, l
}

// size is that of the value as it is stored, in bytes.
func (s Shown) size() int {
	if s.Stored != nil || s.Entry == nil {
		return len(s.Stored)
	}
	return s.Entry.Size()
}

// Answers makes forms.
type Answers struct {
	Responder
	// Compress shares compressed parts of lists; nil never compresses.
	Compress *compress.Cache
	// Conversions are shared by all answers.
	Conversions *Conversions
	// Turns are those of long answers, Slow of what takes long to make.
	Turns Turns
	Slow  SlowTurns
	// Now is the clock that ages are told by.
	Now func() time.Time
}

// slow are the turns of a request that is shown in a form that takes long to make; nil where there are
// none. What it has done before is over: it has no turn for that any more.
func (a *Answers) slow(r *http.Request) Turns {
	if a.Slow == nil {
		return nil
	}
	request.Begun(r.Context())
	return &slowly{SlowTurns: a.Slow, request: r}
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
	// keeps tells that what is written of a list is kept while there is memory to spare.
	keeps bool
	// memo is what the objects of a list have in common, while one is written.
	memo *codec.Memo
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
	forms := []negotiate.As{negotiate.Table, negotiate.PartialObject, negotiate.PartialObjectList}
	choice, ok := a.Media.Accept(r, forms...)
	if ok && res.Document != nil && choice.Media == api.MediaProtobuf && (choice.As == negotiate.Itself || choice.As == negotiate.Table) {
		choice, ok = negotiate.AcceptOf(r, a.Media.Documents(), forms...)
	}
	if !ok {
		return nil, status.NotAcceptable(a.Media.Objects())
	}
	if choice.As == negotiate.PartialObject && partial == negotiate.PartialObjectList {
		return nil, status.NotInForm("you requested PartialObjectMetadata, but the requested object is a list")
	}
	if choice.As == negotiate.PartialObjectList && partial == negotiate.PartialObject {
		return nil, status.NotInForm("you requested PartialObjectMetadataList, but the requested object is not a list")
	}
	return a.form(r, res, choice)
}

// ForStream: see ForObject.
func (a *Answers) ForStream(r *http.Request, res *served.Resource) (*Form, error) {
	forms := []negotiate.As{negotiate.Table, negotiate.PartialObject, negotiate.PartialObjectList}
	choice, ok := a.Media.AcceptStream(r, forms...)
	protobuf := choice.Media == api.MediaProtobuf
	if ok && res.Document != nil && protobuf && choice.As != negotiate.PartialObject && choice.As != negotiate.PartialObjectList {
		choice, ok = negotiate.AcceptOf(r, a.Media.DocumentStreams(), forms...)
	}
	if ok {
		return a.form(r, res, choice)
	}
	// The message names the media types of streams if objects have the media type.
	if _, object := a.Media.Accept(r, forms...); object && !protobuf {
		return nil, status.NotAcceptable(a.Media.Streams())
	}
	return nil, status.NotAcceptable(a.Media.Objects())
}

// form checks what the form chosen needs beyond the header.
func (a *Answers) form(r *http.Request, res *served.Resource, choice negotiate.Choice) (*Form, error) {
	f := &Form{Choice: choice, res: res, answers: a}
	if choice.As == negotiate.Table {
		if choice.Media == api.MediaProtobuf {
			return nil, status.NotAcceptable(a.Media.Objects())
		}
		s, _ := api.Parameter(r.URL.RawQuery, "includeObject")
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
	const _ watchcache.Form = keepEach * served.MaxSlots // they fit
	return what + keepEach*watchcache.Form(f.res.Slot)
}

// Binary tells whether the answer is no text.
func (f *Form) Binary() bool { return f.proto() || f.cbor() }

// FrameHeader returns the number of bytes at the start of each event of a watch that
// give the event's length.
func (f *Form) FrameHeader() int {
	if f.proto() {
		return codec.FrameHeader
	}
	return 0
}

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
func (f *Form) frame(s Shown, deleted, partial bool) (codec.Frame, codec.EventType, error) {
	t := natural(s)
	if deleted {
		t = codec.Deleted
	}
	make := func() ([]byte, error) {
		it, lent := s.open()
		defer lent.Back()
		if partial {
			return f.res.Coder.PartialFrame(t, f.MetaVersion, it)
		}
		return f.res.Coder.JSONFrame(t, it)
	}
	if s.Entry == nil || partial && f.MetaVersion != "v1" {
		b, err := make()
		return b, t, err
	}
	b, err := s.Entry.Encoding(f.keptFrame(deleted, partial), func(*watchcache.Entry) ([]byte, error) { return make() })
	return b, t, err
}

// keptFrame names the kept frame of an object, or of its metadata.
func (f *Form) keptFrame(deleted, partial bool) watchcache.Form {
	what := keepFrame
	if partial {
		what = keepPartial
	}
	if deleted {
		what++
	}
	return f.keep(what)
}

// kept returns the kept frame of an object, or of its metadata, if there is one.
func (f *Form) kept(s Shown, partial bool) (codec.Frame, bool) {
	if s.Entry == nil || partial && f.MetaVersion != "v1" {
		return nil, false
	}
	return s.Entry.Encoded(f.keptFrame(false, partial))
}

// cells returns the cells of an object's table row.
func (f *Form) cells(s Shown) (codec.Row, error) {
	make := func(*watchcache.Entry) ([]byte, error) {
		it, lent := s.open()
		defer lent.Back()
		return f.res.Coder.TableCells(it)
	}
	if s.Entry == nil {
		return make(nil)
	}
	return s.Entry.Encoding(f.keep(keepRow), make)
}

// appendRow appends the table row of an object. keep is that of appendObject.
func (f *Form) appendRow(dst []byte, s Shown, ages *codec.Ages, keep bool) ([]byte, error) {
	row, err := f.cells(s)
	if err != nil {
		return nil, err
	}
	if dst, err = row.Append(dst, ages); err != nil {
		return nil, err
	}
	dst = append(dst, `,"object":`...)
	switch f.include {
	case codec.IncludeNone:
		dst = append(dst, "null"...)
	case codec.IncludeObject:
		dst, err = f.appendObject(dst, s, false, keep)
	default:
		dst, err = f.appendObject(dst, s, true, keep)
	}
	return append(dst, '}'), err
}

// spare tells that what is written of an object may be kept for the next who asks: there
// is memory that nothing else has to leave for it.
func spare(s Shown) bool { return s.Entry != nil && s.Entry.Spare() }

// appendObject appends the JSON of an object, or of its metadata: what is kept, else
// written from what is stored. With keep it is kept then while there is memory to spare.
func (f *Form) appendObject(dst []byte, s Shown, partial, keep bool) ([]byte, error) {
	if frame, ok := f.kept(s, partial); ok {
		return append(dst, frame.Object(natural(s))...), nil
	}
	if !keep || !spare(s) {
		it, lent := s.open()
		var ok bool
		if partial {
			dst, ok = f.res.Coder.AppendPartial(dst, f.MetaVersion, it, f.memo)
		} else {
			dst, ok = f.res.Coder.AppendStored(dst, it, f.memo)
		}
		lent.Back()
		if ok {
			return dst, nil
		}
	}
	frame, t, err := f.frame(s, false, partial)
	if err != nil {
		return nil, err
	}
	return append(dst, frame.Object(t)...), nil
}

// appendJSON appends the JSON of an object's form.
func (f *Form) appendJSON(dst []byte, s Shown) ([]byte, error) {
	if f.As != negotiate.Table {
		return f.appendObject(dst, s, f.partial(), true)
	}
	dst = f.res.Coder.AppendTableHead(dst, f.MetaVersion, metav1.ListMeta{ResourceVersion: codec.FormatRevision(s.Revision)}, true)
	dst, err := f.appendRow(dst, s, f.ages(), true)
	if err != nil {
		return nil, err
	}
	return append(dst, "]}"...), nil
}

// kindOfList is the kind and apiVersion of a list in this form.
func (f *Form) kindOfList() (kind, apiVersion string) {
	if f.partial() {
		return codec.PartialListKind, codec.MetaVersion(f.MetaVersion)
	}
	return f.res.ListKind(), f.res.GroupVersion().String()
}

// addItem sends an item of a list in JSON, or a row of a table. A large one is kept, and
// not copied: each answer that waits for its client would hold a copy.
func (f *Form) addItem(p *pieces, s Shown) (err error) {
	if f.As == negotiate.Table || s.size() < largeItem {
		p.buf, err = f.appendItem(p.buf, s)
		return p.sent(err)
	}
	frame, t, err := f.frame(s, false, f.partial())
	if err != nil {
		return err
	}
	head, rest := "", frame.Object(t)
	if !f.partial() {
		head, rest = f.res.Coder.Item(frame, t)
	}
	p.buf = append(p.buf, head...)
	return p.share(rest)
}

// few is how many objects a list has at most that keeps what it wrote, as a read of one
// of them does: those of a node are asked for again and again.
const few = 128

// appendItem appends an item of a list in JSON, or a row of a table. Longer lists are
// written from what is stored, and keep nothing of what can be: it would be more than
// all that others keep, and mostly be read but once.
func (f *Form) appendItem(dst []byte, s Shown) ([]byte, error) {
	switch {
	case f.As == negotiate.Table:
		return f.appendRow(dst, s, f.ages(), f.keeps)
	case f.partial():
		return f.appendObject(dst, s, true, f.keeps)
	}
	if frame, ok := f.kept(s, false); ok {
		return f.res.Coder.AppendItem(dst, frame, natural(s)), nil
	}
	if !f.keeps || !spare(s) {
		it, lent := s.open()
		var ok bool
		dst, ok = f.res.Coder.AppendStoredItem(dst, it, f.memo)
		lent.Back()
		if ok {
			return dst, nil
		}
	}
	frame, t, err := f.frame(s, false, false)
	if err != nil {
		return nil, err
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
