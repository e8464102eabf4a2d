package h2

import (
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

// appendFields appends the valid values of a field.
func appendFields(to []hpack.HeaderField, name string, values []string) []hpack.HeaderField {
	lower := lowerName(name)
	if !httpguts.ValidHeaderFieldName(lower) {
		return to
	}
	for _, v := range values {
		if httpguts.ValidHeaderFieldValue(v) {
			// A unique value would only displace others in the client's HPACK table.
			to = append(to, hpack.HeaderField{Name: lower, Value: v, Sensitive: lower == "audit-id"})
		}
	}
	return to
}

// lowerName returns a name in lower case. It allocates nothing for common names.
func lowerName(name string) string {
	switch name {
	case "Audit-Id":
		return "audit-id"
	case "Cache-Control":
		return "cache-control"
	case "Content-Encoding":
		return "content-encoding"
	case "Content-Type":
		return "content-type"
	case "Date":
		return "date"
	case "Vary":
		return "vary"
	case "Warning":
		return "warning"
	case "X-Kubernetes-Pf-Flowschema-Uid":
		return "x-kubernetes-pf-flowschema-uid"
	case "X-Kubernetes-Pf-Prioritylevel-Uid":
		return "x-kubernetes-pf-prioritylevel-uid"
	}
	return strings.ToLower(name)
}
