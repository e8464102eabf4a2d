package comparison

import (
	"encoding/json"
	"strconv"
	"strings"
)

// Lookup returns the value at a path such as a.b.0.c; nil if it does not exist.
func Lookup(v any, path string) any {
	for path != "" {
		var key string
		key, path, _ = strings.Cut(path, ".")
		switch t := v.(type) {
		case map[string]any:
			v = t[key]
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(t) {
				return nil
			}
			v = t[i]
		default:
			return nil
		}
	}
	return v
}

// RoundTrip returns a copy of a value as encoding/json decodes it, with json.Number.
func RoundTrip(v any) any {
	text, err := marshal(v)
	if err != nil {
		return nil
	}
	dec := json.NewDecoder(strings.NewReader(string(text)))
	dec.UseNumber()
	var out any
	if dec.Decode(&out) != nil {
		return nil
	}
	return out
}

// JSONText returns a value as JSON.
func JSONText(v any) string {
	b, err := marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// DuplicateKey marks a member that is written with the name of another one.
const DuplicateKey = "~duplicate~"

// withDuplicates renames the marked members of a JSON text.
func withDuplicates(text []byte) []byte {
	return []byte(strings.ReplaceAll(string(text), DuplicateKey, ""))
}
