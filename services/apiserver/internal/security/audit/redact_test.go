package audit

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRejectedPatchIsRedactedBelowRequestResponse checks that the message of a rejected patch shows
// the patched object only at level RequestResponse.
func TestRejectedPatchIsRedactedBelowRequestResponse(t *testing.T) {
	const secret = "s3cret"
	invalid := func(kind, field, message string) *metav1.Status {
		return &metav1.Status{
			Code:    422,
			Message: "refused: " + message,
			Details: &metav1.StatusDetails{
				Kind: kind,
				Causes: []metav1.StatusCause{
					{Type: metav1.CauseTypeFieldValueRequired, Field: "patch", Message: `Invalid value: "x"`},
					{Type: metav1.CauseTypeFieldValueInvalid, Field: "patch", Message: "x"},
					{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message},
				},
			},
		}
	}
	patch := `Invalid value: "{\"data\":\"` + secret + `\"}": no such field`
	for _, test := range []struct {
		name        string
		level       Level
		status      *metav1.Status
		isVisible   bool
		wantMessage string // part of the redacted message
	}{
		{name: "level Metadata", level: Metadata, status: invalid("", "patch", patch), wantMessage: "no such field"},
		{name: "level Request", level: Request, status: invalid("", "patch", patch), wantMessage: "no such field"},
		{name: "unterminated value", level: Request, status: invalid("", "patch", `Invalid value: "`+secret), wantMessage: "redacted"},
		{name: "level RequestResponse", level: RequestResponse, status: invalid("", "patch", patch), isVisible: true},
		{name: "status with a kind", level: Request, status: invalid("Pod", "patch", patch), isVisible: true},
		{name: "cause for another field", level: Request, status: invalid("", "spec", patch), isVisible: true},
		{name: "message without a value", level: Request, status: invalid("", "patch", secret), isVisible: true},
		{name: "status without details", level: Request, status: &metav1.Status{Message: secret}, isVisible: true},
	} {
		auditor, sink := newAuditor(Decision{Level: test.level})
		r := auditor.Open(podsInfo, nil, newArrival)
		before := test.status.DeepCopy()
		r.SetResponseStatus(test.status)
		r.End(t.Context(), nil)
		text, _ := json.Marshal(sink.lastEvent(t).ResponseStatus)
		if strings.Contains(string(text), secret) != test.isVisible || test.status.String() != before.String() {
			t.Errorf("%s: got %s, want object shown = %t", test.name, text, test.isVisible)
		}
		if !test.isVisible && !strings.Contains(string(text), "redacted") {
			t.Errorf("%s: got %s, want it to contain \"redacted\"", test.name, text)
		}
		if message := sink.lastEvent(t).ResponseStatus.Message; !strings.Contains(message, test.wantMessage) {
			t.Errorf("%s: got message %q, want it to contain %q", test.name, message, test.wantMessage)
		}
	}
}
