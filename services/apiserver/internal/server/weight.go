package server

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

// weight tells how much a body counts among the large ones, 0 for one that is not large,
// or not ours to read. What has many values counts by these:
// to make, check and refuse them takes far longer than to read their text.
func weight(body []byte, r *http.Request) int {
	op := requestinfo.From(r.Context())
	if len(body) == 0 || op.Foreign != nil {
		return 0
	}
	if op.Verb == "delete" || op.Verb == "deletecollection" {
		return len(body) / largeBody * largeBody // DeleteOptions have no lists that grow
	}
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	n := 0
	switch strings.ToLower(strings.TrimSpace(media)) {
	case api.MediaYAML:
		n = weightOfYAML(body)
	case api.MediaApplyYAML:
		if n = weightOfYAML(body); n >= largeBody && len(body) < largeBody && json.Valid(body) { // which is read as such
			n = weightOfJSON(body)
		}
	case api.MediaCBOR, api.MediaApplyCBOR:
		n = costlyBody * len(body)
	case api.MediaProtobuf: // what it has is counted as it is decoded
		n = len(body)
	default:
		n = weightOfJSON(body)
	}
	if request.Compiled(requestinfo.From(r.Context()).Group) {
		n *= request.CostlyKind
	}
	if n < largeBody {
		return 0
	}
	return n
}

// weightOfYAML counts what aliases stand for, which nobody knows yet, as large.
func weightOfYAML(body []byte) int {
	n := costlyYAML * len(body)
	if bytes.IndexByte(body, '&') >= 0 && bytes.IndexByte(body, '*') >= 0 {
		n = max(n, largeBody)
	} else if len(body) < leastWeighed {
		return 0
	}
	return max(n, perValue*max(request.Values(body), bytes.Count(body, []byte{'\n'}), bytes.Count(body, []byte{'\r'})))
}

func weightOfJSON(body []byte) int {
	n := len(body)
	if n < leastWeighed {
		return n
	}
	return max(n, request.WeightOfJSON(body))
}

// ofTarget tells how much the address of a request counts among large bodies, 0 where it is not
// large: selectors are read, for another server's resources too, and what is wrong with them is told.
func ofTarget(op *requestinfo.Info, r *http.Request) int {
	n := len(r.URL.Path) + len(r.URL.RawQuery)
	if n < largeTarget || op.LongRunning() && op.Verb != "watch" {
		return 0
	}
	return costlyBody * n
}
