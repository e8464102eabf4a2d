package aggregation

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/status"
)

// unreachableTexts lists parts of error messages that classify why a server is unreachable. The
// first one is followed by a status code.
var unreachableTexts = []string{
	"bad status from ",
	"connection refused",
	"deadline exceeded",
	"no such host",
	"no route to host",
	"tls: ",
	"x509: ",
	"HTTP response to HTTPS client",
}

// EqualConditions reports whether two conditions have the same meaning. Messages about an
// unreachable server are equal if they are of the same class (unreachableTexts), because replicas
// and consecutive checks report the same failure with different ports and details. Messages with a
// status code must be identical.
func EqualConditions(a, b *apiregistrationv1.APIServiceCondition) bool {
	if a.Status != b.Status || a.Reason != b.Reason {
		return false
	}
	if a.Message == b.Message || a.Reason != failedDiscovery {
		return a.Message == b.Message
	}
	for i, text := range unreachableTexts {
		inA := strings.Contains(a.Message, text)
		inB := strings.Contains(b.Message, text)
		if inA || inB {
			const badStatus = 0 // index of the class whose messages must be identical
			return inA && inB && i != badStatus
		}
	}
	return true
}

// newCondition returns a condition Available with the current time and a formatted message.
func (r *remote) newCondition(
	value apiregistrationv1.ConditionStatus,
	reason, format string,
	args ...any,
) apiregistrationv1.APIServiceCondition {
	return apiregistrationv1.APIServiceCondition{
		Type:               apiregistrationv1.Available,
		Status:             value,
		LastTransitionTime: metav1.NewTime(r.aggregator.Now()),
		Reason:             reason,
		Message:            status.Truncate(fmt.Sprintf(format, args...), maxConditionMessage),
	}
}

// availableCondition returns the condition Available of an APIService, or nil.
func availableCondition(s *apiregistrationv1.APIService) *apiregistrationv1.APIServiceCondition {
	for i := range s.Status.Conditions {
		if c := &s.Status.Conditions[i]; c.Type == apiregistrationv1.Available {
			return c
		}
	}
	return nil
}

// Available reports whether the condition Available of an APIService is true.
func Available(s *apiregistrationv1.APIService) bool {
	c := availableCondition(s)
	return c != nil && c.Status == apiregistrationv1.ConditionTrue
}

// Unavailable returns the names of APIServices in names that do not exist or are not available,
// sorted.
func (a *Aggregator) Unavailable(names []string) []string {
	available := map[string]bool{}
	for s := range a.Registered() {
		available[s.Name] = Available(s)
	}
	var unavailable []string
	for _, name := range names {
		if !available[name] {
			unavailable = append(unavailable, name)
		}
	}
	slices.Sort(unavailable)
	return unavailable
}
