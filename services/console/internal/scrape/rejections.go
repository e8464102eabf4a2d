package scrape

import "strings"

// rejectionMetric is a metric that counts rejections.
type rejectionMetric struct {
	metric string
	// classify returns what was rejected and why, from the labels of a series. It returns false if
	// the series does not count rejections.
	classify func(l map[string]string) (subject, reason string, ok bool)
}

// rejectionMetrics returns the metrics that count rejections.
func rejectionMetrics() []rejectionMetric {
	return []rejectionMetric{
		{requestsTotal, classifyResponse},
		{"apiserver_flowcontrol_rejected_requests_total", func(labels map[string]string) (string, string, bool) {
			return "priority and fairness, level " + labels["priority_level"] + ", schema " + labels["flow_schema"], labels["reason"], true
		}},
		{"authentication_attempts", func(labels map[string]string) (string, string, bool) {
			return "authentication",
				map[string]string{
					"failure": "the credentials are not valid",
					"error":   "the credentials are not valid, or could not be judged",
				}[labels["result"]], labels["result"] != "success"
		}},
		{"apiserver_admission_webhook_rejection_count", func(labels map[string]string) (string, string, bool) {
			return "webhook " + labels["name"] + " (" + labels["type"] + ", " + labels["operation"] + ")",
				"code " + labels["rejection_code"] + ", " + strings.ReplaceAll(labels["error_type"], "_", " "), true
		}},
		{"apiserver_validating_admission_policy_check_total", func(labels map[string]string) (string, string, bool) {
			return "policy " + labels["policy"] + " by " + labels["policy_binding"],
				labels["enforcement_action"] + ", " + strings.ReplaceAll(labels["error_type"], "_", " "), labels["enforcement_action"] == "deny"
		}},
		{"apiserver_audit_requests_rejected_total", func(map[string]string) (string, string, bool) {
			return "audit", "the request could not be audited", true
		}},
		{"binnacle_stalled_clients_total", func(labels map[string]string) (string, string, bool) {
			return "a client that stalls", "cut: " + labels["part"], true
		}},
	}
}

// rejectionCodes returns the meanings of the status codes that count as rejections. 404, 409 and 410
// do not count, because clients handle them in normal operation.
func rejectionCodes() map[string]string {
	return map[string]string{
		"400": "malformed request",
		"401": "no valid credentials",
		"403": "not permitted, or rejected by admission",
		"405": "method not allowed",
		"406": "unsupported response media type",
		"408": "timeout of the request body",
		"413": "request too large",
		"415": "unsupported request media type",
		"422": "invalid object",
		"429": "too many requests, or a disruption budget is used up",
		"500": "internal error",
		"501": "not implemented",
		"502": "another server does not respond",
		"503": "unavailable",
		"504": "timeout",
	}
}

// isProbe reports whether a series counts health probes.
func isProbe(l map[string]string) bool {
	switch l["subresource"] {
	case "/healthz", "/livez", "/readyz":
		return true
	}
	return false
}

// classifyResponse describes requests that were rejected with an error code.
func classifyResponse(labels map[string]string) (subject, reason string, ok bool) {
	if isProbe(labels) { // a probe that finds a server not ready is not a rejection
		return "", "", false
	}
	reason, ok = rejectionCodes()[labels["code"]]
	if !ok {
		return "", "", false
	}
	subject = labels["verb"]
	for _, part := range []string{labels["resource"], labels["subresource"]} {
		if part != "" {
			subject += " " + strings.TrimPrefix(part, "/")
		}
	}
	return subject, labels["code"] + ": " + reason, true
}
