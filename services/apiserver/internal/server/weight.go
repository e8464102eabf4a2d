package server

import (
	"bytes"
	"net/http"
	"strings"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/request"
)

// weight tells how much a body counts among the large ones, 0 for one that is not large,
// or not ours to read. What has many values counts as if each were of ordinary length:
// to make, check and refuse them takes far longer than to read their text.
func weight(body []byte, r *http.Request) int {
	n := len(body)
	if n < largeBody || request.From(r.Context()).Foreign != nil {
		return 0
	}
	media, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(media)) {
	case api.MediaYAML, api.MediaCBOR, api.MediaApplyYAML, api.MediaApplyCBOR:
		n *= costlyBody
	}
	return max(n, perValue*bytes.Count(body, []byte{','}))
}

// ofTarget tells how much the address of a request, and the media types that it accepts, count
// among large bodies, 0 where they are not large, or not ours to read: selectors are read, and
// what is wrong with them is told.
func ofTarget(op *request.Operation, r *http.Request) int {
	n := len(r.URL.Path) + len(r.URL.RawQuery)
	for _, accepted := range r.Header["Accept"] {
		n += len(accepted)
	}
	if n < largeTarget || op.Foreign != nil || op.LongRunning() && op.Verb != "watch" {
		return 0
	}
	return costlyBody * n
}
