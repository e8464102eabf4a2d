package doccheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"binnacle/libs/quantity"
	"binnacle/services/apiserver/internal/codec/wire"
	"binnacle/services/apiserver/internal/json/jsontext"
)

// A value that one encoding can express and another cannot would be stored and then fail
// every list and watch of its resource. The checks of this file reject such values before
// they are decoded, together with quantities that are too expensive to parse.

// ValueError reports a value that the server rejects, and the path of its field.
type ValueError struct {
	Path   string // as in "spec.ports[0].targetPort"; empty if it is not known
	Reason error
}

func (e *ValueError) Error() string {
	if e.Path == "" {
		return e.Reason.Error()
	}
	return e.Path + ": " + e.Reason.Error()
}

func (e *ValueError) Unwrap() error { return e.Reason }

// atField returns err with name, a field or an element, prefixed to its path.
func atField(name string, err error) error {
	valueError := &ValueError{Reason: err}
	if name == "" || !errors.As(err, &valueError) { // an embedded struct has no name
		return err
	}
	switch {
	case valueError.Path == "":
		valueError.Path = name
	case valueError.Path[0] == '[':
		valueError.Path = name + valueError.Path
	default:
		valueError.Path = name + "." + valueError.Path
	}
	return valueError
}

// invalidValue returns a ValueError without a path. atField adds the path.
func invalidValue(format string, args ...any) error {
	return &ValueError{Reason: fmt.Errorf(format, args...)}
}

var (
	quantityType  = reflect.TypeFor[resource.Quantity]()
	intStringType = reflect.TypeFor[intstr.IntOrString]()
	timeTypes     = map[reflect.Type]bool{reflect.TypeFor[metav1.Time](): true, reflect.TypeFor[metav1.MicroTime](): true}
)

// holdsRawJSON reports whether a type holds one document of JSON: RawExtension, FieldsV1 and
// the JSON of CustomResourceDefinitions.
func holdsRawJSON(t reflect.Type) bool {
	raw, ok := t.FieldByName("Raw")
	return ok && raw.Type == reflect.TypeFor[[]byte]() && strings.HasPrefix(raw.Tag.Get("protobuf"), "bytes,1,opt")
}

