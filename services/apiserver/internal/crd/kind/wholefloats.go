package kind

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"binnacle/services/apiserver/internal/json/tape"
	"binnacle/services/apiserver/internal/registry"
)

// maxPlainFloat is the magnitude from which JSON has an exponent, so that a float is no integer there.
const maxPlainFloat = 1e21

// jsonOfDecoded returns the JSON of a write in which whole floats have a fraction, such as 1.0.
// Kubernetes validates decoded values: types, bounds and rules distinguish 1.0 from 1, which are
// stored alike.
func jsonOfDecoded(w registry.DocumentWrite) ([]byte, error) {
	u, ok := w.Object.(*unstructured.Unstructured)
	if !ok {
		return w.JSON, nil
	}
	v, changed := keepFractions(u.Object)
	if !changed {
		return w.JSON, nil
	}
	return tape.AppendValue(nil, v)
}

// keepFractions returns a copy of a decoded value in which whole floats are texts with a fraction. It
// returns the value itself and false if there are none.
func keepFractions(v any) (any, bool) {
	switch v := v.(type) {
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < maxPlainFloat {
			return json.Number(strconv.FormatFloat(v, 'f', 1, 64)), true
		}
	case map[string]any:
		var out map[string]any
		for key, member := range v {
			if kept, changed := keepFractions(member); changed {
				if out == nil {
					out = maps.Clone(v)
				}
				out[key] = kept
			}
		}
		if out != nil {
			return out, true
		}
	case []any:
		var out []any
		for i, element := range v {
			if kept, changed := keepFractions(element); changed {
				if out == nil {
					out = slices.Clone(v)
				}
				out[i] = kept
			}
		}
		if out != nil {
			return out, true
		}
	}
	return v, false
}
