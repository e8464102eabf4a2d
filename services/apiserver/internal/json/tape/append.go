package tape

import (
	"encoding/json"
	"slices"
	"strconv"

	"binnacle/services/apiserver/internal/json/jsontext"
)

// AppendValue appends the JSON of a decoded value as encoding/json writes it, with sorted keys.
// Negative zero is 0. It writes the types of Any itself and leaves other types to encoding/json.
func AppendValue(dst []byte, value any) ([]byte, error) {
	switch value := value.(type) {
	case nil:
		return append(dst, "null"...), nil
	case string:
		return jsontext.AppendString(dst, value), nil
	case bool:
		return strconv.AppendBool(dst, value), nil
	case int64:
		return strconv.AppendInt(dst, value, 10), nil
	case float64:
		if value == 0 { // also negative zero, which Kubernetes stores as 0
			return append(dst, '0'), nil
		}
	case map[string]any:
		if value != nil {
			return appendMap(dst, value)
		}
	case []any:
		if value != nil {
			return appendSlice(dst, value)
		}
	}
	b, err := json.Marshal(value)
	return append(dst, b...), err
}

// EqualValues reports whether two decoded values are equal in the sense of reflect.DeepEqual. It
// supports the types of Any, and may return false for others.
func EqualValues(a, b any) bool {
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		s, ok := b.(string)
		return ok && a == s
	case bool:
		s, ok := b.(bool)
		return ok && a == s
	case int64:
		s, ok := b.(int64)
		return ok && a == s
	case float64:
		s, ok := b.(float64)
		return ok && a == s
	case map[string]any:
		members, ok := b.(map[string]any)
		if !ok || len(a) != len(members) {
			return false
		}
		for key, v := range a {
			if w, has := members[key]; !has || !EqualValues(v, w) {
				return false
			}
		}
		return true
	case []any:
		s, ok := b.([]any)
		if !ok || len(a) != len(s) {
			return false
		}
		for i := range a {
			if !EqualValues(a[i], s[i]) {
				return false
			}
		}
		return true
	}
	return false
}

// fewKeys is the number of map keys up to which sorting does not allocate.
const fewKeys = 32

// appendMap appends a map with its keys in order.
func appendMap(dst []byte, members map[string]any) ([]byte, error) {
	var few [fewKeys]string
	keys := few[:0]
	for key := range members {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	dst = append(dst, '{')
	for i, key := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsontext.AppendString(dst, key), ':')
		var err error
		if dst, err = AppendValue(dst, members[key]); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func appendSlice(dst []byte, list []any) ([]byte, error) {
	dst = append(dst, '[')
	for i, value := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = AppendValue(dst, value); err != nil {
			return dst, err
		}
	}
	return append(dst, ']'), nil
}
