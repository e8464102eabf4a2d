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

// bodyCost estimates the cost of a body in bytes of text. It returns 0 for a body that is not large
// or that another server decodes. A document with many values costs more than its size, because
// decoding, checking and rejecting the values takes far longer than reading the text.
func bodyCost(body []byte, r *http.Request) int {
	op := requestinfo.FromContext(r.Context())
	if len(body) == 0 || op.Delegate != nil {
		return 0
	}
	if op.Verb == "delete" || op.Verb == "deletecollection" {
		return len(body) / largeBody * largeBody // DeleteOptions have no lists that grow
	}
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	n := 0
	switch strings.ToLower(strings.TrimSpace(media)) {
	case api.MediaYAML:
		n = yamlCost(body)
	case api.MediaApplyYAML:
		n = yamlCost(body)
		if n >= largeBody && len(body) < largeBody && json.Valid(body) { // the handler decodes it as JSON
			n = jsonCost(body)
		}
	case api.MediaCBOR, api.MediaApplyCBOR:
		n = costFactor * len(body)
	case api.MediaProtobuf: // the decoder counts the values
		n = len(body)
	default:
		n = jsonCost(body)
	}
	if request.Compiled(requestinfo.FromContext(r.Context()).Group) {
		n *= request.CostlyKind
	}
	if n < largeBody {
		return 0
	}
	return n
}

// yamlCost returns the cost of a YAML document. A document with aliases counts as large, because
// its expanded size is not known yet.
func yamlCost(body []byte) int {
	n := costFactorYAML * len(body)
	if bytes.IndexByte(body, '&') >= 0 && bytes.IndexByte(body, '*') >= 0 {
		n = max(n, largeBody)
	} else if len(body) < minLargeBody {
		return 0
	}
	return max(n, costPerValue*max(request.Values(body), bytes.Count(body, []byte{'\n'}), bytes.Count(body, []byte{'\r'})))
}

// jsonCost returns the cost of a JSON document.
func jsonCost(body []byte) int {
	n := len(body)
	if n < minLargeBody {
		return n
	}
	return max(n, request.WeightOfJSON(body))
}

// urlCost estimates the cost of the URL of a request in bytes of text, 0 if the URL is not large.
// Selectors are parsed for delegated resources too, and errors repeat them.
func urlCost(op *requestinfo.Info, r *http.Request) int {
	n := len(r.URL.Path) + len(r.URL.RawQuery)
	if n < LargeURL || op.LongRunning() && op.Verb != "watch" {
		return 0
	}
	return costFactor * n
}
