package backends

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"binnacle/services/apiserver/internal/security/audit"
)

// Placeholders of the legacy format for missing values.
const (
	noValue         = "<none>"
	noSourceIP      = "<unknown>"
	noImpersonation = "<self>"
	unknownGroups   = "<lookup>"
	noResponse      = "<deferred>"
)

// appendLegacy appends an event in the legacy format.
func appendLegacy(dst []byte, e *audit.Event) []byte {
	user, groups, as, asGroups := noValue, noValue, noImpersonation, unknownGroups
	if u := e.User; u != nil && u.Name != "" {
		user = u.Name
		if len(u.Groups) > 0 {
			groups = quoted(u.Groups)
		}
	}
	if u := e.Impersonated; u != nil {
		as = u.Name
		if u.Groups != nil {
			asGroups = quoted(u.Groups)
		}
	}
	namespace, response, ip := noValue, noResponse, noSourceIP
	if e.Object != nil && e.Object.Namespace != "" {
		namespace = e.Object.Namespace
	}
	if e.Status != nil {
		response = strconv.Itoa(int(e.Status.Code))
	}
	if len(e.SourceIPs) > 0 {
		ip = e.SourceIPs[0]
	}
	return fmt.Appendf(dst, "%s AUDIT: id=%q stage=%q ip=%q method=%q user=%q groups=%q as=%q asgroups=%q user-agent=%q namespace=%q uri=%q response=\"%s\"",
		e.Received.Format(time.RFC3339Nano), e.ID, e.Stage, ip, e.Verb, user, groups, as, asGroups, e.UserAgent, namespace, e.URI, response)
}

func quoted(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = strconv.Quote(s)
	}
	return strings.Join(out, ",")
}
