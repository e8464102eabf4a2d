package transcode

import "binnacle/services/apiserver/internal/json/jsontext"

// appendEmbedded appends a JSON object that encoding/json would leave unchanged. It returns false
// for any other text.
func appendEmbedded(dst, b []byte) ([]byte, bool) {
	if len(b) == 0 || b[0] != '{' || !jsontext.Compact(b) {
		return dst, false
	}
	return append(dst, b...), true
}