// Bounds of the times that RFC 3339 can express.
var (
	firstTime = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// checkSeconds rejects a Unix time that RFC 3339 cannot express.
func checkSeconds(s int64) error {
	if s < firstTime.Unix() || s > lastTime.Unix() {
		return invalidValue("time of %d seconds is not between the years 0 and 9999", s)
	}
	return nil
}

// messageRule returns the check for the protobuf message of a type. It returns nil if the message's
// fields are checked one by one.
func messageRule(goType reflect.Type) func(b []byte) error {
	switch {
	case goType == quantityType:
		return eachField(func(field wire.Field) error {
			if field.Num != 1 || field.Type != wire.Bytes {
				return nil
			}
			return asValueError(quantity.CheckCost(string(field.Data)))
		})
	case goType == intStringType:
		return eachField(func(field wire.Field) error {
			switch {
			case field.Num == 1 && field.Type == wire.Varint && field.Value != uint64(intstr.Int) && field.Value != uint64(intstr.String):
				return invalidValue("type %d is neither an integer nor a string", field.Value)
			case field.Num == intOrStringText && field.Type == wire.Bytes:
				return checkText(field.Data)
			}
			return nil
		})
	case timeTypes[goType]:
		return eachField(func(field wire.Field) error {
			if field.Num != 1 || field.Type != wire.Varint {
				return nil
			}
			return checkSeconds(int64(field.Value))
		})
	}
	return nil
}

// eachRaw returns a check of a message that holds a JSON document. It checks the document.
func eachRaw(check func(document []byte) error) func([]byte) error {
	return eachField(func(field wire.Field) error {
		if field.Num != 1 || field.Type != wire.Bytes || len(field.Data) == 0 {
			return nil
		}
		return check(field.Data)
	})
}

// maxStoredDepth is the maximum depth of the JSON in a stored value. It exceeds MaxDepth because
// another server may have stored the value. A list with such JSON stays below the 10,000 levels that
// clients accept.
const maxStoredDepth = 8_000

var errStoredTooDeep = fmt.Errorf("the JSON is nested more than %d levels deep", maxStoredDepth)

// CheckStoredJSON rejects JSON of a stored value that clients could not read in a list. The error is
// a *ValueError.
func CheckStoredJSON(text []byte) error {
	const bytesPerLevel = 2
	if len(text) > bytesPerLevel*maxStoredDepth && jsontext.Measure(text).Depth > maxStoredDepth {
		return asValueError(errStoredTooDeep)
	}
	return nil
}

// intOrStringText is the field number of the string in an IntOrString.
const intOrStringText = 3

// eachField returns a check of a message that checks each of its fields.
func eachField(check func(wire.Field) error) func([]byte) error {
	return func(encoded []byte) error {
		for len(encoded) > 0 {
			field, rest, err := wire.Next(encoded)
			if err != nil {
				return err
			}
			if err := check(field); err != nil {
				return err
			}
			encoded = rest
		}
		return nil
	}
}

// asValueError wraps an error, if there is one, so that atField can add the path.
func asValueError(err error) error {
	if err == nil {
		return nil
	}
	return &ValueError{Reason: err}
}

// checkText rejects text that is not UTF-8.
func checkText(b []byte) error {
	if !utf8.Valid(b) {
		return invalidValue("invalid UTF-8 in %q", shorten(b))
	}
	return nil
}

// shorten returns the start of a value for an error message.
func shorten(b []byte) []byte { return b[:min(len(b), 64)] }

// checkRaw rejects a document that is not JSON, or whose strings are not Unicode.
func checkRaw(data []byte) error {
	if !utf8.Valid(data) || !json.Valid(data) {
		return invalidValue("invalid JSON in %q", shorten(data))
	}
	return checkSurrogates(data)
}

// checkSurrogates rejects JSON that escapes one half of a surrogate pair.
func checkSurrogates(b []byte) error {
	if escape := jsontext.LoneSurrogate(b); escape != nil {
		return invalidValue("unpaired surrogate %s", escape)
	}
	return nil
}

// textField describes the text in a field of a message.
type textField struct {
	name string
	// isMap is true for a map with string keys. Then textValues is true if its values are strings
	// too, and delimited is true if its values are length-delimited on the wire.
	isMap, textValues, delimited bool
}

// check rejects text that is not UTF-8.
func (t textField) check(data []byte) error {
	if !t.isMap {
		return checkText(data)
	}
	return eachField(func(field wire.Field) error {
		switch {
		case field.Num != wire.MapKey && field.Num != wire.MapValue:
			return nil
		case field.Type != wire.Bytes && (field.Num == wire.MapKey || t.delimited): // some decoders ignore the wire type
			return wire.ErrMalformed
		case field.Num == wire.MapValue && !t.textValues:
			return nil
		}
		return checkText(field.Data)
	})(data)
}

// newTextField describes the text in a field of a Go type. It returns false if the field has no
// text.
func newTextField(name string, goType reflect.Type) (textField, bool) {
	for goType.Kind() == reflect.Pointer || goType.Kind() == reflect.Slice {
		goType = goType.Elem()
	}
	switch goType.Kind() {
	case reflect.String:
		return textField{name: name}, true
	case reflect.Map:
		kind := goType.Elem().Kind()
		delimited := kind == reflect.String || kind == reflect.Struct || kind == reflect.Slice || kind == reflect.Pointer
		return textField{
			name:       name,
			isMap:      true,
			textValues: kind == reflect.String,
			delimited:  delimited,
		}, goType.Key().Kind() == reflect.String
	}
	return textField{}, false
}

// isFloat reports whether a type is float64 or a pointer to it.
func isFloat(goType reflect.Type) bool {
	if goType.Kind() == reflect.Pointer {
		goType = goType.Elem()
	}
	return goType.Kind() == reflect.Float64
}

// checkNumber rejects a floating-point number that JSON cannot express.
func checkNumber(u uint64) error {
	if n := math.Float64frombits(u); math.IsNaN(n) || math.IsInf(n, 0) {
		return invalidValue("%v is not a number of JSON", n)
	}
	return nil
}

// leafRule returns the check for a JSON value of a type that decodes itself. It returns nil if
// there is nothing to check. The value is a string with its quotes, a number, or a document.
func leafRule(goType reflect.Type) func(value []byte) error {
	switch {
	case goType == quantityType:
		return func(value []byte) error { return asValueError(quantity.CheckCost(unquote(value))) }
	case timeTypes[goType]:
		return func(value []byte) error {
			parsed, err := time.Parse(time.RFC3339Nano, unquote(value))
			if err != nil {
				return nil // the decoder reports it
			}
			return checkSeconds(parsed.Unix())
		}
	case holdsRawJSON(goType):
		return checkSurrogates
	}
	return nil
}

// unquote returns the content of a JSON string, or the text of any other value.
func unquote(value []byte) string {
	if text, ok := jsontext.Text(value); ok {
		return text
	}
	return string(value)
}

// Each JSON value that a leaf rule rejects, quantities excepted, contains one of these texts.
var suspectTexts = [][]byte{[]byte(`\ud`), []byte(`\uD`), []byte("9999-12-31"), []byte("0000-01-01")}

// mayBreakLeafRule reports whether a document may have a value that a leaf rule rejects. It has no
// false negatives for JSON.
func mayBreakLeafRule(data []byte) bool {
	for _, e := range suspectTexts {
		if bytes.Contains(data, e) {
			return true
		}
	}
	return quantity.MayBeExpensive(data)
}
