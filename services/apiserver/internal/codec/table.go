package codec

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/codec/wire"
	"binnacle/services/apiserver/internal/json/jsontext"
	"binnacle/services/apiserver/internal/json/objectmeta"
	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// Include states which part of an object a table row contains.
type Include uint8

// The values of includeObject.
const (
	IncludeMetadata Include = iota
	IncludeNone
	IncludeObject
)

// ParseInclude parses the query parameter includeObject.
func ParseInclude(s string) (Include, bool) {
	switch s {
	case "", "Metadata":
		return IncludeMetadata, true
	case "None":
		return IncludeNone, true
	case "Object":
		return IncludeObject, true
	}
	return 0, false
}

// TableKind is the kind of the table form.
const TableKind = "Table"

// defaultColumns returns the columns of kinds that declare none.
func defaultColumns() []registry.Column {
	doc := metav1.ObjectMeta{}.SwaggerDoc()
	return []registry.Column{
		{
			Name:        "Name",
			Type:        "string",
			Format:      "name",
			Description: doc["name"],
			Cell:        func(o registry.Object) any { return o.GetName() },
		},
		{
			Name:        "Created At",
			Type:        "date",
			Description: doc["creationTimestamp"],
			Cell: func(o registry.Object) any {
				return o.GetCreationTimestamp().UTC().Format(time.RFC3339)
			},
		},
	}
}

// EmptyRows returns the JSON of the rows of an empty table, which is null for kinds that declare no
// columns.
func (k *KindCodec) EmptyRows() string {
	if k.Kind.Presentation.Columns == nil {
		return "null"
	}
	return "[]"
}

// columns returns the declared columns of the kind, or the default ones.
func (k *KindCodec) columns() []registry.Column {
	if k.Kind.Presentation.Columns != nil {
		return k.Kind.Presentation.Columns
	}
	return defaultColumns()
}

// AppendTableHead appends the start of a table's JSON, up to its rows. If columns is false, as
// for later events of a watch, it omits the column definitions.
func (k *KindCodec) AppendTableHead(dst []byte, version string, meta metav1.ListMeta, columns bool) []byte {
	dst = append(dst, fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":`, TableKind, MetaVersion(version))...)
	m, _ := json.Marshal(meta) // strings and a number
	dst = append(dst, m...)
	dst = append(dst, `,"columnDefinitions":`...)
	if !columns {
		return append(dst, `null,"rows":[`...)
	}
	cols := k.columns()
	defs := make([]metav1.TableColumnDefinition, 0, len(cols))
	for _, column := range cols {
		if column.Name != "" {
			defs = append(defs, metav1.TableColumnDefinition{
				Name:        column.Name,
				Type:        column.Type,
				Format:      column.Format,
				Description: column.Description,
				Priority:    column.Priority,
			})
		}
	}
	d, _ := json.Marshal(defs) // strings and numbers
	dst = append(dst, d...)
	return append(dst, `,"rows":[`...)
}

// A Row is the start of a table row's JSON, up to the object, without the ages. An age depends on
// the time of the response. Append inserts it into the hole that the JSON has for it.
//
// The format is: the number of holes, for each hole its offset in the JSON and the Unix time from
// which the age counts (0 for unknown), and the JSON. The numbers are varints.
type Row []byte

// rowCapacity is the initial capacity in bytes of a row's JSON. Most rows are smaller.
const rowCapacity = 256

// TableCells encodes the cells and conditions of an object as a Row.
func (k *KindCodec) TableCells(it Item) (Row, error) {
	cells, conditions, err := k.cells(it)
	if err != nil {
		return nil, err
	}
	var holes []byte
	holeCount := 0
	body := append(make([]byte, 0, rowCapacity), `{"cells":[`...)
	for i, cell := range cells {
		if i > 0 {
			body = append(body, ',')
		}
		switch v := cell.(type) {
		case registry.Age:
			body = append(body, '"')
			body = jsontext.AppendContent(body, v.Prefix)
			holes = binary.AppendUvarint(holes, uint64(len(body)))
			sec := int64(0)
			if !v.Since.IsZero() {
				sec = v.Since.Unix()
			}
			holes = binary.AppendVarint(holes, sec)
			holeCount++
			body = append(jsontext.AppendContent(body, v.Suffix), '"')
		case string:
			body = jsontext.AppendString(body, v)
		default:
			data, err := json.Marshal(v)
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", k.columns()[i].Name, err)
			}
			body = append(body, data...)
		}
	}
	body = append(body, ']')
	if len(conditions) > 0 {
		c, err := json.Marshal(conditions)
		if err != nil {
			return nil, err
		}
		body = append(append(body, `,"conditions":`...), c...)
	}
	row := binary.AppendUvarint(make([]byte, 0, len(holes)+len(body)+2), uint64(holeCount))
	row = append(row, holes...)
	return append(row, body...), nil
}

