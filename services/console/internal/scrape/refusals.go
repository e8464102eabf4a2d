package scrape

import "strings"

// refusalFamily is a metric that counts rejections. tell returns the subject and the reason of a
// series, or false if it counts something else.
type refusalFamily struct {
	metric string
	tell   func(l map[string]string) (what, why string, ok bool)
}

// refusals returns the metrics that count rejections.
func refusals() []refusalFamily {
	return []refusalFamily{
		{requestsTotal, answered},
		{"apiserver_flowcontrol_rejected_requests_total", func(l map[string]string) (string, string, bool) {
			return "priority and fairness, level " + l["priority_level"] + ", schema " + l["flow_schema"], l["reason"], true
		}},
		{"authentication_attempts", func(l map[string]string) (string, string, bool) {
			return "authentication", map[string]string{"failure": "the credentials are not valid", "error": "the credentials are not valid, or could not be judged"}[l["result"]], l["result"] != "success"
		}},
		{"apiserver_admission_webhook_rejection_count", func(l map[string]string) (string, string, bool) {
			return "webhook " + l["name"] + " (" + l["type"] + ", " + l["operation"] + ")", "code " + l["rejection_code"] + ", " + strings.ReplaceAll(l["error_type"], "_", " "), true
		}},
		{"apiserver_validating_admission_policy_check_total", func(l map[string]string) (string, string, bool) {
			return "policy " + l["policy"] + " by " + l["policy_binding"], l["enforcement_action"] + ", " + strings.ReplaceAll(l["error_type"], "_", " "), l["enforcement_action"] == "deny"
		}},
		{"apiserver_audit_requests_rejected_total", func(map[string]string) (string, string, bool) {
			return "audit", "the request could not be audited", true
		}},
		{"binnacle_stalled_clients_total", func(l map[string]string) (string, string, bool) {
			return "a client that stalls", "cut: " + l["part"], true
		}},
	}
}

// reasons returns the meanings of status codes that count as rejections. Other codes are ordinary:
// 404, 409, and 410, after which clients list again.
func reasons() map[string]string {
	return map[string]string{
		"400": "it cannot be read", "401": "no valid credentials", "403": "not permitted, or refused by admission",
		"405": "no such method", "406": "no such form of answers", "408": "its body came too slowly", "413": "too large", "415": "no such form of bodies",
		"422": "the object is not valid", "429": "too many requests, or a budget is used up",
		"500": "internal error", "501": "not implemented", "502": "another server does not answer", "503": "not available", "504": "it took too long",
	}
}

// isProbe reports whether a class of requests is that of health probes.
func isProbe(l map[string]string) bool {
	switch l["subresource"] {
	case "/healthz", "/livez", "/readyz":
		return true
	}
	return false
}

// answered describes a rejected request by its code.
func answered(l map[string]string) (what, why string, ok bool) {
	if isProbe(l) { // a probe that finds a server not ready is no rejection
		return "", "", false
	}
	why, ok = reasons()[l["code"]]
	if !ok {
		return "", "", false
	}
	what = l["verb"]
	for _, part := range []string{l["resource"], l["subresource"]} {
		if part != "" {
			what += " " + strings.TrimPrefix(part, "/")
		}
	}
	return what, l["code"] + ": " + why, true
}
