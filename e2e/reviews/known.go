package reviews

// knownDifferences are the exchanges that differ from the recorded ones, with the reason.
var knownDifferences = map[string]string{
	"2-subresources-and-connect 20 pod delete again, grace 0":                        "a grace period that is shortened to zero waits for the kubelet and calls the webhook once",
	"5-answers 14 refused, code 999":                                                 "999 is not an HTTP status code: the server returns 400, as for other invalid codes",
	"4-order-and-reinvocation 7 two validating webhooks refuse":                      "the first denial in the order of the webhooks is returned, not the first response",
	"6-failures 17 time-out, Validating, Ignore":                                     "the recorder created the object before",
	"6-failures 26 service that does not exist, Ignore":                              "the recorder created the object before",
	"6-failures 27 host name that does not resolve, Ignore":                          "the recorder created the object before",
	"6-failures 28 no caBundle (system roots), Ignore":                               "the recorder created the object before",
	"6-failures 30 time-out, Mutating, Ignore":                                       "the recorder created the object before",
	"6-failures 31 HTTP 500, Mutating, Ignore":                                       "the recorder created the object before",
	"6-failures 32 wrong uid, Mutating, Ignore":                                      "the recorder created the object before",
	"6-failures 35 request has timeout=1s, same, failurePolicy Ignore":               "the response to a timed-out request is a Status",
	"7-selection 26 scale asked for as a rule on autoscaling":                        "the recorder changed the object before",
	"7-selection 27 rule on extensions group, request in apps (no equivalence left)": "the recorder changed the object before",
	"11-other-operations 12 mutating webhook sets resourceVersion on create":         "a resource version set by a webhook is a bad request, not an internal error",
}