// cells returns the cells of an object, and its conditions.
func (k *KindCodec) cells(item Item) (cells []any, conditions []metav1.TableRowCondition, err error) {
	if k.Kind.Document != nil && k.Kind.Document.TableRow != nil {
		cells, err = k.cellsOfDocument(item)
		return cells, nil, err
	}
	readCells := func(object registry.Object) {
		columns := k.columns()
		cells = make([]any, len(columns))
		for i, c := range columns {
			cells[i] = c.Cell(object)
		}
		if k.Kind.Presentation.RowConditions != nil {
			conditions = k.Kind.Presentation.RowConditions(object)
		}
	}
	err = k.withRowObject(item, readCells)
	return cells, conditions, err
}

// withRowObject calls use with an object that has at least the fields that columns and conditions
// read.
func (k *KindCodec) withRowObject(item Item, use func(registry.Object)) error {
	if k.tableRows != nil && k.servedAsStored && wire.IsEnvelope(item.Stored) && !k.Kind.Presentation.ColumnsFromStored {
		return k.tableRows.withObject(k, item, use)
	}
	obj, err := k.decodeForTable(item)
	if err == nil {
		use(obj)
	}
	return err
}

// decodeForTable decodes a whole object, in the version that the columns read.
func (k *KindCodec) decodeForTable(item Item) (registry.Object, error) {
	if k.Kind.Presentation.ColumnsFromStored {
		return k.decodeAsStored(item.Stored)
	}
	return k.DecodeItem(context.Background(), item)
}

var errRow = errors.New("malformed table row")

// AgeFormatter formats ages relative to one time. It keeps the last text because neighbours in a
// list often have the same age.
type AgeFormatter struct {
	now  time.Time
	sec  int64
	text string
}

// NewAgeFormatter returns a formatter of ages at the time now.
func NewAgeFormatter(now time.Time) *AgeFormatter { return &AgeFormatter{now: now} }

// ageText returns the age of a Unix time as JSON text without quotes. The age of time 0 is
// <unknown>.
func (a *AgeFormatter) ageText(sec int64) string {
	if sec != a.sec || a.text == "" {
		a.sec = sec
		a.text = `\u003cunknown\u003e`
		if sec != 0 {
			a.text = duration.HumanDuration(a.now.Sub(time.Unix(sec, 0)))
		}
	}
	return a.text
}

// Append appends the row's JSON up to its object.
func (r Row) Append(dst []byte, ages *AgeFormatter) ([]byte, error) {
	length, width := binary.Uvarint(r)
	if width <= 0 || length > uint64(len(r)) {
		return nil, errRow
	}
	data := []byte(r[width:])
	type hole struct {
		at  int
		sec int64
	}
	var buffer [8]hole
	holes := buffer[:0]
	for range length {
		at, width := binary.Uvarint(data)
		if width <= 0 {
			return nil, errRow
		}
		sec, secWidth := binary.Varint(data[width:])
		if secWidth <= 0 {
			return nil, errRow
		}
		data = data[width+secWidth:]
		holes = append(holes, hole{int(at), sec})
	}
	copied := 0
	for _, h := range holes {
		if h.at < copied || h.at > len(data) {
			return nil, errRow
		}
		dst = append(dst, data[copied:h.at]...)
		copied = h.at
		dst = append(dst, ages.ageText(h.sec)...)
	}
	return append(dst, data[copied:]...), nil
}

// Names of the metadata-only form.
const (
	PartialKind     = "PartialObjectMetadata"
	PartialListKind = "PartialObjectMetadataList"
	metaGroup       = "meta." + api.Domain
)

