package overload

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// bodyCost estimates the cost of a body. The unit is the time in which the server processes one byte
// of JSON text. It returns 0 for a body that is not large or that another server decodes. A document
// with many values costs more than its size, because decoding, checking and rejecting the values
// takes far longer than reading the text.
func bodyCost(body []byte, r *http.Request) int {
	info := requestinfo.FromContext(r.Context())
	if len(body) == 0 || info.Delegate != nil {
		return 0
	}
	if info.Verb == "delete" || info.Verb == "deletecollection" {
		return len(body) / largeBody * largeBody // DeleteOptions have no lists that grow
	}
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	cost := 0
	switch strings.ToLower(strings.TrimSpace(media)) {
	case api.MediaYAML:
		cost = yamlCost(body)
	case api.MediaApplyYAML:
		cost = yamlCost(body)
		// The handler decodes a body that is also JSON as JSON, which costs less. Only small bodies are
		// checked, because the check itself takes time.
		if cost >= largeBody && len(body) < largeBody && json.Valid(body) {
			cost = jsonCost(body)
		}
	case api.MediaCBOR, api.MediaApplyCBOR:
		cost = costFactor * len(body)
	case api.MediaProtobuf: // the decoder counts the values
		cost = len(body)
	default:
		cost = jsonCost(body)
	}
	if request.Compiled(info.Group, info.Resource) {
		cost *= request.CostlyKind
	}
	if cost < largeBody {
		return 0
	}
	return cost
}

// yamlCost returns the cost of a YAML document. A document with aliases counts as large, because
// its expanded size is not known yet.
func yamlCost(body []byte) int {
	cost := costFactorYAML * len(body)
	hasAliases := bytes.IndexByte(body, '&') >= 0 && bytes.IndexByte(body, '*') >= 0
	switch {
	case hasAliases:
		cost = max(cost, largeBody)
	case len(body) < minLargeBody:
		return 0
	}
	lines := max(bytes.Count(body, []byte{'\n'}), bytes.Count(body, []byte{'\r'}))
	values := max(request.Values(body), lines) // in block style, each line may be a value
	return max(cost, costPerValue*values)
}

// jsonCost returns the cost of a JSON document.
func jsonCost(body []byte) int {
	if len(body) < minLargeBody {
		return len(body)
	}
	return max(len(body), request.WeightOfJSON(body))
}

// urlCost estimates the cost of the URL of a request in the unit of bodyCost. It returns 0 if the
// URL is not large. A URL of a delegated resource costs as much as any other, because its selectors
// are parsed and repeated in errors, too.
func urlCost(info *requestinfo.Info, r *http.Request) int {
	size := len(r.URL.Path) + len(r.URL.RawQuery)
	isConnection := info.LongRunning() && info.Verb != "watch"
	if size < LargeURL || isConnection {
		return 0
	}
	return costFactor * size
}
