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

// maxPlainFloat is the magnitude from which floats are written with an exponent. Such text is not
// an integer.
const maxPlainFloat = 1e21

// jsonWithFractions returns the JSON of a write. Floats that are whole numbers have a fraction, as
// in 1.0. Kubernetes validates decoded values: types, bounds and rules distinguish 1.0 from 1,
// which are stored alike.
func jsonWithFractions(write registry.DocumentWrite) ([]byte, error) {
	object, ok := write.Object.(*unstructured.Unstructured)
	if !ok {
		return write.JSON, nil
	}
	value, changed := withFractions(object.Object)
	if !changed {
		return write.JSON, nil
	}
	return tape.AppendValue(nil, value)
}

// withFractions returns a copy of a decoded value in which a json.Number with a fraction replaces
// each float that is a whole number. It returns the value itself and false if there are none.
func withFractions(value any) (any, bool) {
	switch value := value.(type) {
	case float64:
		if value == math.Trunc(value) && math.Abs(value) < maxPlainFloat {
			return json.Number(strconv.FormatFloat(value, 'f', 1, 64)), true
		}
	case map[string]any:
		var out map[string]any
		for key, member := range value {
			if replaced, changed := withFractions(member); changed {
				if out == nil {
					out = maps.Clone(value)
				}
				out[key] = replaced
			}
		}
		if out != nil {
			return out, true
		}
	case []any:
		var out []any
		for i, element := range value {
			if replaced, changed := withFractions(element); changed {
				if out == nil {
					out = slices.Clone(value)
				}
				out[i] = replaced
			}
		}
		if out != nil {
			return out, true
		}
	}
	return value, false
}