// MetaVersion returns the apiVersion of the forms of meta.k8s.io.
func MetaVersion(version string) string { return metaGroup + "/" + version }

// metadata decodes the metadata alone.
func (k *KindCodec) metadata(item Item) (*metav1.ObjectMeta, error) {
	var objectMeta metav1.ObjectMeta
	if wire.IsEnvelope(item.Stored) {
		raw, _, _, err := wire.OpenEnvelope(item.Stored)
		if err != nil {
			return nil, err
		}
		data, err := wire.Find(raw, wire.ObjectMetadata)
		if err != nil {
			return nil, err
		}
		if err := objectMeta.Unmarshal(data); err != nil {
			return nil, fmt.Errorf("metadata: %w", err)
		}
	} else {
		var object metav1.PartialObjectMetadata
		err := json.Unmarshal(item.Stored, &object)
		if k.Kind.Document != nil && (err != nil || object.Generation == 0) {
			object, err = decodeRepairedMetadata(item.Stored, err)
		}
		if err != nil {
			return nil, err
		}
		objectMeta = object.ObjectMeta
	}
	objectMeta.ResourceVersion = FormatRevision(item.Revision)
	return &objectMeta, nil
}

// decodeRepairedMetadata decodes the metadata of a stored document as Document.ToServed repairs it.
// It returns cause if the value is not a document.
func decodeRepairedMetadata(stored []byte, cause error) (metadata metav1.PartialObjectMetadata, err error) {
	doc, err := tape.Parse(stored)
	if err != nil && cause != nil {
		return metadata, cause
	}
	if err != nil {
		return metadata, err
	}
	if doc, err = objectmeta.Repair(doc); err != nil {
		return metadata, err
	}
	defer doc.Release()
	err = json.Unmarshal(doc.Raw(), &metadata)
	return metadata, err
}

// PartialFrame encodes an object's metadata as the frame of an event.
func (k *KindCodec) PartialFrame(t EventType, version string, item Item) (Frame, error) {
	head := frameHead(t, PartialKind, MetaVersion(version))
	if f, ok := k.transcodedFrame(k.codec.metadataProgram(), head, item); ok {
		return f, nil
	}
	m, err := k.metadata(item)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(struct {
		Metadata *metav1.ObjectMeta `json:"metadata"`
	}{m})
	if err != nil {
		return nil, err
	}
	return joinFrame(head, body), nil
}

// AppendPartialProto appends the metadata-only form in the protobuf envelope.
func (k *KindCodec) AppendPartialProto(dst []byte, version string, it Item) ([]byte, error) {
	splice, err := k.metadataSplice(it)
	if err != nil {
		return nil, err
	}
	dst = wire.AppendEnvelope(dst, MetaVersion(version), PartialKind, splice.MessageSize(true))
	return append(splice.AppendMeta(dst), wire.EnvelopeTail...), nil
}

// AppendPartialProtoFrame appends the metadata-only form as a watch event.
func (k *KindCodec) AppendPartialProtoFrame(dst []byte, eventType EventType, version string, it Item) ([]byte, error) {
	obj, err := k.AppendPartialProto(nil, version, it)
	if err != nil {
		return nil, err
	}
	return append(appendFrameHead(dst, eventNames[eventType], len(obj)), obj...), nil
}

// PartialMessage encodes the metadata-only form as a protobuf message without an envelope.
func (k *KindCodec) PartialMessage(it Item) ([]byte, error) {
	splice, err := k.metadataSplice(it)
	if err != nil {
		return nil, err
	}
	return splice.AppendMeta(make([]byte, 0, splice.MessageSize(true))), nil
}

// partialItemsField is the field number of the items in a PartialObjectMetadataList.
const partialItemsField = 2

// metadataSplice returns a Splice of the object's message, for use of its metadata alone.
func (k *KindCodec) metadataSplice(item Item) (*wire.Splice, error) {
	splice := new(wire.Splice)
	if k.Kind.Document == nil {
		return splice, k.prepareSplice(splice, item)
	}
	raw, err := k.metadataMessage(item)
	if err != nil {
		return nil, err
	}
	return splice, splice.Init(raw, item.Revision)
}
