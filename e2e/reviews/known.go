package reviews

// known are the exchanges that differ from the recorded ones, and why.
var known = map[string]string{
	"2-subresources-and-connect 20 pod delete again, grace 0":                        "a grace period that is shortened to nothing waits for the kubelet, and asks once",
	"5-answers 14 refused, code 999":                                                 "999 is no code of HTTP: it is 400, like others that are none",
	"4-order-and-reinvocation 7 two validating webhooks refuse":                      "webhooks that refuse side by side count in their order, not in that of their answers",
	"6-failures 17 time-out, Validating, Ignore":                                     "the recorder created the object before",
	"6-failures 26 service that does not exist, Ignore":                              "the recorder created the object before",
	"6-failures 27 host name that does not resolve, Ignore":                          "the recorder created the object before",
	"6-failures 28 no caBundle (system roots), Ignore":                               "the recorder created the object before",
	"6-failures 30 time-out, Mutating, Ignore":                                       "the recorder created the object before",
	"6-failures 31 HTTP 500, Mutating, Ignore":                                       "the recorder created the object before",
	"6-failures 32 wrong uid, Mutating, Ignore":                                      "the recorder created the object before",
	"6-failures 35 request has timeout=1s, same, failurePolicy Ignore":               "the answer to a request whose time is over is a Status",
	"7-selection 26 scale asked for as a rule on autoscaling":                        "the recorder changed the object before",
	"7-selection 27 rule on extensions group, request in apps (no equivalence left)": "the recorder changed the object before",
	"11-other-operations 12 mutating webhook sets resourceVersion on create":         "a version that a webhook sets is a bad request, not an internal error",
}
